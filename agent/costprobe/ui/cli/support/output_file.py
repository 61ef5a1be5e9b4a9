"""Files that a command writes for others to read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import click

MODE: Final = 0o644


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically, so that a web server never serves an incomplete one.

    Raises:
        click.ClickException: It cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                os.fchmod(stream.fileno(), MODE)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be written: {error.strerror}") from error
