"""Instants on the command line: "24h" ago, or a date and time."""

from __future__ import annotations

import time
from datetime import datetime

import click

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
