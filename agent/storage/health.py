"""Whether a store is whole, what it holds, a copy of it, and what becomes of a damaged one."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from agent.model import NS_PER_S
from agent.storage.errors import StoreError, translated

PROBLEMS_MAX: Final = 20
# A check of gigabytes takes minutes: at a start it looks for so long, in s, and goes on.
START_CHECK_S: Final = 5.0
_STEPS_BETWEEN_LOOKS: Final = 1000
_PAGES_A_STEP: Final = 1000
_COPY_SUFFIX: Final = ".partial"
_FILE_MODE: Final = 0o600
_MAGIC: Final = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Health:
    """What is found in a store.

    Attributes:
        problems: What SQLite finds wrong, at most PROBLEMS_MAX; empty for a store that is whole.
        schema: The last migration that it has seen; empty where it has seen none.
        size_bytes: Of the file with its log.
        points: Rows as they were measured.
        rolled: Rows that stand for those of a minute or an hour.
        series: Distinct series.
        oldest_ns: UTC ns of the oldest row; None where there is none.
        newest_ns: UTC ns of the newest.
    """

    problems: tuple[str, ...]
    schema: str
    size_bytes: int
    points: int
    rolled: int
    series: int
    oldest_ns: int | None
    newest_ns: int | None


def examine(path: Path) -> Health:
    """Reads a whole store, beside a daemon that writes to it.

    Raises:
        StoreError: There is none, it cannot be read, or is none.
    """
    with translated("check", path), closing(_reader(path)) as connection:
        problems = _problems(connection, "integrity_check")
        if problems:
            return Health(problems, "", _size_bytes(path), 0, 0, 0, None, None)
        (schema,) = connection.execute(
            "SELECT name FROM migrations ORDER BY position DESC LIMIT 1"
        ).fetchone() or ("",)
        (series,) = connection.execute("SELECT count(*) FROM series").fetchone()
        points, rolled = _counted(connection, "points"), 0
        times_ns = [*points[1:]]
        # A store that no daemon has opened since an upgrade has none.
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rollups_%'"
        ).fetchall():
            count, *own_ns = _counted(connection, table)
            rolled += count
            times_ns += own_ns
        known_ns = [time_ns for time_ns in times_ns if time_ns is not None]
        return Health(
            (),
            schema,
            _size_bytes(path),
            points[0],
            rolled,
            int(series),
            min(known_ns, default=None),
            max(known_ns, default=None),
        )


def back_up(path: Path, target: Path, *, replace: bool = False) -> int:
    """Copies a store as it is at one instant, beside a daemon that writes to it.

    The copy appears under its name when it is whole and on the disk, and not before.

    Args:
        path: The store.
        target: The copy.
        replace: Whether a file of that name may go.

    Returns:
        Bytes of the copy.

    Raises:
        StoreError: It cannot be read or written.
        FileExistsError: There is a file of that name.
    """
    if target.exists() and not replace:
        raise FileExistsError(str(target))
    partial = target.with_name(target.name + _COPY_SUFFIX)
    partial.unlink(missing_ok=True)
    try:
        with translated("back up", path), closing(_reader(path)) as source:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, _FILE_MODE))
            with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                source.backup(copy, pages=_PAGES_A_STEP)
                # A copy has no log beside it: it is one file that can be taken elsewhere.
                copy.execute("PRAGMA journal_mode = DELETE")
            _synced(partial)
            partial.replace(target)
            _synced(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def is_damaged(path: Path, within_s: float = START_CHECK_S) -> bool:
    """Whether a store is found damaged by a look that is bounded in time.

    A file that neither begins as a database nor is named as one is another's, whatever is in it.

    Args:
        path: The store.
        within_s: How long to look, in seconds; what was not seen by then is taken to be whole.

    Raises:
        StoreError: It cannot be looked at for another reason.
    """
    if not path.exists() or path.stat().st_size == 0 or not _seems_a_store(path):
        return False
    ends_s = time.monotonic() + within_s
    try:
        with translated("check", path), closing(_reader(path)) as connection:
            connection.set_progress_handler(
                lambda: int(time.monotonic() > ends_s), _STEPS_BETWEEN_LOOKS
            )
            try:
                return bool(_problems(connection, "quick_check"))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    return False
                raise
    except StoreError as error:
        if error.fault == "corrupt":
            return True
        raise


def set_aside(path: Path, time_ns: int) -> Path:
    """Renames a damaged store with its log, so that a new one can be begun; nothing is deleted.

    Args:
        path: The store.
        time_ns: UTC in ns, for the name.

    Returns:
        Its new name.

    Raises:
        StoreError: It cannot be renamed.
    """
    stamp = datetime.fromtimestamp(time_ns // NS_PER_S, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    with translated("set aside", path):
        # The log first: without its file it is of no use, and a new file must not find it.
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
        _synced(path.parent)
    return aside


def _seems_a_store(path: Path) -> bool:
    with translated("check", path), path.open("rb") as file:
        return path.suffix == ".db" or file.read(len(_MAGIC)) == _MAGIC


def _reader(path: Path) -> sqlite3.Connection:
    path.stat()
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _counted(connection: sqlite3.Connection, table: str) -> tuple[int, int | None, int | None]:
    """Rows of a table, and the times of its oldest and newest."""
    rows, oldest_ns, newest_ns = connection.execute(
        f"SELECT count(*), min(time_ns), max(time_ns) FROM {table}"  # noqa: S608 - one of the schema's
    ).fetchone()
    return int(rows), oldest_ns, newest_ns


def _problems(connection: sqlite3.Connection, check: str) -> tuple[str, ...]:
    rows: Sequence[tuple[str]] = connection.execute(f"PRAGMA {check}({PROBLEMS_MAX})").fetchall()
    found = tuple(line for (text,) in rows for line in str(text).splitlines())
    return () if found == ("ok",) else found[:PROBLEMS_MAX]


def _size_bytes(path: Path) -> int:
    files = (Path(f"{path}{suffix}") for suffix in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
