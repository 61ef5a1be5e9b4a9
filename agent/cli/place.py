"""Where a command finds the store, without validating the configuration, and how it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from agent.config_place import config_path, default_store, named_store

if TYPE_CHECKING:  # a question that the daemon answers needs no store
    from agent.storage.reader import StoreReader

BAD_INPUT = 2


class HasStore(Protocol):
    """Says where the store is."""

    @property
    def store_path(self) -> Path:
        """Where the series are."""
        ...


class BadInputError(click.ClickException):
    """What the operator gave cannot be used."""

    exit_code = BAD_INPUT


def bad_input(message: str) -> click.ClickException:
    """An error of the operator's input: one clear text and exit code 2."""
    return BadInputError(message)


class Place:
    """The configuration file that a command was called with, and its store.

    Attributes:
        path: The file; None in a try-out.
    """

    def __init__(self, named: str | None) -> None:
        self.path = config_path(named)

    @cached_property
    def store_path(self) -> Path:
        """Where the series are: as configured, else the service's place or the user's own."""
        if self.path is None:
            return default_store(None)
        try:
            return named_store(self.path) or default_store(self.path)
        except (OSError, ValueError, RecursionError):
            self.check()
            raise

    def check(self) -> None:
        """Validates the whole file, where there is one.

        Raises:
            click.ClickException: With exit code 2 and every error of the file.
        """
        # Here, and not at the top: this is what takes its time.
        from agent.config_file import ConfigError, load  # noqa: PLC0415

        if self.path is not None:
            try:
                load(self.path)
            except ConfigError as error:
                raise bad_input(str(error)) from error


@contextmanager
def reader_of(place: HasStore) -> Iterator[StoreReader]:
    """Opens the store for reading, also while the daemon writes to it."""
    # Here, and not at the top: see `StoreReader` above.
    from agent.storage.errors import StoreError  # noqa: PLC0415
    from agent.storage.reader import StoreReader  # noqa: PLC0415

    try:
        reader = StoreReader.open(place.store_path)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    try:
        yield reader
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    finally:
        reader.close()
