"""Which configuration a command works with, and where its store is."""

from __future__ import annotations

from pathlib import Path

from agent.cli.place import BAD_INPUT, BadInputError, bad_input, reader_of
from agent.config import TRY_OUT, Config
from agent.config_file import ConfigError, load
from agent.config_place import SYSTEM_STORE, config_path, default_store

__all__ = [
    "BAD_INPUT",
    "SYSTEM_STORE",
    "BadInputError",
    "Settings",
    "bad_input",
    "reader_of",
    "resolve_store",
]


class Settings:
    """The configuration a command was called with.

    Attributes:
        config: The file's content, or the try-out's where there is no file.
        path: The file; None in a try-out.
    """

    def __init__(self, named: str | None) -> None:
        self.path = config_path(named)
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
    return config.store.path if config.store.path is not None else default_store(path)
