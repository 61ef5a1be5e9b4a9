"""A reader returns points in order of time, with or without a concurrent writer."""

import math
import shutil
import tempfile
from pathlib import Path

import pytest
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from fakes.clock import FakeClock
from store_samples import T0_NS, S, happened, point, run_python

ALWAYS = (-(2**70), 2**70)


@pytest.fixture
def reader(store, path):
    reader = StoreReader.open(path)
    yield reader
    reader.close()


def test_points_of_all_series_are_ordered_by_time(store, reader):
    points = [point(second, f"gpu{second % 3}") for second in range(900)]
    store.append(points[::-1])
    store.append([point(5, measurement="agent")])
    assert list(reader.points("device", *ALWAYS)) == points
    assert list(reader.lines(*ALWAYS, "device")) == [render(each) for each in points]
    assert sorted(reader.lines(*ALWAYS)) == sorted(
        render(each) for each in [*points, point(5, measurement="agent")]
    )


def test_range_includes_its_start_and_excludes_its_end(store, reader):
    store.append([point(second) for second in range(10)])
    found = reader.points("device", T0_NS + 2 * S, T0_NS + 5 * S)
    assert [each.time_ns for each in found] == [T0_NS + second * S for second in (2, 3, 4)]
    assert list(reader.points("device", T0_NS + 5 * S, T0_NS + 2 * S)) == []


def test_tags_select_series_that_have_all_of_them(store, reader):
    store.append([point(1), point(2, "gpu1"), point(3, "a\\b\n")])
    assert [p.time_ns for p in reader.points("device", *ALWAYS, {"device": "gpu1"})] == [
        T0_NS + 2 * S
    ]
    assert list(reader.points("device", *ALWAYS, {"device": "gpu1", "host": "other"})) == []
    assert list(reader.points("device", *ALWAYS, {"device": "gp"})) == []
    # A tag with an escaped name is found by its original name.
    (odd,) = reader.points("device", *ALWAYS, {"device": "a\\b\n"})
    assert odd.tags == {"host": "h", "device": "a/b "}


def test_newest_point_of_each_series(store, reader):
    store.append([point(3), point(9, power_w=9.0), point(5), point(4, "gpu1")])
    newest = T0_NS + 9 * S
    assert reader.last("device", newest) == [point(9, power_w=9.0), point(4, "gpu1")]
    assert reader.last("device", newest - 1)[0].time_ns < newest
    assert reader.last("device", newest, {"device": "gpu1"}) == [point(4, "gpu1")]
    assert reader.last("probe", newest) == []


def test_values_are_one_field_of_each_series_that_has_it(store, reader):
    store.append(
        [
            point(1, power_w=1.5, temp_c=40.0),
            point(2, energy_method=',power_w=77 "and" \\', power_w=2.5),
            point(3, a=",power_w=99"),
            point(4, power_w=math.pi * 1e-9),
            point(5, "gpu1", temp_c=50.0),
            point(6, "gpu2", power_w=7),
        ]
    )
    first = SeriesValues({"device": "gpu0", "host": "h"}, [], [])
    for second, value in ((1, 1.5), (2, 2.5), (4, math.pi * 1e-9)):
        first.add(T0_NS + second * S, value)
    second = SeriesValues({"device": "gpu2", "host": "h"}, [], [])
    second.add(T0_NS + 6 * S, 7.0)
    assert reader.values("device", "power_w", *ALWAYS) == [first, second]
    assert reader.values("device", "a", *ALWAYS) == []
    assert reader.values("device", "power_w", T0_NS, T0_NS + S) == []


def test_paused_reader_neither_blocks_the_writer_nor_holds_its_log(store, reader, path):
    store.append([happened(second) for second in range(1000)])
    paused = reader.lines(*ALWAYS)
    assert next(paused) == render(happened(0))
    for second in range(4000, 4100):
        store.append([happened(second)])
    with store._database.reading("read") as connection:  # noqa: SLF001 - queries SQLite directly
        assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    store.retain(KeepSince(*[T0_NS + 500 * S] * 4))
    # It reads the series as of its start, without a gap.
    assert list(paused)[-1] == render(happened(999))
    assert list(reader.lines(*ALWAYS))[-1] == render(happened(4099))


def test_reader_cannot_write(reader):
    with reader._database.reading("try") as connection, pytest.raises(Exception, match="readonly"):  # noqa: SLF001 - nothing else lets one try
        connection.execute("DELETE FROM points")


def test_missing_store_is_an_error_with_its_fix(path):
    with pytest.raises(StoreError, match="start `costprobe run`") as caught:
        StoreReader.open(path)
    assert caught.value.fault == "missing"
    assert not path.parent.exists()


@pytest.fixture
def readable_folder(path):
    """A store that another user may only read, with its writer's files."""
    made = []

    def make(kind):
        # Outside tmp_path, which other users cannot access.
        folder = Path(tempfile.mkdtemp())
        made.append(folder)
        store = Store.open(path, FakeClock())
        store.append([point(second) for second in range(50)])
        if kind == "clean":
            store.close()
        # With its log, as after a kill, unless closed.
        shutil.copytree(path.parent, folder, dirs_exist_ok=True)
        if kind != "clean":
            store.close()
        if kind == "log_without_index":
            (folder / "costprobe.db-shm").unlink()
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        return folder / "costprobe.db"

    yield make
    for folder in made:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_reader_without_write_permission_reads_all_or_names_the_fix(readable_folder):
    fix = "run as the user that the daemon runs as, or as root"
    for kind, mode, shown in (
        ("clean", 0o444, "50\n"),
        ("killed", 0o444, "100\n"),  # the rows of both
        ("log_without_index", 0o444, fix),
        ("clean", 0o000, fix),
    ):
        path = readable_folder(kind)
        path.chmod(mode)
        done = run_python("read_as_another_user.py", path)
        assert shown in done.stdout, (kind, done.stderr)
