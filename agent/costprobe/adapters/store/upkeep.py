"""Upkeep of the store: integrity check, backup, quarantine, compaction, and retention of rows.

Compaction is offline: all due retention and shrinking at once, with exclusive access. Retention
in the daemon is robust against a wrong wall clock.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from costprobe.adapters.store.database import (
    MIGRATIONS,
    StoreError,
    StoreLock,
    check_files,
    missing,
    size_bytes,
    synchronize,
    translated,
)
from costprobe.adapters.store.hours import undecodable
from costprobe.adapters.store.ledger import StoreLedger, restored
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.clock import Clock
from costprobe.core.outside import one_line
from costprobe.core.periods import DAY_NS
from costprobe.core.records import NS_PER_S
from costprobe.core.units import counted

# No other writer waits: larger steps mean fewer commits.
_ROWS_A_STEP: Final = 5000
_BUSY_TIMEOUT_MS: Final = 500
_LOCK_TIMEOUT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction.

    Attributes:
        before_bytes: Size of the file with its log before.
        after_bytes: Size after.
        aggregated: Rows that were merged into a row of a coarser tier.
        removed: Rows that were deleted.
        dropped: Rows among these that at least one sink never received.
    """

    before_bytes: int
    after_bytes: int
    aggregated: int
    removed: int
    dropped: int


def compact(path: Path, since: KeepSince, clock: Clock) -> Compacted:
    """Aggregate, delete and release all that is due, in steps that may be killed at any time.

    Rows that cannot be decoded are set aside before.

    Requires exclusive access.

    Args:
        path: The store.
        since: Retention limits.
        clock: Clocks of the host.

    Raises:
        StoreError: It does not exist, cannot be written, or (`in_use`, `locked`) is open elsewhere.
    """
    with translated("compact", path):
        path.stat()
    before_bytes = size_bytes(path)
    aggregated = removed = dropped = 0
    lock = StoreLock(path, _LOCK_TIMEOUT_S)
    with closing(Store.open(path, clock, _BUSY_TIMEOUT_MS, alone=True, lock=lock)) as store:
        store.set_damaged_aside()
        is_done = False
        while not is_done:
            step = store.retain(since, _ROWS_A_STEP)
            aggregated, removed = aggregated + step.aggregated, removed + step.removed
            dropped += step.dropped
            is_done = step.is_done
        while store.release_pages(keep=False):
            pass
    return Compacted(before_bytes, size_bytes(path), aggregated, removed, dropped)


