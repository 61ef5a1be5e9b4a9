"""Reading files that the configuration names, without waiting for the writer of a FIFO."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return at most `max_bytes` from the start of a regular file, or of the one that a link names.

    Raises:
        OSError: It cannot be read, or is a FIFO, a device or the like, which could block forever.
    """
    with open_regular(path) as handle, os.fdopen(handle, "rb", closefd=False) as file:
        return file.read(max_bytes)


@contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """Open a regular file for reading, and close its descriptor after the block.

    Raises:
        OSError: It cannot be opened, or is a FIFO, a device or the like.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield handle
    finally:
        os.close(handle)


def check_regular(path: Path | str) -> None:
    """Check that a library may open a path: a FIFO could block it forever.

    Raises:
        OSError: It is not a regular file, or cannot be found.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a text or a path
        raise OSError(errno.EINVAL, "not a regular file", str(path))
