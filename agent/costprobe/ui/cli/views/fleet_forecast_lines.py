"""The forecast of a fleet's spend as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from costprobe.core.money import money
from costprobe.core.periods import TimeSpan
from costprobe.core.units import counted, percent
from costprobe.fleet.spend import FleetForecast
from costprobe.spend.forecast import MIN_HOURS
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.text import local

FORECAST_HEADS: Final = (
    "currency",
    "spent",
    "coverage",
    "forecast",
    "forecast_low",
    "forecast_high",
    "history_h",
    "left_out_h",
)


def forecast_lines(
    found: Sequence[FleetForecast], period: TimeSpan, end_ns: int, amount: float | None
) -> Iterator[str]:
    """Yield the spend of a period with its forecast, one line for each currency.

    Args:
        found: The forecasts.
        period: The period.
        end_ns: UTC in ns up to which rows count.
        amount: Planned amount of the only currency; None without one.
    """
    elapsed = percent(period.elapsed_share(end_ns))
    yield f"{local(period.start_ns)} to {local(period.end_ns)}, {elapsed} elapsed"
    heads = ("currency", "spent", "covered", "forecast", "80 % interval")
    rows = [
        (
            one.currency or "-",
            money(one.spent, one.currency),
            "-" if one.coverage is None else percent(one.coverage),
            "-" if one.expected is None else money(one.expected, one.currency),
            "-"
            if one.low is None or one.high is None
            else f"{money(one.low, one.currency)} to {money(one.high, one.currency)}",
        )
        for one in found
    ]
    yield from table_lines([heads, *rows])
    for one in found:
        if one.remaining is None:
            yield f"{one.currency}: a forecast needs {MIN_HOURS} h of cost data"
        else:
            yield f"{one.currency}: {one.remaining.method}, from {one.remaining.hours:,} h"
        if one.left_out:
            hours = counted(one.left_out, "hour")
            yield f"{one.currency}: {hours} with rows of less than half of the devices left out"
        if amount is not None:
            yield f"{money(amount, one.currency)} planned: {one.verdict(amount) or 'within it'}"
