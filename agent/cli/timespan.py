"""Time ranges as people type them: "24h", or a date and time."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from agent.units import parse_duration_s


class Moment(click.ParamType[int]):
    """A UTC instant in ns: a duration before now ("24h") or ISO 8601 ("2026-01-31T12:00")."""

    name = "moment"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """UTC ns since 1970."""
        if isinstance(value, int):
            return value
        try:
            return time.time_ns() - int(parse_duration_s(value) * 1e9)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f'{value!r} is neither a duration ("24h") nor a date and time', param, ctx)
        if moment.tzinfo is None:
            moment = moment.astimezone()
        return int(moment.timestamp() * 1e9)


def iso(time_ns: int) -> str:
    """UTC ns as ISO 8601 with milliseconds."""
    moment = datetime.fromtimestamp(time_ns / 1e9, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(time_ns: int) -> str:
    """UTC ns as a person at this host reads it."""
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(duration_s: float) -> str:
    """A duration as a person says it: "12 s", "3 min", "2.5 h", "4 d"."""
    for limit_s, unit_s, unit in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.0f} {unit}"
    return f"{duration_s / 86_400:.1f} d"
