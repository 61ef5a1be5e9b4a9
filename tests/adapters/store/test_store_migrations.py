"""The schema is migrated in named, atomic steps."""

import json
import sqlite3
from contextlib import closing

import pytest
from costprobe.adapters.store.database import MIGRATIONS, Migration, StoreError, migrate, recorded
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from fakes.clock import FakeClock
from store_samples import lines_of, point, query

COLOUR = Migration("0002 colour", ("ALTER TABLE series ADD COLUMN colour TEXT",))
BROKEN = Migration(
    "0003 broken", ("CREATE TABLE extra (x)", "INSERT INTO extra VALUES (1)", "INSERT INTO nothing")
)


@pytest.fixture
def connection(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def schema(path):
    return query(path, "SELECT type, name, sql FROM sqlite_master ORDER BY name")


def test_store_of_every_earlier_version_is_migrated(tmp_path):
    fresh = tmp_path / "fresh.db"
    Store.open(fresh, FakeClock()).close()
    for version in range(len(MIGRATIONS) + 1):
        path = tmp_path / f"{version}.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            migrate(connection, path, 1, MIGRATIONS[:version])
        for points in ([point(1)], []):
            with closing(Store.open(path, FakeClock())) as store:
                store.append(points)
                assert lines_of(store) == [render(point(1))]
        assert schema(path) == schema(fresh)
        names = query(path, "SELECT name FROM migrations ORDER BY position")
        assert names == [(migration.name,) for migration in MIGRATIONS]


def test_failed_migration_is_rolled_back(path, connection):
    with pytest.raises(sqlite3.Error):
        migrate(connection, path, 1, [*MIGRATIONS, COLOUR, BROKEN])
    assert recorded(connection, path) == [*(each.name for each in MIGRATIONS), COLOUR.name]
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'extra'") == []
    assert not connection.in_transaction


def test_rows_of_minutes_and_hours_become_hour_rows(path, connection, caplog):
    """Three minutes and the hour of an older version, by hand; one of the minutes is damaged."""
    migrate(connection, path, 1, MIGRATIONS[:6])
    connection.execute("INSERT INTO series VALUES (1, 'device', 'device,device=gpu0', '{}')")
    layout = ["cost", "power_w", "util_pct"]
    connection.execute("INSERT INTO layouts VALUES (1, ?)", (json.dumps(layout),))
    hour_ns, s = 3600 * 10**9, 10**9
    for table, time_ns, newest_ns, rows, cells in (
        ("1m", 2 * hour_ns, 2 * hour_ns + 50 * s, 6, "[0.1,[100.0,90.0,110.0],[50.0,2]]"),
        ("1m", 2 * hour_ns + 60 * s, 2 * hour_ns + 90 * s, 3, "[0.2,400.0,[20.0,10.0,30.0,1]]"),
        ("1m", 2 * hour_ns + 120 * s, 2 * hour_ns + 150 * s, 6, "[7"),
        ("1h", 2 * hour_ns, 2 * hour_ns + 3000 * s, 1, "[0.4,200.0,60.0]"),
        ("1h", hour_ns, 2 * hour_ns - s, 360, "[1.5,[100.0,50.0,150.0],10.0]"),
    ):
        row = (1, time_ns, newest_ns, rows, 1, cells)
        connection.execute(f"INSERT INTO rollups_{table} VALUES (?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - literals
    document = json.dumps([3, 1.0, 2.0, 3.0, 4.0, [5.0] * 60, None])
    summary = ("load", 1, 2 * hour_ns, document)
    connection.execute("INSERT INTO summaries VALUES (?, ?, ?, ?)", summary)
    Store.open(path, FakeClock()).close()
    with closing(StoreReader.open(path)) as reader:
        first, second = reader.points("device", 0, 2**62)
        ((loads,), _) = reader.loads(0, 2**62, edge_ns=0)
    assert (first.rows, first.fields) == (360, {"cost": 1.5, "power_w": 100.0, "util_pct": 10.0})
    assert (second.rows, second.newest_ns) == (10, 2 * hour_ns + 3000 * s)
    assert second.fields == pytest.approx({"cost": 0.7, "power_w": 200.0, "util_pct": 45.0})
    assert loads[0] == 2 * hour_ns
    _, (text,) = query(path, "SELECT fields FROM hours ORDER BY time_ns")
    assert "power_w_max=400.0,power_w_min=90.0" in text
    assert "util_pct_max=60.0,util_pct_min=10.0,util_pct_rows=4i" in text
    assert query(path, "SELECT line FROM set_aside") == [
        (f"device,device=gpu0 [7 {2 * hour_ns + 120 * s}",)
    ]


DAMAGE = (
    "UPDATE layouts SET names = '[1'",
    "UPDATE rollups_1h SET cells = '[[[1], 2]]'",
    "UPDATE rollups_1h SET cells = '[[1.0, \"x\"]]'",
    "UPDATE summaries SET document = '[1'",
    "UPDATE summaries SET document = '[1, 2]'",
    "UPDATE summaries SET document = '[1, [2], null]'",
)


def test_damaged_document_of_an_older_version_does_not_prevent_a_start(tmp_path):
    for number, damage in enumerate(DAMAGE):
        path = tmp_path / f"{number}.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            migrate(connection, path, 1, MIGRATIONS[:6])
            for statement in (
                "INSERT INTO series VALUES (1, 'device', 'device,device=gpu0', '{}')",
                "INSERT INTO layouts VALUES (1, '[\"cost\"]')",
                "INSERT INTO rollups_1h VALUES (1, 0, 0, 2, 1, '[0.5]')",
                "INSERT INTO summaries VALUES ('load', 1, 0, '[]')",
                damage,
            ):
                connection.execute(statement)
        Store.open(path, FakeClock()).close()
        with closing(StoreReader.open(path)) as reader:
            costs = [point.fields for point in reader.points("device", 0, 2**62)]
        assert costs == ([{"cost": 0.5}] if "summaries" in damage else [])
        assert len(query(path, "SELECT line FROM set_aside")) + len(costs) == 1


def test_unknown_order_of_migrations_is_rejected(path, connection):
    migrate(connection, path, 1, [Migration("0001 other", MIGRATIONS[0].statements)])
    with pytest.raises(StoreError, match="0001 other"):
        migrate(connection, path, 1)


def test_reader_of_an_older_store_waits_for_its_migration(path, connection):
    migrate(connection, path, 1, ())
    with pytest.raises(StoreError) as caught:
        StoreReader.open(path)
    assert caught.value.fault == "not_ready"
    Store.open(path, FakeClock()).close()
    reader = StoreReader.open(path)
    assert reader.series() == []
    reader.close()
