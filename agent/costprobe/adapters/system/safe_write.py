"""Writing a file of the operator completely or not at all, and never through a link."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import Final

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a new file; an incomplete one is deleted.

    Args:
        path: The file; a link of this name counts as existing, also one that leads nowhere.
        content: Its content.
        mode: Its mode, less the umask.

    Raises:
        FileExistsError: The name exists.
        OSError: It cannot be written.
    """
    handle = os.open(path, _NEW_FILE, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file in one step, in the place of an existing file or link.

    Raises:
        OSError: It cannot be written, or the name is a folder, a device or a pipe.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(fresh, content, mode)
    try:
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
