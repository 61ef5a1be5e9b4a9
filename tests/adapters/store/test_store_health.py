"""Check, online backup and quarantine of a store."""

import itertools
import os
import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import (
    back_up,
    compact,
    examine,
    is_damaged,
    quarantine,
    quarantined,
)
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.command import called

S = 10**9


def points(count, first=0):
    return [
        Point("device", {"device": f"gpu{i % 4}"}, {"power_w": float(i)}, (first + i) * S)
        for i in range(count)
    ]


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "costprobe.db"
    store = Store.open(place, FakeClock())
    store.append(points(4000))
    store.close()
    return place


def damaged(path, offset, length=4096, seed=1):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(seed).randbytes(length))


def test_intact_store_is_reported_with_its_content(path):
    health = examine(path)
    assert health.problems == ()
    assert (health.points, health.series) == (4000, 4)
    assert (health.oldest_ns, health.newest_ns) == (0, 3999 * S)
    assert health.size_bytes >= path.stat().st_size
    assert health.schema.startswith("0007")
    assert not is_damaged(path)


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_text_that_is_not_utf8_is_found(path):
    changed(path, "UPDATE series SET tags = CAST(x'ff7b7d' AS TEXT) WHERE id = 2")
    assert examine(path).problems == ("table series: tags of 1 row is not UTF-8 text",)


def test_rows_that_cannot_be_decoded_are_named_stop_no_sink_and_are_set_aside(path, tmp_path):
    with closing(Store.open(path, FakeClock())) as store:
        store.settle(5 * 3600 * S, 99)
    changed(
        path,
        "UPDATE points SET fields = CAST(x'ff7b7d' AS TEXT) WHERE seq = 2",
        "UPDATE points SET fields = 7 WHERE seq = 5",
        "UPDATE hours SET fields = 'x' WHERE series_id = 3 AND time_ns = 0",
    )
    health = examine(path)
    assert (health.points, health.problems) == (
        4000,
        (
            "the fields of 3 rows cannot be parsed",
            f"table points: device,device=gpu1 at {S} ns",
            f"table points: device,device=gpu0 at {4 * S} ns",
            "table hours: device,device=gpu2 at 0 ns",
        ),
    )
    output = costprobe(tmp_path, "check", code=1)
    assert "damaged: table points: device,device=gpu1" in output
    assert "costprobe store compact" in output
    with closing(Store.open(path, FakeClock())) as store:
        store.register_sink("influxdb")
        outbox = store.outbox_of("influxdb")
        assert len(outbox.rows(outbox.live_batch(10))) == 10
    compact(path, KeepSince(0, 0, 0, 0), FakeClock())
    assert (examine(path).problems, examine(path).points) == ((), 3998)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM set_aside").fetchone() == (3,)


def test_view_in_the_place_of_a_table_is_refused(path):
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS name FROM n"
    )
    changed(path, "DROP TABLE states", f"CREATE VIEW states AS {numbers}")
    for use in (StoreReader.open, examine, lambda path: Store.open(path, FakeClock())):
        with pytest.raises(StoreError, match="'states' in it is no table of costprobe"):
            use(path)


def test_damaged_page_is_detected_within_the_time_of_the_check(path):
    damaged(path, path.stat().st_size // 2 // 4096 * 4096)
    assert is_damaged(path)
    assert not is_damaged(path, within_s=-1.0)


def test_truncated_and_invalid_stores_are_damaged_and_no_others(tmp_path):
    path, config = tmp_path / "costprobe.db", tmp_path / "costprobe.toml"
    assert not is_damaged(path)
    Store.open(path, FakeClock()).close()
    assert not is_damaged(path)
    for size in (100, 4096, 0):
        os.truncate(path, size)
        assert is_damaged(path), size
    for content in (b"no database at all" * 1000, b"\0" * 8192, b"SQLite format 3"):
        path.write_bytes(content)
        assert is_damaged(path), content[:20]
    # A file of another kind is neither damaged nor changed.
    config.write_text("[store]\n" * 1000)
    assert not is_damaged(config)
    with pytest.raises(StoreError):
        Store.open(config, FakeClock())
    assert config.read_text().startswith("[store]")


def test_quarantined_stores_are_found_and_never_replaced(path):
    for _ in range(2):
        Store.open(path, FakeClock()).close()
        quarantine(path, 1_780_000_000 * S)
    Path(f"{quarantined(path)[0]}-wal").touch()
    names = ["costprobe.db.damaged-20260528T202640Z", "costprobe.db.damaged-20260528T202640Z-again"]
    assert [file.name for file in quarantined(path)] == names
    assert quarantined(path / "missing" / "costprobe.db") == []


def test_quarantine_keeps_the_file_and_its_log(path):
    store = Store.open(path, FakeClock())
    store.append(points(10, first=9000))
    log = path.with_name(path.name + "-wal").read_bytes()
    aside = quarantine(path, 1_780_000_000 * S)
    assert aside.name == "costprobe.db.damaged-20260528T202640Z"
    assert aside.with_name(aside.name + "-wal").read_bytes() == log
    assert not path.exists()
    store.close()
    again = Store.open(path, FakeClock())
    again.append(points(1))
    again.close()
    assert examine(path).points == 1


def test_backup_during_writes_is_one_snapshot(path, tmp_path):
    stop, sizes = threading.Event(), []
    with closing(Store.open(path, FakeClock())) as store, ThreadPoolExecutor(1) as pool:

        def write():
            for first in itertools.count(10_000, 100):
                store.append(points(100, first))
                if stop.is_set():
                    return

        writing = pool.submit(write)
        for number in range(5):
            target = tmp_path / f"copy{number}.db"
            back_up(path, target)
            health = examine(target)
            assert health.problems == ()
            sizes.append(health.points)
        stop.set()
        writing.result()
    # Every transaction is complete or absent.
    assert {(size - 4000) % 100 for size in sizes} == {0}
    assert sizes == sorted(sizes)
    assert [file.name for file in tmp_path.glob("copy*partial*")] == []
    assert target.stat().st_mode & 0o777 == 0o600
    with closing(StoreReader.open(target)) as reader:
        assert len(list(reader.points("device", 0, 4000 * S))) == 4000


def costprobe(tmp_path, *arguments, code=0):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n')
    return called(config, "store", *arguments, code=code).output


def test_store_commands_report_their_results(path, tmp_path):
    output = costprobe(tmp_path, "check")
    assert "4,000 rows of 4 series" in output
    assert "\nwhole" in output
    copy = tmp_path / "copy.db"
    assert "MiB" in costprobe(tmp_path, "backup", str(copy))
    copy.write_text("mine")
    assert "--force" in costprobe(tmp_path, "backup", str(copy), code=2)
    assert copy.read_text() == "mine"
    costprobe(tmp_path, "backup", "--force", str(copy))
    assert "the store itself" in costprobe(tmp_path, "backup", str(path), code=2)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM points").fetchone() == (4000,)
    connection.close()
    damaged(path, path.stat().st_size // 2 // 4096 * 4096)
    output = costprobe(tmp_path, "check", code=1)
    assert "damaged" in output or "malformed" in output