PROBLEMS_MAX: Final = 20
# Time limit in s of the check at startup: a full check of gigabytes takes minutes.
START_CHECK_S: Final = 5.0
_STEPS_BETWEEN_CHECKS: Final = 1000
_PAGES_A_STEP: Final = 1000
_BACKUP_MODE: Final = 0o600
_DAMAGED: Final = ".damaged-"
_LOG_SUFFIXES: Final = ("-wal", "-shm")
_MAGIC: Final = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Health:
    """Result of an examination.

    Attributes:
        problems: Problems that SQLite reports, or rows that cannot be decoded, at most PROBLEMS_MAX;
            empty for an intact store.
        schema: Name of the last migration; empty if the file itself is damaged.
        size_bytes: Size of the file with its log.
        points: Rows as they were measured.
        rolled: Rows of an hour, also beside its rows.
        series: Distinct series.
        oldest_ns: UTC ns of the oldest row; None without rows.
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
    """Check a whole store, also while a daemon writes to it.

    Raises:
        StoreError: It does not exist, cannot be read, or is not a store.
    """
    with translated("check", path), closing(_reader(path)) as connection:
        outdated = missing(connection, path, MIGRATIONS)
        problems = _problems(connection, "integrity_check") or _damaged_texts(connection)
        if problems:
            return Health(problems, "", size_bytes(path), 0, 0, 0, None, None)
        if outdated:
            raise StoreError("check", path, "not_ready")
        (series,) = connection.execute("SELECT count(*) FROM series").fetchone()
        counts = "SELECT count(*), min(time_ns), max(time_ns) FROM "
        points, *times_ns = connection.execute(counts + "points").fetchone()
        rolled, *hours_ns = connection.execute(counts + "hours").fetchone()
        known_ns = [time_ns for time_ns in (*times_ns, *hours_ns) if time_ns is not None]
        return Health(
            _damaged_rows(connection),
            MIGRATIONS[-1].name,
            size_bytes(path),
            points,
            rolled,
            int(series),
            min(known_ns, default=None),
            max(known_ns, default=None),
        )


def back_up(path: Path, target: Path, *, replace: bool = False) -> int:
    """Copy a snapshot of a store, also while a daemon writes to it.

    The copy appears under its name only once it is complete and durable.

    Args:
        path: The store.
        target: The copy.
        replace: Whether to replace an existing file.

    Returns:
        Size of the copy in bytes.

    Raises:
        StoreError: It cannot be read or written.
        FileExistsError: The target exists.
    """
    if target.exists() and not replace:
        raise FileExistsError(str(target))
    with (
        translated("back up", path),
        closing(_reader(path)) as source,
        # A folder of its own: beside a copy in a shared folder others could leave a journal.
        TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder,
    ):
        partial = Path(folder) / target.name
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, _BACKUP_MODE))
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            source.backup(copy, pages=_PAGES_A_STEP)
            # A copy without a log is one file that can be moved.
            copy.execute("PRAGMA journal_mode = DELETE")
        synchronize(partial)
        partial.replace(target)
        synchronize(target.parent)
    return target.stat().st_size


def is_damaged(path: Path, within_s: float = START_CHECK_S) -> bool:
    """Return whether a time-limited check finds damage; an empty file is a truncated store.

    A file that neither starts as a database nor has the suffix of one is not a store.

    Args:
        path: The store.
        within_s: Time limit in seconds; pages not checked by then count as intact.

    Raises:
        StoreError: It cannot be checked for another reason.
    """
    check_files(path, "check")
    if not path.exists():
        return False
    if path.stat().st_size == 0:
        return True
    if not _looks_like_a_store(path):
        return False
    ends_s = time.monotonic() + within_s
    try:
        with translated("check", path), closing(_reader(path)) as connection:
            connection.set_progress_handler(
                lambda: int(time.monotonic() > ends_s), _STEPS_BETWEEN_CHECKS
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


def quarantine(path: Path, time_ns: int) -> Path:
    """Rename a damaged store with its log, so that a new one can be created; nothing is deleted.

    Args:
        path: The store.
        time_ns: UTC in ns, for the name.

    Returns:
        Its new name.

    Raises:
        StoreError: It cannot be renamed.
    """
    stamp = datetime.fromtimestamp(time_ns // NS_PER_S, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    renamed = path.with_name(f"{path.name}{_DAMAGED}{stamp}")
    while renamed.exists():
        renamed = renamed.with_name(f"{renamed.name}-again")
    with translated("quarantine", path):
        # The log first: SQLite must not apply it to a new file.
        for suffix in (*_LOG_SUFFIXES, ""):
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{renamed}{suffix}")
        synchronize(path.parent)
    return renamed


def quarantined(path: Path) -> list[Path]:
    """Return the damaged stores that were replaced by this one and are still beside it, by age."""
    prefix = f"{path.name}{_DAMAGED}"
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent))
    except OSError:
        return []
    files = (name for name in names if name.startswith(prefix))
    return [path.with_name(name) for name in files if not name.endswith(_LOG_SUFFIXES)]


def _looks_like_a_store(path: Path) -> bool:
    with translated("check", path), path.open("rb") as file:
        return path.suffix == ".db" or file.read(len(_MAGIC)) == _MAGIC


def _reader(path: Path) -> sqlite3.Connection:
    path.stat()
    check_files(path, "check")
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _problems(connection: sqlite3.Connection, check: str) -> tuple[str, ...]:
    rows: Sequence[tuple[str]] = connection.execute(f"PRAGMA {check}({PROBLEMS_MAX})").fetchall()
    problems = tuple(line for (text,) in rows for line in str(text).splitlines())
    return () if problems == ("ok",) else problems[:PROBLEMS_MAX]


def _damaged_texts(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return in which columns texts are not UTF-8, which SQLite's own check does not find."""
    connection.create_function("is_utf8", 1, _is_utf8, deterministic=True)
    columns = connection.execute(
        "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c"
        " WHERE m.type = 'table' AND c.type = 'TEXT'"
    ).fetchall()
    problems = []
    for table, column in columns:
        if not f"{table}{column}".isidentifier() or column == "fields":
            continue
        (count,) = connection.execute(
            f"SELECT count(*) FROM {table} WHERE typeof({column}) = 'blob'"  # noqa: S608 - names are identifiers
            f" OR NOT is_utf8(CAST({column} AS BLOB))"
        ).fetchone()
        if count:
            problems.append(f"table {table}: {column} of {counted(count, 'row')} is not UTF-8 text")
    return tuple(problems[:PROBLEMS_MAX])


