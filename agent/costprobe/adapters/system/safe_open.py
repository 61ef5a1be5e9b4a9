"""Opening files that others may have put in place: no FIFO or device blocks, no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return at most `max_bytes` from the start of a regular file, or of the one that a link names.

    Raises:
        OSError: It cannot be read, or is a FIFO, a device or the like, which could block forever.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(max_bytes)


def check_regular(path: Path | str) -> None:
    """Check that a library may open a path: a FIFO could block it forever.

    Raises:
        OSError: It is not a regular file, or cannot be found.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a text or a path
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_own(path: Path) -> int:
    """Open a file of this user for reading and writing; create it with mode 0600 if absent.

    Returns:
        A file descriptor, which children do not inherit.

    Raises:
        OSError: It cannot be opened, is a link or no regular file, or others own it or may write it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link; delete it", str(path)) from error
        raise
    found = os.fstat(handle)
    if (
        not stat.S_ISREG(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_nlink > 1
        or found.st_mode & _WRITABLE_BY_OTHERS
    ):
        os.close(handle)
        raise OSError(errno.EPERM, "is not a file of this user alone; delete it", str(path))
    return handle
