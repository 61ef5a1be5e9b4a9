"""A new secret in a file of its own: never shown, readable by its owner alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from agent.influx_setup.wanted import SetupError

OWNER_ONLY = 0o600


def write_new_secret(path: Path, make: Callable[[], str]) -> None:
    """Writes what `make` gives to a file that was not there.

    The file is made first: a secret that cannot be kept is never asked for.

    Args:
        path: The file.
        make: Gives the secret.

    Raises:
        SetupError: The file is there or cannot be written, or what `make` raises.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    except OSError as error:
        raise SetupError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            # Whatever the mask of this process.
            os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(make() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise SetupError(f"{path}: cannot be written ({error.strerror})") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