def _damaged_rows(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return how many rows cannot be decoded, and which."""
    keys = dict(connection.execute("SELECT id, key FROM series").fetchall())
    names = [
        f"table {table}: {one_line(str(keys.get(series_id, 'no series')))} at {time_ns} ns"
        for table, _, series_id, time_ns, _ in undecodable(connection)
    ]
    if not names:
        return ()
    words = f"the fields of {counted(len(names), 'row')} cannot be parsed"
    return (words, *names[: PROBLEMS_MAX - 1])


def _is_utf8(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


# How long rows are kept: as measured, those of less frequent measurements, and hour rows.
RAW_NS: Final = 7 * DAY_NS
SAMPLED_NS: Final = 90 * DAY_NS
HOURS_NS: Final = 1095 * DAY_NS
RETENTION_EVERY_S: Final = 600.0
# A host that was off for a month completes its retention in less than 36 hours.
CATCHES_UP: Final = 24
STATE: Final = "retention"
_STEPS: Final = 50
_BEGINNING_OF_TIME_NS: Final = -(2**63)


class Retention:
    """Writes the rows of settled hours, and deletes rows past their retention.

    The wall clock may be wrong by years for a while, after a dead battery, a wrong time server or a
    mistyped date. Retention therefore uses a separate time, which is never later than the wall clock
    and advances at most CATCHES_UP times as fast as CLOCK_MONOTONIC; it is stored.

    Args:
        store: The store that this process writes.
        ledger: Stores the time of retention.
        clock: The host's clocks.
    """

    def __init__(self, store: Store, ledger: StoreLedger, clock: Clock) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        # The time before a start is unknown: one period of it counts.
        self._looked_ns = clock.monotonic_ns() - int(RETENTION_EVERY_S * NS_PER_S)

    def apply(self, outbox_s: float) -> None:
        """Apply the retention in a bounded number of steps; the next call continues.

        Args:
            outbox_s: Longest time in s that a row waits for a sink.
        """
        now_ns = self._now_ns()
        for _ in range(_STEPS):
            if self._store.settle(now_ns):
                break
        prune(self._store, keep_since(outbox_s, now_ns))

    def _now_ns(self) -> int:
        """Return the time of retention, UTC in ns."""
        now_ns, looked_ns = self._clock.time_ns(), self._clock.monotonic_ns()
        before_ns = restored(self._ledger, STATE, lambda document: int(document["time_ns"]))
        if before_ns is not None:
            now_ns = min(now_ns, before_ns + CATCHES_UP * (looked_ns - self._looked_ns))
        self._looked_ns = looked_ns
        self._ledger.put_state(STATE, {"time_ns": now_ns})
        return now_ns


def keep_since(outbox_s: float, now_ns: int) -> KeepSince:
    """Return the times since which rows are kept.

    Args:
        outbox_s: Longest time in s that a row waits for a sink.
        now_ns: Current UTC in ns.
    """
    # A retention of a thousand years exceeds the range of stored timestamps.
    outbox_ns = max(now_ns - int(outbox_s * NS_PER_S), _BEGINNING_OF_TIME_NS)
    return KeepSince(now_ns - RAW_NS, now_ns - SAMPLED_NS, now_ns - HOURS_NS, outbox_ns)


def prune(store: Store, since: KeepSince) -> None:
    """Reduce and delete rows past their retention, in a bounded number of steps.

    Other threads may write between two steps; the next call continues.

    Args:
        store: The store that this process writes.
        since: Retention limits.
    """
    for _ in range(_STEPS):
        if store.retain(since).is_done:
            break
    for _ in range(_STEPS):
        if not store.release_pages():
            return
