"""What the commands of `costprobe fleet` share: their options, the period and the database."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, TypeVar

import click
from pydantic import ConfigDict

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.databases.reader import Throttled
from costprobe.adapters.http.errors import RetryLater
from costprobe.core.clock import SystemClock
from costprobe.core.config.load import ConfigError, load_file
from costprobe.core.config.model import RootSection
from costprobe.core.records import NS_PER_S
from costprobe.fleet.answers import (
    ARRIVED_NS,
    FleetAnswers,
    FleetPeriod,
    fleet_period,
)
from costprobe.fleet.settings import FleetSection
from costprobe.ui.cli.support.option_types import LABEL, Moment
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import Place, bad_input, check_access
from costprobe.ui.text import local

_LABEL_PREFIX: Final = "label:"
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class FleetFile(RootSection):
    """A configuration file of which only [fleet] is used: the other sections take long to import."""

    model_config = ConfigDict(extra="ignore")

    fleet: FleetSection | None = None


class FleetKey(click.ParamType[str]):
    """What an answer is divided by: one of some names, or `label:NAME`.

    Args:
        names: The names.
    """

    name = "key"

    def __init__(self, *names: str) -> None:
        self._names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        """Return the choices for the help."""
        return f"[{'|'.join((*self._names, f'{_LABEL_PREFIX}NAME'))}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or that of the label."""
        if value in self._names:
            return value
        label = value.removeprefix(_LABEL_PREFIX)
        if label == value or not _LABEL_NAME.fullmatch(label):
            names = "".join(f"{name}, " for name in self._names)
            choices = f"{names}{'or ' if names else ''}{_LABEL_PREFIX}NAME"
            self.fail(f"{value!r}: write {choices}", param, ctx)
        return label


def period_options(since: str) -> Callable[[_Function], _Function]:
    """Return the options that all commands share.

    Args:
        since: Default of `--since`.
    """

    def decorated(function: _Function) -> _Function:
        for option in (
            click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            LABEL,
            click.option(
                "--until", "until_ns", type=Moment(), help='"1h" or a date (default: a minute ago).'
            ),
            click.option(
                "--since",
                "since_ns",
                type=Moment(),
                default=since,
                show_default=True,
                help='"7d" or a date.',
            ),
        ):
            function = option(function)
        return function

    return decorated


def fleet_config(given_path: str | None) -> FleetSection:
    """Return the section [fleet].

    Args:
        given_path: The file in the command's options.

    Raises:
        click.ClickException: There is none, or it has an error (exit code 2).
    """
    place = Place(given_path)
    config: FleetSection | None = None
    if place.path is not None:
        check_access(place.path)
        with suppress(ConfigError):
            config = load_file(place.path, FleetFile).fleet
    if config is None:
        place.check()
        raise bad_input(
            "no [fleet] is configured; add url and kind of the database (docs/fleet.md)"
        )
    return config


@contextmanager
def fleet_answers(
    given_path: str | None,
    since_ns: int,
    until_ns: int | None,
    labels: Sequence[tuple[str, str]],
    *,
    to_the_second: bool = False,
) -> Iterator[FleetAnswers]:
    """Return the configured database of the fleet, ready for questions about a period.

    Args:
        given_path: The file in the command's options.
        since_ns: UTC in ns.
        until_ns: UTC in ns; None for a minute ago.
        labels: Only rows with these tags.
        to_the_second: Whether the period ends to the second, for questions without coverage.

    Raises:
        click.ClickException: No [fleet] is configured, the period is empty (exit code 2), or the
            database does not answer.
    """
    config = fleet_config(given_path)
    now_ns = time.time_ns()
    end_ns = now_ns - ARRIVED_NS if until_ns is None else until_ns
    if since_ns >= end_ns:
        raise bad_input("--since: must be before --until")
    try:
        period = fleet_period(since_ns, end_ns, now_ns)
    except ValueError as error:
        raise bad_input(f"--since: {error}") from error
    if to_the_second:
        period = FleetPeriod(period.start_ns, end_ns // NS_PER_S * NS_PER_S, 1, now_ns)
    # Answers are many objects without a cycle, which the garbage collector would scan repeatedly.
    gc.disable()
    with closing(fleet_reader(config, SystemClock())) as reader:
        try:
            yield FleetAnswers(reader, period, dict(labels))
        except Throttled as error:
            raise click.ClickException(error.reason) from error
        except RetryLater as error:
            raise click.ClickException(f"{error.reason}; is the database of [fleet] up?") from error
        finally:
            gc.enable()


def echo_problems(answers: FleetAnswers) -> None:
    """State on standard error why an answer is partial."""
    for problem in answers.problems:
        echo(f"partial: {problem}", "note", err=True)


def require_rows(found: Collection[object], answers: FleetAnswers, rows: str = "rows") -> None:
    """Fail if there is nothing to show.

    Args:
        found: What is shown.
        answers: The database, and the period.
        rows: What there is none of.
    """
    if found:
        return
    labels = ", ".join(f"{name}={value}" for name, value in answers.labels.items())
    hint = "check --label" if labels else "do the hosts push to the database of [fleet]?"
    raise click.ClickException(
        f"no {rows}{f' with {labels}' if labels else ''} since {local(answers.period.start_ns)};"
        f" {next(iter(answers.problems), hint)}"
    )
