"""Opening files of our own, such as locks, in folders where others may have put a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


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
