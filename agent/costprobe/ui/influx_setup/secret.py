"""Writing a new secret to a file that only its owner can read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from costprobe.ui.influx_setup.steps import SetupError

OWNER_ONLY = 0o600


def write_new_secret(path: Path, create: Callable[[], str]) -> None:
    """Write a secret to a new file.

    The file is created first, so that no secret is created that cannot be stored.

    Args:
        path: The file.
        create: Creates the secret.

    Raises:
        SetupError: The file exists or cannot be written, or `create` failed.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    except OSError as error:
        raise SetupError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder that exists and is"
            " yours with --secret-file, and in the [[sink]]"
        ) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            # Independent of the umask.
            os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(create() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise SetupError(f"{path}: cannot be written ({error.strerror})") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
