"""The configuration of a command, validated, and the path of its store."""

from __future__ import annotations

from pathlib import Path

from costprobe.configuration import Config, demo_config, load
from costprobe.core.config.load import ConfigError
from costprobe.core.config.location import SYSTEM_STORE, config_path, default_store
from costprobe.ui.cli.support.place import (
    BAD_INPUT,
    BadInputError,
    bad_input,
    check_access,
    reader_of,
)

__all__ = [
    "BAD_INPUT",
    "SYSTEM_STORE",
    "BadInputError",
    "LoadedConfig",
    "bad_input",
    "default_store",
    "reader_of",
]


class LoadedConfig:
    """The configuration a command was called with.

    Args:
        named: The file in the command's options; None for the service's file, if there is one.
        demo: Ignore every file and use the configuration of demo mode.

    Attributes:
        config: The content of the file, or the configuration of demo mode without a file.
        path: The file; None in demo mode.

    Raises:
        click.ClickException: With exit code 2 and every error of the file.
    """

    def __init__(self, given_path: str | None, *, demo: bool = False) -> None:
        self.path = None if demo else config_path(given_path)
        self.config = demo_config() if self.path is None else _loaded(self.path)

    @property
    def store_path(self) -> Path:
        """The configured path of the store, or the default of service or demo mode."""
        return self.config.store.path or default_store(self.path)


def _loaded(path: Path) -> Config:
    check_access(path)
    try:
        return load(path)
    except ConfigError as error:
        raise bad_input(str(error)) from error
