"""A reader returns points in order of time, with or without a concurrent writer."""

import itertools
import json
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from fakes.clock import FakeClock
from record.record_files import check_outcomes
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


def test_points_and_values_of_a_range_are_those_of_the_selected_series(tmp_path):
    """Of points and queries in seconds; see `record_files`."""
    numbers = itertools.count()

    def answers(text):
        case, found = json.loads(text), []
        path = tmp_path / f"{next(numbers)}.db"
        with closing(Store.open(path, FakeClock())) as store:
            store.append([point(at, device, **fields) for at, device, fields in case["points"]])
        with closing(StoreReader.open(path)) as reader:
            for query, *values in case["queries"]:
                asked = [T0_NS + each * S if type(each) is int else each for each in values]
                if query == "values":
                    series = reader.values("device", *asked)
                    found.append(
                        [[one.tags, seconds(one.times_ns), list(one.values)] for one in series]
                    )
                    continue
                points = getattr(reader, query)("device", *asked)
                found.append([[one.tags, *seconds([one.time_ns])] for one in points])
        return found

    check_outcomes("store_queries.json", answers)


def seconds(times_ns):
    return [(time_ns - T0_NS) // S for time_ns in times_ns]


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
