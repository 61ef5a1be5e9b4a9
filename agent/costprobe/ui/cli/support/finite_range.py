"""Numbers on the command line."""

from __future__ import annotations

import math

import click


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
