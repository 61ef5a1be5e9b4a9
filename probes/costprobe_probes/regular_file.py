"""Opening a file that the configuration names, without waiting for the writer of a FIFO."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO


def open_regular(path: Path | str) -> IO[bytes]:
    """Open a regular file for reading.

    Raises:
        OSError: It cannot be opened, or is a FIFO, a device or the like.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file
