"""The schema is migrated in named, atomic steps."""

import sqlite3

import pytest
from costprobe.adapters.store.database import (
    MIGRATIONS,
    Migration,
    StoreError,
    migrate,
    recorded,
)
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


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
def test_store_of_every_earlier_version_is_migrated(path, connection, version, tmp_path):
    migrate(connection, path, 1, MIGRATIONS[:version])
    for points in ([point(1)], []):
        store = Store.open(path, FakeClock())
        store.append(points)
        assert lines_of(store) == [render(point(1))]
        store.close()
    fresh = tmp_path / "fresh" / "costprobe.db"
    Store.open(fresh, FakeClock()).close()
    assert schema(path) == schema(fresh)
    assert query(path, "SELECT name FROM migrations ORDER BY position") == [
        (migration.name,) for migration in MIGRATIONS
    ]


def test_migration_commits_with_its_record_and_time(path, connection):
    migrate(connection, path, 1)
    migrate(connection, path, 2, [*MIGRATIONS, COLOUR])
    assert recorded(connection, path) == [*(each.name for each in MIGRATIONS), COLOUR.name]
    assert query(path, "SELECT applied_ns FROM migrations")[-2:] == [(1,), (2,)]
    assert query(path, "SELECT colour FROM series") == []


def test_failed_migration_is_rolled_back(path, connection):
    with pytest.raises(sqlite3.Error):
        migrate(connection, path, 1, [*MIGRATIONS, COLOUR, BROKEN])
    assert recorded(connection, path) == [*(each.name for each in MIGRATIONS), COLOUR.name]
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'extra'") == []
    assert not connection.in_transaction


def test_migration_preserves_data(path):
    store = Store.open(path, FakeClock())
    store.append([point(1)])
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, path, 1, [*MIGRATIONS, COLOUR])
    connection.close()
    assert query(path, "SELECT key, colour FROM series") == [("device,device=gpu0,host=h", None)]
    assert query(path, "SELECT count(*) FROM points") == [(1,)]


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


def test_names_are_ordered_and_unique():
    names = [migration.name for migration in MIGRATIONS]
    assert names == sorted(set(names))
