"""What the devices of this host cost by the hour, for the comparison with a bill."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from costprobe.core.periods import HOUR_NS, TimeSpan
from costprobe.core.units import HOUR_S
from costprobe.spend.query import costs_around, spend_by_step
from costprobe.spend.reconcile import MeasuredHour

if TYPE_CHECKING:
    from costprobe.adapters.store.read import SeriesValues, StoreReader


def measured_hours(
    reader: StoreReader, span: TimeSpan, usual_s: float
) -> dict[str, dict[int, MeasuredHour]]:
    """Return the hours of a span with rows, by currency and their number since 1970.

    Args:
        reader: The store.
        span: The span.
        usual_s: Length of a row of `device` in s if there are too few to derive it.

    Raises:
        StoreError: The store cannot be read.
    """
    paid: dict[str, dict[str, list[SeriesValues]]] = defaultdict(lambda: defaultdict(list))
    for series in costs_around(reader, "device", span):
        paid[series.tags.get("currency", "")][series.tags.get("device", "")].append(series)
    return {currency: _hours(devices, span, usual_s) for currency, devices in paid.items()}


def _hours(
    devices: dict[str, list[SeriesValues]], span: TimeSpan, usual_s: float
) -> dict[int, MeasuredHour]:
    costs: dict[int, float] = defaultdict(float)
    covered_s: dict[str, dict[int, float]] = defaultdict(dict)
    for device, rows in devices.items():
        seconds_of: dict[int, float] = defaultdict(float)
        for hour, cost, seconds in spend_by_step(rows, usual_s, span, HOUR_NS):
            costs[hour] += cost
            seconds_of[hour] += seconds
        # Slices come and go; their board is there all the time.
        of_board = covered_s[device.partition(".")[0]]
        of_board.update({hour: max(s, of_board.get(hour, 0.0)) for hour, s in seconds_of.items()})
    # A board counts from its first hour to its last.
    boards = [(min(found), max(found), found) for found in covered_s.values() if found]
    hours = {}
    for hour, cost in costs.items():
        parts_s = [found.get(hour, 0.0) for first, last, found in boards if first <= hour <= last]
        hours[hour] = MeasuredHour(cost, min(HOUR_S, sum(parts_s) / len(parts_s)))
    return hours
