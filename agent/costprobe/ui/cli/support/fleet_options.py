"""What the commands of `costprobe fleet` share: their options, the period and the database."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import wraps
from typing import Any, Final, NamedTuple

import click
from pydantic import ConfigDict

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.databases.reader import Throttled
from costprobe.adapters.http.errors import RetryLater
from costprobe.core.clock import SystemClock
from costprobe.core.config.load import ConfigError, load_file
from costprobe.core.config.model import RootSection
from costprobe.core.records import NS_PER_S
from costprobe.fleet.answers import ARRIVED_NS, FleetAnswers, FleetPeriod, fleet_period
from costprobe.fleet.settings import FleetSection
from costprobe.ui.cli.support.option_types import LABEL, MOMENT, Parsed
from costprobe.ui.cli.support.output import Role, echo, echo_file, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, check_access, span_of
from costprobe.ui.fleet_documents import head_of
from costprobe.ui.tables import csv_lines
from costprobe.ui.text import local

_LABEL_PREFIX: Final = "label:"
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class FleetFile(RootSection):
    """A configuration file of which only [fleet] is used: the other sections take long to import."""

    model_config = ConfigDict(extra="ignore")

    fleet: FleetSection | None = None


# Names of keys that are not those of their tags, which may be a label's.
_TAGS: Final = {"group": "service_group"}


def fleet_key(*names: str) -> Parsed[str]:
    """Return the type of what an answer is divided by: one of some names, or `label:NAME`."""

    def parse(text: str) -> str:
        label = text.removeprefix(_LABEL_PREFIX)
        if text in names and text in _TAGS:
            return _TAGS[text]
        if text in names or (label != text and _LABEL_NAME.fullmatch(label)):
            return label
        listed = "".join(f"{name}, " for name in names)
        choices = f"{listed}{'or ' if names else ''}{_LABEL_PREFIX}NAME"
        raise ValueError(f"{text!r}: write {choices}")

    return Parsed("key", parse, f"[{'|'.join((*names, f'{_LABEL_PREFIX}NAME'))}]")


class FleetOptions(NamedTuple):
    """The options that the questions to a fleet share.

    Attributes:
        config: The file in the command's options; None for the usual one.
        labels: Only rows with these tags.
        as_json: Whether the answer is JSON.
        as_csv: Whether it is CSV.
        since_ns: UTC in ns.
        until_ns: UTC in ns; None for a minute ago.
    """

    config: str | None
    labels: Sequence[tuple[str, str]]
    as_json: bool
    as_csv: bool
    since_ns: int = 0
    until_ns: int | None = None

    def answers(self, *, to_the_second: bool = False) -> AbstractContextManager[FleetAnswers]:
        """Return the database, ready for questions about the period; see `fleet_answers`."""
        return fleet_answers(
            self.config, self.since_ns, self.until_ns, self.labels, to_the_second=to_the_second
        )

    def echo(
        self,
        answers: FleetAnswers,
        document: Mapping[str, Any],
        table: tuple[Sequence[str], Iterable[Mapping[str, Any]]],
        lines: Iterable[str],
        words: Iterable[tuple[str, Role]] = (),
        *,
        shown: Collection[object],
        wanted: str = "rows",
    ) -> None:
        """Print an answer.

        Args:
            answers: The database, and the period.
            document: The answer as JSON, without the keys of all answers.
            table: Heads and rows of CSV; other keys of a row are left out, and those it lacks are empty.
            lines: The answer for people; it is not iterated over for a program.
            words: Colours of lines by words in them.
            shown: What people are shown; without any of it the command fails, see `require_rows`.
            wanted: What there is none of then.
        """
        if self.as_json:
            echo_json({**head_of(answers), **document})
            return
        if self.as_csv:
            echo_file(csv_lines(*table))
        else:
            require_rows(shown, answers, wanted)
            echo_lines(lines, words)
        echo_problems(answers)


def fleet_options(since: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the shared options, and passes them as FleetOptions.

    Args:
        since: Default of `--since`; None for a command without a period of its own.
    """
    options = [
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        LABEL,
    ]
    if since is not None:
        options += [
            click.option(
                "--until", "until_ns", type=MOMENT, help='"1h" or a date (default: a minute ago).'
            ),
            click.option(
                "--since",
                "since_ns",
                type=MOMENT,
                default=since,
                show_default=True,
                help='"7d" or a date.',
            ),
        ]

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def called(config: str | None, **given: Any) -> None:  # noqa: ANN401 - options of any type
            shared = {name: given.pop(name) for name in FleetOptions._fields if name in given}
            function(FleetOptions(config, **shared), **given)

        command: Callable[..., None] = click.pass_obj(called)
        for option in options:
            command = option(command)
        return command

    return decorated


def fleet_config(given_path: str | None) -> FleetSection:
    """Return the section [fleet].

    Args:
        given_path: The file in the command's options.

    Raises:
        click.ClickException: There is none, or it has an error (exit code 2).
    """
    place = Settings(given_path)
    config: FleetSection | None = None
    if place.path is not None:
        check_access(place.path)
        with suppress(ConfigError):
            config = load_file(place.path, FleetFile).fleet
    if config is None:
        place.check()
        raise no_fleet(place)
    return config


def no_fleet(place: Settings) -> click.ClickException:
    """Return the error of a configuration without a fleet."""
    where = "there is no configuration file" if place.path is None else str(place.path)
    return bad_input(
        f"no [fleet] is configured ({where}); add url and kind of the database (docs/fleet.md)"
    )


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
    span_of(since_ns, end_ns)
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
