"""The SQLite file of the store: schema, files and owner, locks, connections, errors.

The schema is a list of named migrations; each commits together with its record. The files on disk
belong to one owner, without rights of others, and a lock admits one daemon. One connection
writes; all others are read-only. Each error of the store has its fix.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import stat
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Final

from costprobe.adapters.host.files import open_own
from costprobe.adapters.store.hours import convert_rollups
from costprobe.core.outside import SHAPE_ERRORS, OutsideError, UnusableInputError
from costprobe.core.records import NS_PER_S

logger = logging.getLogger(__name__)

# A kind of failure: a key of HINTS.
Fault = str
HINTS: dict[Fault, str] = {
    "full": "free space on its file system",
    "read_only": "mount its file system read-write, or set store.path to a writable location",
    "denied": "run as the user that the daemon runs as, or as root, or set store.path to a file of this user",
    "locked": "another program holds it for writing: stop a second daemon or an open sqlite3 shell",
    "in_use": "stop it first (Ctrl-C, or systemctl stop costprobe), or set store.path to another file",
    "unsafe": "it must be a file of its owner alone, without links, in a folder of the same owner",
    "io": "its file system failed (quota, size limit, read-only or a failing disk): see dmesg",
    "missing": "start `costprobe run`, which creates it",
    "not_ready": "its schema is outdated: start `costprobe run`, which migrates it, and retry",
    "newer": "a newer costprobe created it: upgrade this one, or set store.path to another file",
    "foreign": "it is another program's database: set store.path to another file",
    "corrupt": "move it and its -wal to another name and restart; `sqlite3 FILE .recover` restores what it can",
    "shape": "restart the daemon, which replaces its status; if it recurs, restore a backup, or report it with this message",
    "internal": "restart the daemon; if it recurs, report it with this message",
}

_BY_SQLITE_CODE: dict[int, Fault] = {
    sqlite3.SQLITE_PERM: "denied",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CANTOPEN: "denied",
    sqlite3.SQLITE_AUTH: "denied",
}
_BY_ERRNO: dict[int, Fault] = {
    errno.ELOOP: "unsafe",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read_only",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ENOENT: "missing",
}


class StoreError(OutsideError):
    """An operation on the store failed without any effect.

    Attributes:
        operation: The operation.
        path: The store's file.
        fault: Kind of failure.
        hint: Fix, for the operator.
    """

    def __init__(self, operation: str, path: Path, fault: Fault, reason: str = "") -> None:
        self.operation = operation
        self.path = path
        self.fault: Fault = fault
        self.hint = HINTS[fault]
        because = f" ({reason})" if reason else ""
        super().__init__(f"cannot {operation} {path}{because}: {self.hint}")


@contextmanager
def translated(operation: str, path: Path) -> Iterator[None]:
    """Translate errors of SQLite, of the system, and of stored documents to StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(operation, path, _fault_of(error, path), str(error)) from error
    except OSError as error:
        fault = _BY_ERRNO.get(error.errno or 0, "io")
        raise StoreError(operation, path, fault, error.strerror or str(error)) from error
    except UnusableInputError as error:
        raise StoreError(operation, path, "corrupt", f"a document in it: {error}") from error


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Translate what the use of a document raises if it has another shape than expected.

    Only the use of documents belongs in it: the errors are those of a bug, too.

    Args:
        path: The store's file.

    Raises:
        StoreError: Of the kind `shape`.
    """
    try:
        yield
    except SHAPE_ERRORS as error:
        *_, place = traceback.extract_tb(error.__traceback__)
        where = f"{Path(place.filename).name}:{place.lineno}"
        wrong = f"a document in it has an unexpected shape: {type(error).__name__}: {error}"
        raise StoreError("read", path, "shape", f"{wrong}, {where}") from error


def _fault_of(error: sqlite3.Error, path: Path) -> Fault:
    code = getattr(error, "sqlite_errorcode", None)
    fault = _BY_SQLITE_CODE.get(code & 0xFF, "internal") if code is not None else "internal"
    # On a read-only file system SQLite reports only that it cannot open its log.
    return "read_only" if fault == "denied" and _is_mounted_read_only(path) else fault


def _is_mounted_read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False


APPLICATION_ID = 0x43505242  # "CPRB", as `file` and SQLite show it


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        name: Recorded in the store; never changed after a release.
        statements: SQL, one statement each, or functions, run in one transaction with the record.
    """

    name: str
    statements: tuple[str | Callable[[sqlite3.Connection], None], ...]


