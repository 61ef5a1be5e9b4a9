"""Errors of the store, each with its fix."""

from __future__ import annotations

import errno
import os
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from costprobe.core.bounded import SHAPE_ERRORS, UnusableInputError
from costprobe.core.outside_error import OutsideError

Fault = Literal[
    "full",
    "read_only",
    "denied",
    "locked",
    "in_use",
    "unsafe",
    "io",
    "missing",
    "not_ready",
    "newer",
    "foreign",
    "corrupt",
    "shape",
    "internal",
]

HINTS: dict[Fault, str] = {
    "full": "free space on its file system",
    "read_only": "mount its file system read-write, or set store.path to a writable location",
    "denied": "run as the user that the daemon runs as, or as root",
    "locked": "another program holds it for writing: stop a second daemon or an open sqlite3 shell",
    "in_use": "stop it first (systemctl stop costprobe), or set store.path to another file",
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
