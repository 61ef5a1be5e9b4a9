"""The SQLite file of the store: creation, the connection of the one writer, and read-only connections."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import Final

from costprobe.adapters.storage.errors import StoreError, translated
from costprobe.adapters.storage.migrations import MIGRATIONS, migrate, missing
from costprobe.adapters.storage.store_files import check_files, prepare

BUSY_TIMEOUT_MS = 5000
WAL_BYTES_KEPT = 16 * 1024 * 1024
VALUE_BYTES_MAX = 16 * 1024 * 1024
_FILE_MODE: Final = 0o640


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
        os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE))
        with closing(_connect(made, "mode=rw", BUSY_TIMEOUT_MS)) as connection:
            # A journal left by a kill would be applied to the next file of this name.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
        # Not a hard link: a store with two names is refused, and a kill could leave both.
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _connect(path: Path, query: str, busy_timeout_ms: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
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
