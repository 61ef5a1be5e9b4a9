"""Types of options: instants ("24h" ago, or a date and time), durations, numbers and labels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import click

from costprobe.core.periods import parse_moment_ns
from costprobe.core.units import parse_duration_s

_Value = TypeVar("_Value")


class Parsed(click.ParamType[_Value], Generic[_Value]):
    """A value that a function reads from its text.

    Args:
        name: Name of the type in the help.
        parse: Returns the value; its ValueError is the error of the option.
        metavar: What the help shows; None for the name.
    """

    def __init__(
        self, name: str, parse: Callable[[str], _Value], metavar: str | None = None
    ) -> None:
        self.name = name
        self._parse = parse
        self._metavar = metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's signature
        """Return what the help shows."""
        return self._metavar

    def convert(
        self, value: str | _Value, param: click.Parameter | None, ctx: click.Context | None
    ) -> _Value:
        """Return the value; click also passes one that was converted before."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


# UTC in ns: a duration before now ("24h") or ISO 8601 ("2026-01-31T12:00").
MOMENT = Parsed("moment", lambda text: parse_moment_ns(text, time.time_ns()))
# A duration in s, with its unit: "2h", "50ms".
TIMESPAN = Parsed("duration", parse_duration_s)
TIMESPAN_MS = Parsed("duration", lambda text: 1000 * parse_duration_s(text))


class FiniteRange(click.FloatRange):
    """A number in a range; "nan" and "inf", which Python also reads, are none."""

    name = "number"

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type] # as text, too
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def _share(text: str) -> float:
    number, sign, rest = text.partition("%")
    share = math.nan
    with suppress(ValueError):
        share = float(number) / 100
    if not sign or rest or not 0 <= share < math.inf:
        raise ValueError(f'{text!r}: write a percentage, such as "5%"')
    return share


def _label(text: str) -> tuple[str, str]:
    name, equals, wanted = text.partition("=")
    if not name or not equals or not wanted:
        raise ValueError(f"{text!r}: write NAME=VALUE, such as team=search")
    return name, wanted


# A share as a percentage: 0.05 of "5%".
PERCENT = Parsed("percent", _share)
# A label and its value.
LABEL_VALUE = Parsed("name=value", _label)


_Decorated = TypeVar("_Decorated", bound="Callable[..., Any] | click.Command")


def since_option(default: str | int) -> Callable[[_Decorated], _Decorated]:
    """Return the option --since, the start of a period as UTC ns.

    Args:
        default: What it is otherwise, as text; a UTC ns is not shown.
    """
    return click.option(
        "--since",
        "since_ns",
        type=MOMENT,
        default=default,
        show_default=isinstance(default, str),
        help='Start: "7d" ago, or a date.',
    )


UNTIL_OPTION = click.option(
    "--until", "until_ns", type=MOMENT, help='End: "1h" ago, or a date (default: now).'
)
# Read by the main group, which then runs the command of that name for all hosts.
FLEET_OPTION = click.option(
    "--fleet",
    is_flag=True,
    expose_value=False,
    help="Ask the database of [fleet] about all hosts; options: --fleet --help.",
)
LABEL = click.option(
    "--label",
    "labels",
    type=LABEL_VALUE,
    multiple=True,
    help="Only rows with this label of a service, probe or host, such as team=search; may be repeated.",
)
