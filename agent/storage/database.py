"""The store's file: how it is made, opened for the one writer, and opened beside it to read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from agent.storage.errors import StoreError, translated
from agent.storage.migrations import MIGRATIONS, migrate, missing

BUSY_TIMEOUT_MS = 5000
WAL_BYTES_KEPT = 16 * 1024 * 1024
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


class Database:
    """One SQLite connection that several threads take in turns.

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
        """All or nothing: committed and on the disk when the block ends, else undone.

        Raises:
            StoreError: It could not be done; nothing was.
        """
        with self._lock, translated(operation, self.path):
            # SQLite would go on writing into a file that has no name any more.
            if not self.path.exists() or self.path.stat().st_ino != self._inode:
                raise StoreError(operation, self.path, "internal", "it was taken away while open")
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self, operation: str) -> Iterator[sqlite3.Connection]:
        """The connection for a query whose rows are all fetched before the block ends.

        Raises:
            StoreError: It could not be read.
        """
        with self._lock, translated(operation, self.path):
            yield self._connection

    @contextmanager
    def snapshot(self, operation: str) -> Iterator[sqlite3.Connection]:
        """The connection for a few queries that all see the file as it is at one moment.

        For short answers: until the block ends, the write-ahead log is not folded back.

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
        """Keeps no more of the file than so much in memory."""
        with self._lock:
            self._connection.execute(f"PRAGMA cache_size = -{kilobytes}")

    def close(self) -> None:
        """Closes the file; the last one to close it folds the write-ahead log into it."""
        with self._lock, translated("close", self.path):
            self._connection.close()


def open_writer(path: Path, time_ns: int, busy_timeout_ms: int, *, alone: bool = False) -> Database:
    """Opens the file for the one writer; makes it, and brings its schema up to date.

    Args:
        path: The file.
        time_ns: UTC in ns, for the record.
        busy_timeout_ms: How long to wait for another program that is writing, in ms.
        alone: Whether to take it only if nobody has it open, and to keep others out.

    Raises:
        StoreError: It cannot be written, or is not this version's to write.
    """
    with translated("open", path):
        _create(path)
        connection = _connect(path, "mode=rw", busy_timeout_ms)
        try:
            if alone:
                # Whoever has a file with a write-ahead log open holds a lock that forbids this.
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            _configure(connection, path)
            migrate(connection, path, time_ns)
        except BaseException:
            connection.close()
            raise
        return Database(path, connection)


def open_reader(path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Database:
    """Opens the file read-only, whether or not a daemon is writing it.

    Raises:
        StoreError: There is none, or this user may not read it, or its schema is not this one's.
    """
    with translated("read", path):
        path.stat()
        try:
            connection = _connect_reader(path, "mode=ro", busy_timeout_ms)
        except sqlite3.OperationalError:
            # In write-ahead mode SQLite keeps an index beside the file even to read it. Where
            # that cannot be made (a read-only directory) the file alone is the whole store if
            # nobody has it open, which an absent or empty log tells.
            if _wal_bytes(path) > 0:
                raise
            connection = _connect_reader(path, "mode=ro&immutable=1", busy_timeout_ms)
        return Database(path, connection)


def size_bytes(path: Path) -> int:
    """Bytes that the store takes on the disk, its log included."""
    return sum(_size(Path(f"{path}{suffix}")) for suffix in ("", "-wal", "-shm"))


def _wal_bytes(path: Path) -> int:
    return _size(Path(f"{path}-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _create(path: Path) -> None:
    """Makes an empty file that only its owner reads: SQLite would make one for all."""
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    # An existing file is not opened here: closing it again would drop the locks that other
    # connections of this process hold on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE))
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _connect(path: Path, query: str, busy_timeout_ms: int) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
    )


def _connect_reader(path: Path, query: str, busy_timeout_ms: int) -> sqlite3.Connection:
    connection = _connect(path, query, busy_timeout_ms)
    try:
        connection.execute("PRAGMA query_only = ON")
        if missing(connection, path, MIGRATIONS):
            raise StoreError("read", path, "not_ready")  # noqa: TRY301 - the connection is closed below
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    missing(connection, path, MIGRATIONS)  # before anything of another program's is changed
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError("open", path, "io", "its write-ahead log needs a local file system")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
