"""The configuration of a command, read when it is used, its store, and access errors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costprobe.core.config.location import SYSTEM_PATH, config_path, store_of
from costprobe.core.outside import UnusableInputError
from costprobe.core.periods import TimeSpan
from costprobe.ui.text import local

if TYPE_CHECKING:  # the imports take longer than the commands that need neither
    from costprobe.adapters.store.database import StoreError
    from costprobe.adapters.store.read import StoreReader
    from costprobe.configuration import Config

# Exit codes but 0; click's own errors of the command line have that of bad input.
FAILED = click.ClickException.exit_code
BAD_INPUT = click.UsageError.exit_code
NOT_RUNNING = 3
EXIT_CODES = {
    0: "done",
    FAILED: "it failed, a check found something, or there is nothing to show",
    BAD_INPUT: "the command line, the configuration or the store must be changed first",
    NOT_RUNNING: "no daemon is running",
}
# Faults of a store that the user can correct; the others are failures.
_CORRECTABLE = frozenset(
    {"denied", "foreign", "in_use", "locked", "missing", "newer", "not_ready", "shape", "unsafe"}
)


class BadInputError(click.ClickException):
    """What was typed or configured cannot be used."""

    exit_code = BAD_INPUT


class NotRunningError(click.ClickException):
    """No daemon is running, so that the present state is not known."""

    exit_code = NOT_RUNNING


def bad_input(message: str) -> click.ClickException:
    """Return an error in what was typed or configured, which ends the command with exit code 2."""
    return BadInputError(message)


def unusable_store(error: StoreError) -> click.ClickException:
    """Return the error of a command whose store cannot be used."""
    kind = BadInputError if error.fault in _CORRECTABLE else click.ClickException
    return kind(str(error))


def span_of(since_ns: int, until_ns: int | None) -> TimeSpan:
    """Return the period of --since and --until, until now by default.

    Raises:
        click.ClickException: With exit code 2; it is empty.
    """
    until_ns = time.time_ns() if until_ns is None else until_ns
    if since_ns >= until_ns:
        raise bad_input("--since: must be before --until")
    return TimeSpan(since_ns, until_ns)


def nothing_since(rows: str, since_ns: int) -> click.ClickException:
    """Return the error of a command without a row to show."""
    return click.ClickException(f"no {rows} since {local(since_ns)}; is the daemon running?")


def access_denied(path: Path) -> click.ClickException:
    """Return the error for a file of the service that this user cannot read."""
    return bad_input(
        f"{path}: permission denied; use sudo, or join the group costprobe and log in again:"
        ' sudo usermod --append --groups costprobe "$USER"'
    )


def check_access(path: Path) -> None:
    """Check that this user can read the service's configuration.

    Raises:
        click.ClickException: With exit code 2; the message names the group to join.
    """
    if path == SYSTEM_PATH and path.exists() and not os.access(path, os.R_OK):
        raise access_denied(path)


def may_run_service() -> bool:
    """Return whether this user can read the service's configuration and write its store.

    Also True without such a file, or if it has an error, which is reported when it is loaded.
    """
    if not SYSTEM_PATH.exists():
        return True
    try:
        store = store_of(SYSTEM_PATH)
    except PermissionError:
        return False
    except (OSError, ValueError, RecursionError):
        return True
    return may_write(store)


def may_write(store: Path) -> bool:
    """Return whether this user can write a store, or create it."""
    places = [store, *store.parents]
    return os.access(next(place for place in places if os.path.exists(place)), os.W_OK)  # noqa: PTH110 - False where a folder may not be searched


class Settings:
    """The configuration that a command was called with, and its store.

    Args:
        given_path: The file in the command's options; None for the service's file, if there is one.
        demo: Ignore every file and use the configuration of demo mode.

    Attributes:
        path: The file; None in demo mode.
    """

    def __init__(self, given_path: str | None, *, demo: bool = False) -> None:
        self.path = None if demo else config_path(given_path)

    @cached_property
    def config(self) -> Config:
        """The content of the file, or the configuration of demo mode without a file.

        Raises:
            click.ClickException: With exit code 2 and every error of the file.
        """
        # Imported here, because the import takes longer than most commands.
        from costprobe.configuration import demo_config, load  # noqa: PLC0415
        from costprobe.core.config.load import ConfigError  # noqa: PLC0415

        if self.path is None:
            return demo_config()
        check_access(self.path)
        try:
            return load(self.path)
        except ConfigError as error:
            raise bad_input(str(error)) from error

    @cached_property
    def store_path(self) -> Path:
        """The configured path of the store, or the default; no other part of the file is validated."""
        if self.path is not None:
            check_access(self.path)
        try:
            return store_of(self.path)
        except (OSError, ValueError, RecursionError):
            self.check()
            raise

    def check(self) -> None:
        """Validate the whole file, if there is one.

        Raises:
            click.ClickException: With exit code 2 and every error of the file.
        """
        _ = self.config


@contextmanager
def reader_of(place: Settings) -> Iterator[StoreReader]:
    """Open the store for reading; the daemon may be writing to it.

    Raises:
        click.ClickException: It cannot be read; or the configuration has errors, which may be why.
    """
    # Imported here, because the import takes longer than the commands that need no store.
    from costprobe.adapters.store.database import StoreError  # noqa: PLC0415
    from costprobe.adapters.store.read import StoreReader  # noqa: PLC0415

    try:
        reader = StoreReader.open(place.store_path)
    except StoreError as error:
        place.check()
        if error.fault == "denied" and place.path == SYSTEM_PATH:
            raise access_denied(place.store_path) from error
        raise unusable_store(error) from error
    try:
        yield reader
    except StoreError as error:
        raise unusable_store(error) from error
    except UnusableInputError as error:
        damaged = (
            f"{place.store_path}: a row in it is damaged ({error}); check it: costprobe store check"
        )
        raise click.ClickException(damaged) from error
    finally:
        reader.close()
