"""The schema of the store as named migrations; each commits together with its record."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from costprobe.adapters.storage.errors import StoreError
from costprobe.core.records import NS_PER_S

APPLICATION_ID = 0x43505242  # "CPRB", as `file` and SQLite show it


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        name: Recorded in the store; never changed after a release.
        statements: SQL, one statement each, run in one transaction with the record.
    """

    name: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "0001 points, outbox and states",
        (
            f"PRAGMA application_id = {APPLICATION_ID}",
            """CREATE TABLE series (
                id INTEGER PRIMARY KEY,
                measurement TEXT NOT NULL,
                key TEXT NOT NULL UNIQUE,
                tags TEXT NOT NULL
            )""",
            # A seq is never reused: a cursor at that seq would skip the later point.
            """CREATE TABLE points (
                seq INTEGER PRIMARY KEY AUTOINCREMENT,
                series_id INTEGER NOT NULL REFERENCES series (id),
                time_ns INTEGER NOT NULL,
                fields TEXT NOT NULL,
                UNIQUE (series_id, time_ns)
            )""",
            """CREATE TABLE cursors (
                sink TEXT PRIMARY KEY,
                acked_seq INTEGER NOT NULL,
                sent_points INTEGER NOT NULL DEFAULT 0,
                rejected_points INTEGER NOT NULL DEFAULT 0,
                dropped_points INTEGER NOT NULL DEFAULT 0,
                acked_ns INTEGER
            )""",
            """CREATE TABLE rejected (
                id INTEGER PRIMARY KEY,
                sink TEXT NOT NULL REFERENCES cursors (sink) ON DELETE CASCADE,
                line TEXT NOT NULL,
                reason TEXT NOT NULL,
                time_ns INTEGER NOT NULL
            )""",
            "CREATE INDEX rejected_by_sink ON rejected (sink, id)",
            """CREATE TABLE states (
                name TEXT PRIMARY KEY,
                document TEXT NOT NULL,
                time_ns INTEGER NOT NULL
            )""",
            "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        ),
    ),
    Migration(
        "0002 notices",
        (
            """CREATE TABLE notifiers (
                name TEXT PRIMARY KEY,
                sent INTEGER NOT NULL DEFAULT 0,
                dropped INTEGER NOT NULL DEFAULT 0,
                last_sent_ns INTEGER,
                last_reason TEXT NOT NULL DEFAULT ''
            )""",
            # An id is never reused, so that ids are in the order of commits.
            """CREATE TABLE notices (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                notifier TEXT NOT NULL REFERENCES notifiers (name),
                alert TEXT NOT NULL,
                queued_ns INTEGER NOT NULL
            )""",
            "CREATE INDEX notices_by_notifier ON notices (notifier, id)",
        ),
    ),
    Migration(
        "0003 roll-ups",
        (
            # Field names are stored once, not in each of millions of rows.
            "CREATE TABLE layouts (id INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE)",
            *(
                f"""CREATE TABLE {table} (
                    series_id INTEGER NOT NULL REFERENCES series (id),
                    time_ns INTEGER NOT NULL,
                    newest_ns INTEGER NOT NULL,
                    rows INTEGER NOT NULL,
                    layout_id INTEGER NOT NULL REFERENCES layouts (id),
                    cells TEXT NOT NULL,
                    PRIMARY KEY (series_id, time_ns)
                ) WITHOUT ROWID"""
                for table in ("rollups_1m", "rollups_1h")
            ),
        ),
    ),
    Migration(
        "0004 totals",
        (
            # Decimals as text: a sum of floats would lose digits over the years.
            """CREATE TABLE totals (
                name TEXT NOT NULL,
                labels TEXT NOT NULL,
                value TEXT NOT NULL,
                PRIMARY KEY (name, labels)
            ) WITHOUT ROWID""",
        ),
    ),
    Migration(
        "0005 summaries of hours",
        (
            # With row ids: without them documents of over 1 kB take a page each.
            """CREATE TABLE summaries (
                kind TEXT NOT NULL,
                series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
                time_ns INTEGER NOT NULL,
                document TEXT NOT NULL,
                UNIQUE (series_id, kind, time_ns)
            )""",
            # A summary is of all rows of its hour: a late row makes it wrong.
            # Ten minutes around the hour, because a row begins before its time.
            f"""CREATE TRIGGER late_rows AFTER INSERT ON points BEGIN
                DELETE FROM summaries WHERE series_id = new.series_id
                    AND kind IN ('sums', 'load', 'rows')
                    AND time_ns > new.time_ns - {4200 * NS_PER_S}
                    AND time_ns <= new.time_ns + {600 * NS_PER_S};
            END""",  # noqa: S608 - literals
        ),
    ),
)


def recorded(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Return the names of the migrations applied to a file, oldest first; none for an empty file.

    Raises:
        StoreError: The file belongs to another program.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if application_id == 0 and not tables:
        return []
    if application_id != APPLICATION_ID or "migrations" not in tables:
        raise StoreError("open", path, "foreign")
    rows = connection.execute("SELECT name FROM migrations ORDER BY position")
    return [name for (name,) in rows]


def missing(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]
) -> Sequence[Migration]:
    """Return the migrations that a file still needs.

    Raises:
        StoreError: The file belongs to another program or to a newer version of this one.
    """
    applied = recorded(connection, path)
    if applied != [migration.name for migration in migrations[: len(applied)]]:
        raise StoreError("open", path, "newer", f"its last migration is {applied[-1]!r}")
    return migrations[len(applied) :]


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    time_ns: int,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> None:
    """Apply the missing migrations, one transaction each.

    Args:
        connection: In autocommit mode.
        path: The file, for errors.
        time_ns: UTC in ns, recorded with each migration.
        migrations: All migrations, oldest first.

    Raises:
        StoreError: The file belongs to another program or to a newer version of this one.
        sqlite3.Error: A migration failed and was rolled back.
    """
    while missing(connection, path, migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Checked again under the lock: another process may have migrated meanwhile.
            for migration in missing(connection, path, migrations)[:1]:
                _apply(connection, migration, time_ns)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _apply(connection: sqlite3.Connection, migration: Migration, time_ns: int) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, applied_ns INTEGER NOT NULL)"
    )
    for statement in migration.statements:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migrations (name, applied_ns) VALUES (?, ?)", (migration.name, time_ns)
    )
