"""Which configuration a command works with, where its store is, and how it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.config import TRY_OUT, Config
from agent.config_file import SYSTEM_PATH, ConfigError, load
from agent.storage.errors import StoreError
from agent.storage.reader import StoreReader

SYSTEM_STORE = Path("/var/lib/infercost/infercost.db")
BAD_INPUT = 2


class Settings:
    """The configuration a command was called with.

    Attributes:
        config: The file's content, or the try-out's where there is no file.
        path: The file; None in a try-out.
    """

    def __init__(self, named: str | None) -> None:
        self.path = Path(named) if named else SYSTEM_PATH if SYSTEM_PATH.exists() else None
        self.config: Config = TRY_OUT
        if self.path is not None:
            try:
                self.config = load(self.path)
            except ConfigError as error:
                raise bad_input(str(error)) from error

    @property
    def store_path(self) -> Path:
        """Where the series are: as configured, else the service's place or the user's own."""
        return resolve_store(self.config, self.path)


def resolve_store(config: Config, path: Path | None) -> Path:
    """The store of a configuration: its own, the service's, or the user's in a try-out."""
    if config.store.path is not None:
        return config.store.path
    if path is not None:
        return SYSTEM_STORE
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "infercost" / "infercost.db"


class BadInputError(click.ClickException):
    """What the operator gave cannot be used."""

    exit_code = BAD_INPUT


def bad_input(message: str) -> click.ClickException:
    """An error of the operator's input: one clear text and exit code 2."""
    return BadInputError(message)


@contextmanager
def reader_of(settings: Settings) -> Iterator[StoreReader]:
    """Opens the store for reading, also while the daemon writes to it."""
    try:
        reader = StoreReader.open(settings.store_path)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    try:
        yield reader
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    finally:
        reader.close()