_TRIGGER: Final = "late_rows"
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
            f"""CREATE TRIGGER {_TRIGGER} AFTER INSERT ON points BEGIN
                DELETE FROM summaries WHERE series_id = new.series_id
                    AND kind IN ('sums', 'load', 'rows')
                    AND time_ns > new.time_ns - {4200 * NS_PER_S}
                    AND time_ns <= new.time_ns + {600 * NS_PER_S};
            END""",  # noqa: S608 - literals
        ),
    ),
    Migration(
        "0006 names that devices had",
        (
            # Sinks may have received rows under the key of their time: those up to a seq keep it.
            """CREATE TABLE former_keys (
                series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
                until_seq INTEGER NOT NULL,
                key TEXT NOT NULL,
                PRIMARY KEY (series_id, until_seq)
            ) WITHOUT ROWID""",
        ),
    ),
    Migration(
        "0007 hours in the form of rows",
        (
            # With row ids: without them rows of over 1 kB take a page each.
            """CREATE TABLE hours (
                series_id INTEGER NOT NULL REFERENCES series (id) ON DELETE CASCADE,
                time_ns INTEGER NOT NULL,
                newest_ns INTEGER NOT NULL,
                rows INTEGER NOT NULL,
                step_ns INTEGER NOT NULL,
                is_reduced INTEGER NOT NULL,
                fields TEXT NOT NULL,
                load BLOB,
                UNIQUE (series_id, time_ns)
            )""",
            "CREATE TABLE set_aside (line TEXT NOT NULL)",
            convert_rollups,
            f"DROP TRIGGER {_TRIGGER}",
            "DROP TABLE summaries",
            "DROP TABLE rollups_1m",
            "DROP TABLE rollups_1h",
            "DROP TABLE layouts",
            # An hour row beside its rows is of all of them: a late row makes it wrong.
            # Ten minutes around the hour, because a row begins before its time.
            f"""CREATE TRIGGER {_TRIGGER} AFTER INSERT ON points BEGIN
                DELETE FROM hours WHERE series_id = new.series_id AND NOT is_reduced
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
    # A view may have endless rows, or be computed by code of whoever wrote the file.
    other = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'view' OR type = 'trigger' AND name <> ?"
        " OR type = 'table' AND sql NOT LIKE 'CREATE TABLE%'",
        (_TRIGGER,),
    ).fetchone()
    if other is not None:
        raise StoreError("open", path, "corrupt", f"{other[0]!r} in it is no table of costprobe")
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
    if recorded(connection, path) and missing(connection, path, migrations):
        logger.info("%s: is of an earlier version; migrating it may take minutes", path)
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
        if isinstance(statement, str):
            connection.execute(statement)
        else:
            statement(connection)
    connection.execute(
        "INSERT INTO migrations (name, applied_ns) VALUES (?, ?)", (migration.name, time_ns)
    )


_ROOT: Final = 0
_NEW_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_GROUP_FILE_MODE: Final = 0o640
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
# Children that a killed daemon had just forked hold the lock until they have started their program.
LOCK_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05
_PID_BYTES: Final = 20


def check_files(path: Path, operation: str, *, writes: bool = False) -> None:
    """Check that a store and SQLite's files beside it are regular files of one owner.

    SQLite follows links, and deletes the files that a crafted journal names. Root therefore opens
    only files of root in a folder of root.

    Args:
        path: The store.
        operation: What is done, for the error.
        writes: Whether it is written: then no other user may have left a log or a journal beside it.

    Raises:
        StoreError: A file is a link, has several names, or others own it or may write it.
    """
    is_root = os.geteuid() == _ROOT
    folder = _found(path.parent)
    if is_root and folder is not None and folder.st_uid != _ROOT:
        raise _unsafe(operation, path, _not_root(path.parent, folder.st_uid))
    for suffix in _SUFFIXES:
        file = Path(f"{path}{suffix}")
        found = _found(file, follow=False)
        if found is None:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise _unsafe(operation, path, f"{file.name} is a link, or no regular file")
        if found.st_nlink > 1:
            raise _unsafe(operation, path, f"{file.name} is a hard link to another file")
        if found.st_mode & stat.S_IWOTH:
            raise _unsafe(operation, path, f"everyone may write {file.name}: chmod o-w")
        if is_root and found.st_uid != _ROOT:
            raise _unsafe(operation, path, _not_root(file, found.st_uid))
        if writes and suffix and found.st_uid not in {os.geteuid(), _ROOT}:
            raise _unsafe(operation, path, f"{file.name} belongs to user {found.st_uid}")


def prepare(path: Path) -> None:
    """Create the folder of a store with mode 0700, and take the rights of others from its files.

    A folder that exists keeps its mode, because other programs may use it.

    Raises:
        OSError: The folder cannot be created or read.
        StoreError: Others may write in the folder.
    """
    path.parent.mkdir(mode=_NEW_FOLDER_MODE, parents=True, exist_ok=True)
    folder = path.parent.stat()
    fix = "take the right from them (chmod), or name a new folder in store.path, which is created"
    if folder.st_mode & stat.S_IWOTH:
        raise _unsafe("open", path, f"everyone may write in {path.parent}; {fix}")
    is_root = os.geteuid() == _ROOT
    if is_root and folder.st_mode & stat.S_IWGRP and folder.st_gid != _ROOT:
        raise _unsafe("open", path, f"group {folder.st_gid} may write in {path.parent}; {fix}")
    for suffix in _SUFFIXES:
        _tighten(Path(f"{path}{suffix}"), _file_mode(path))


def _file_mode(path: Path) -> int:
    """Return the mode of the files: a folder that only owner and group may enter is of one service."""
    is_closed = not path.parent.stat().st_mode & (stat.S_IRWXO | stat.S_IWGRP)
    return _GROUP_FILE_MODE if is_closed else _FILE_MODE


class StoreLock:
    """The exclusive right to run a daemon on a store; the kernel takes it from a process that dies.

    The lock is on a file of its own beside the store: SQLite's own locks on the store come and go.

    Args:
        path: The store.
        timeout_s: Longest wait for another process that is ending.

    Raises:
        StoreError: `in_use`: another process holds it; else the file cannot be opened.
    """

    def __init__(self, path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._file = Path(f"{path}.lock")
        with translated("lock", path):
            self._handle: int | None = open_own(self._file)
            try:
                self._take(path, time.monotonic() + timeout_s)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Release the lock; may be called twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _take(self, path: Path, ends_s: float) -> None:
        handle = self._handle
        while handle is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= ends_s:
                    holder = os.pread(handle, _PID_BYTES, 0).decode("ascii", "replace").strip()
                    reason = f"another costprobe, process {holder or 'unknown'}, is using it"
                    raise StoreError("open", path, "in_use", reason) from None
                time.sleep(_POLL_S)
        if handle is not None:
            # For the message above only; a full disk is no reason to stop.
            with suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _found(path: Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _tighten(file: Path, allowed: int) -> None:
    """Take the rights of others from a file of ours.

    It is not opened for reading: closing it would release the POSIX locks of SQLite's connections.
    """
    with suppress(FileNotFoundError):
        handle = os.open(file, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            mode = stat.S_IMODE(found.st_mode)
            is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if is_ours and found.st_nlink == 1 and mode & ~allowed:
                Path(f"/proc/self/fd/{handle}").chmod(mode & allowed)
        finally:
            os.close(handle)


def _not_root(path: Path, uid: int) -> str:
    return f"root does not open {path}, which belongs to user {uid}: use sudo --user='#{uid}'"


def _unsafe(operation: str, path: Path, reason: str) -> StoreError:
    return StoreError(operation, path, "unsafe", reason)


BUSY_TIMEOUT_MS = 5000
WAL_BYTES_KEPT = 16 * 1024 * 1024
VALUE_BYTES_MAX = 16 * 1024 * 1024
# A damaged text must not end the reading of all rows after it; `store check` reports it.
_TEXT: Final = partial(str, encoding="utf-8", errors="replace")


class Database:
    """One SQLite connection shared by several threads under a lock.

    Args:
        path: The file.
        connection: In autocommit mode, usable from any thread.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = RLock()
        self._inode = path.stat().st_ino

    @contextmanager
    def transaction(self, operation: str) -> Iterator[sqlite3.Connection]:
        """Run a transaction: committed and durable when the block ends, else rolled back.

        Raises:
            StoreError: The transaction failed and was rolled back.
        """
        with self._lock, translated(operation, self.path):
            self._check_file(operation)
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _check_file(self, operation: str) -> None:
        """Check that the path still names the open file: SQLite would write to a deleted one.

        Raises:
            StoreError: It was deleted, replaced or truncated.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            status = None
        if status is None or status.st_ino != self._inode:
            problem = "the file was deleted or replaced while open"
            raise StoreError(operation, self.path, "internal", problem)
        if status.st_size == 0:
            problem = "the file was truncated while open"
            raise StoreError(operation, self.path, "corrupt", problem)

    @contextmanager
    def reading(self, operation: str) -> Iterator[sqlite3.Connection]:
        """Provide the connection for a query whose rows are all fetched within the block.

        Raises:
            StoreError: It could not be read.
        """
        with self._lock, translated(operation, self.path):
            yield self._connection

    @contextmanager
    def snapshot(self, operation: str) -> Iterator[sqlite3.Connection]:
        """Provide the connection for queries that all see one snapshot of the file.

        Keep it short: until the block ends, the write-ahead log cannot be checkpointed.

        Raises:
            StoreError: It could not be read.
        """
        with self._lock, translated(operation, self.path):
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def limit_cache(self, kilobytes: int) -> None:
        """Limit the page cache."""
        with self._lock:
            self._connection.execute(f"PRAGMA cache_size = -{kilobytes}")

    def close(self) -> None:
        """Close the file; the last connection checkpoints the write-ahead log."""
        with self._lock, translated("close", self.path):
            self._connection.close()


def open_writer(path: Path, time_ns: int, busy_timeout_ms: int, *, alone: bool = False) -> Database:
    """Open the file for the one writer; create it if absent, and migrate its schema.

    Args:
        path: The file.
        time_ns: UTC in ns, recorded with migrations.
        busy_timeout_ms: How long to wait for another program that is writing, in ms.
        alone: Whether to require and keep exclusive access.

    Raises:
        StoreError: It cannot be written, or has another schema.
    """
    with translated("open", path):
        _create(path)
        connection = _connect(path, "mode=rw", busy_timeout_ms)
        try:
            if alone:
                # Every connection to a file in WAL mode holds a lock that prevents this.
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            _configure(connection, path)
            migrate(connection, path, time_ns)
        except BaseException:
            connection.close()
            raise
        return Database(path, connection)


def open_reader(path: Path) -> Database:
    """Open the file read-only, also while a daemon writes to it.

    Raises:
        StoreError: It does not exist, is not readable, or has another schema.
    """
    with translated("read", path):
        path.stat()
        check_files(path, "read")
        try:
            connection = _connect_reader(path, "mode=ro")
        except sqlite3.OperationalError:
            # In WAL mode SQLite creates an index file even for reading. Where it cannot (a read-only
            # directory), the file alone is complete if no process has it open, which an absent or
            # empty log shows.
            if _wal_bytes(path) > 0:
                raise
            connection = _connect_reader(path, "mode=ro&immutable=1")
        return Database(path, connection)


def size_bytes(path: Path) -> int:
    """Return the size of the store on disk in bytes, log included."""
    return sum(_size(Path(f"{path}{suffix}")) for suffix in ("", "-wal", "-shm"))


def _wal_bytes(path: Path) -> int:
    return _size(Path(f"{path}-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _create(path: Path) -> None:
    """Create a store without tables that others cannot read: SQLite would create a readable one.

    The file appears with its first page, so that an empty file is a truncated store.
    """
    prepare(path)
    # An existing file is not opened here: closing it would release the POSIX locks that other
    # connections of this process hold.
    check_files(path, "open", writes=True)
    if path.exists():
        return
    made = path.with_name(f"{path.name}.new")
    made.unlink(missing_ok=True)
    try:
        os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, _file_mode(path)))
        with closing(_connect(made, "mode=rw", BUSY_TIMEOUT_MS)) as connection:
            # A journal left by a kill would be applied to the next file of this name.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
        # Not a hard link: a store with two names is refused, and a kill could leave both.
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)
    synchronize(path.parent)


def synchronize(path: Path) -> None:
    """Write a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _connect(path: Path, query: str, busy_timeout_ms: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = _TEXT
    # A damaged file could name a value of a gigabyte.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
    return connection


def _connect_reader(path: Path, query: str) -> sqlite3.Connection:
    connection = _connect(path, query, BUSY_TIMEOUT_MS)
    try:
        connection.execute("PRAGMA query_only = ON")
        if missing(connection, path, MIGRATIONS):
            raise StoreError("read", path, "not_ready")  # noqa: TRY301 - the connection is closed below
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    missing(connection, path, MIGRATIONS)  # checked before a file of another program is changed
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError("open", path, "io", "WAL mode needs a local file system")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
