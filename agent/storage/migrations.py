"""The store's schema, as the named steps that lead to it; each commits with its record."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.storage.errors import StoreError

APPLICATION_ID = 0x494E4643  # "INFC", as `file` and SQLite show it


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        name: Recorded in the store; never changed once released.
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
            # A seq is never used twice: a cursor that stands on it would skip the later point.
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
            # An id is never used twice, so that the order of ids is that of commits.
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
            # A year of rows would say the names of their fields millions of times.
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
)


def recorded(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Names of the migrations that a file has seen, oldest first; none for an empty file.

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
    """The migrations that a file has yet to see.

    Raises:
        StoreError: The file belongs to another program or to a newer version of this one.
    """
    seen = recorded(connection, path)
    if seen != [migration.name for migration in migrations[: len(seen)]]:
        raise StoreError("open", path, "newer", f"it has seen migration {seen[-1]!r}")
    return migrations[len(seen) :]


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    time_ns: int,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> None:
    """Brings a file up to date, one transaction for each step.

    Args:
        connection: In autocommit mode.
        path: The file, for errors.
        time_ns: UTC in ns, for the record.
        migrations: All steps, oldest first.

    Raises:
        StoreError: The file belongs to another program or to a newer version of this one.
        sqlite3.Error: A step failed; the file is as the step before left it.
    """
    while missing(connection, path, migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Looked up again under the lock: another process may have been faster.
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
