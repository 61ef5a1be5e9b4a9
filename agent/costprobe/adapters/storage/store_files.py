"""The files of a store on disk: whose they are, their modes, and the lock of the one daemon."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from costprobe.adapters.storage.errors import StoreError, translated
from costprobe.adapters.system.safe_open import open_own

logger = logging.getLogger(__name__)

_ROOT: Final = 0
_NEW_FOLDER_MODE: Final = 0o700
# The group is the service's; in demo mode only the owner can search the folder.
_FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
_FOR_ALL_USERS: Final = frozenset(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")))  # noqa: S108 - refused
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
    """Create the folder of a store, and take the rights of others from folder and file.

    A folder of root with files of other programs, such as /etc, keeps its mode: they may need it.

    Raises:
        OSError: The folder cannot be created or changed.
        StoreError: Others may write in it, and it is not this user's, or keeps its mode.
    """
    path.parent.mkdir(mode=_NEW_FOLDER_MODE, parents=True, exist_ok=True)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = os.fstat(handle)
        mode = stat.S_IMODE(folder.st_mode)
        is_ours = folder.st_uid == os.geteuid()
        is_kept = os.geteuid() == _ROOT and _holds_others(path)
        if mode & stat.S_IWOTH and (
            not is_ours or is_kept or (mode & stat.S_ISVTX and _is_shared(path))
        ):
            raise _unsafe("open", path, f"everyone may write in {path.parent}")
        if is_kept and mode & stat.S_IWGRP and folder.st_gid != _ROOT:
            raise _unsafe("open", path, f"group {folder.st_gid} may write in {path.parent}")
        if is_ours and not is_kept and mode & 0o777 & ~_FOLDER_MODE:
            os.fchmod(handle, mode & ~0o777 | mode & _FOLDER_MODE)
            logger.info("%s: mode %o, was %o", path.parent, mode & _FOLDER_MODE, mode & 0o777)
    finally:
        os.close(handle)
    for suffix in _SUFFIXES:
        _tighten(Path(f"{path}{suffix}"))


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


def _is_shared(path: Path) -> bool:
    """Return whether a sticky folder is for all users, unlike a file system of the store's own."""
    folder = path.parent
    others = (entry.lstat().st_uid != os.geteuid() for entry in folder.iterdir())
    return folder.resolve() in _FOR_ALL_USERS or any(others)


def _holds_others(path: Path) -> bool:
    """Return whether the folder of a store holds anything else."""
    return any(not entry.name.startswith(path.name) for entry in path.parent.iterdir())


def _found(path: Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _tighten(file: Path) -> None:
    """Take the rights of others from a file of ours.

    It is not opened for reading: closing it would release the POSIX locks of SQLite's connections.
    """
    with suppress(FileNotFoundError):
        handle = os.open(file, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            mode = stat.S_IMODE(found.st_mode)
            is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if is_ours and found.st_nlink == 1 and mode & ~_FILE_MODE:
                Path(f"/proc/self/fd/{handle}").chmod(mode & _FILE_MODE)
        finally:
            os.close(handle)


def _not_root(path: Path, uid: int) -> str:
    return f"root does not open {path}, which belongs to user {uid}: use sudo --user='#{uid}'"


def _unsafe(operation: str, path: Path, reason: str) -> StoreError:
    return StoreError(operation, path, "unsafe", reason)
