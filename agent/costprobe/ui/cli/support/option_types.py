"""Types of options: instants ("24h" ago, or a date and time), durations, numbers and labels."""

from __future__ import annotations

import math
import time
from contextlib import suppress

import click

from costprobe.core.periods import parse_moment_ns
from costprobe.core.units import parse_duration_s


class Moment(click.ParamType[int]):
    """A UTC instant in ns: a duration before now ("24h") or ISO 8601 ("2026-01-31T12:00")."""

    name = "moment"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return UTC ns since 1970."""
        if isinstance(value, int):
            return value
        try:
            return parse_moment_ns(value, time.time_ns())
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Timespan(click.ParamType[float]):
    """A duration with its unit: "2h", "50ms".

    Args:
        per_s: Units of the result in a second: 1 for s, 1000 for ms.
    """

    name = "duration"

    def __init__(self, per_s: float = 1.0) -> None:
        self._per_s = per_s

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_duration_s(value) * self._per_s
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FiniteRange(click.FloatRange):
    """A number in a range; "nan" and "inf", which Python also reads, are none."""

    name = "number"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type] # as text, too
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Percent(click.ParamType[float]):
    """A share as a percentage: "5%"."""

    name = "percent"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share: 0.05."""
        if isinstance(value, float):
            return value
        number, sign, rest = value.partition("%")
        share = math.nan
        with suppress(ValueError):
            share = float(number) / 100
        if not sign or rest or not 0 <= share < math.inf:
            self.fail(f'{value!r}: write a percentage, such as "5%"', param, ctx)
        return share


class LabelValue(click.ParamType[tuple[str, str]]):
    """A label and its value, as NAME=VALUE."""

    name = "name=value"

    def convert(
        self,
        value: str | tuple[str, str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, wanted = value.partition("=")
        if not name or not equals or not wanted:
            self.fail(f"{value!r}: write NAME=VALUE, such as team=search", param, ctx)
        return name, wanted


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
    type=LabelValue(),
    multiple=True,
    help="Only rows with this label of a service, probe or host, such as team=search; may be repeated.",
)
