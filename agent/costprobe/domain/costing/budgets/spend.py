"""Spend: cost of stored rows of `device` or `allocation`, and the share of the time that they cover.

The cost of a gap between rows is unknown. Forecasts, reports and the dashboard use the same figures.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from costprobe.core.row_spans import RowEnd, row_spans
from costprobe.core.units import HOUR_S
from costprobe.domain.costing.budgets.periods import HOUR_NS, TimeSpan

# Hours that forecasts use: eight weeks, so that each hour of the week occurs eight times.
HISTORY_HOURS = 8 * 7 * 24
# A span with a lower coverage is not compared with another.
COMPARED_SHARE = 0.5
# Significant digits of stored amounts.
DIGITS = 9


class Payer(NamedTuple):
    """The service and device whose cost a series contains.

    Attributes:
        service: Name of the service; empty for the whole cost of a device.
        device: Name of the device.
        currency: ISO 4217 code; empty if the rows have none.
    """

    service: str
    device: str
    currency: str


class CostRow(NamedTuple):
    """The cost of a row, or of the rows in a rolled-up one.

    Attributes:
        end_ns: UTC ns of its end, or of the newest row in it.
        cost: Currency.
        rows: Number of rows in it: 1 for a raw row.
        step_ns: Mean distance of the rows in it, where it is known; else 0.
    """

    end_ns: int
    cost: float
    rows: int = 1
    step_ns: int = 0


class SpendHour(NamedTuple):
    """An hour's cost.

    Attributes:
        cost: Currency of the covered part.
        covered_s: Seconds that rows cover.
    """

    cost: float
    covered_s: float


NOTHING = SpendHour(0.0, 0.0)


@dataclass(slots=True)
class HourSeries:
    """The last `hours` costs of one payer by the hour; `first` is the number of the first hour."""

    hours: int
    first: int = 0
    costs: array[float] = field(default_factory=lambda: array("d"))
    covered_s: array[float] = field(default_factory=lambda: array("d"))

    def add(self, hour: int, cost: float, covered_s: float) -> None:
        """Add to an hour; hours that are too old are ignored."""
        if not self.costs:
            self.first = hour
        if hour < self.first:
            return
        lacking = hour - self.first + 1 - len(self.costs)
        if lacking > self.hours:
            self.first, lacking = hour, 1
            self.costs, self.covered_s = array("d"), array("d")
        if lacking > 0:
            self.costs.extend([0.0] * lacking)
            self.covered_s.extend([0.0] * lacking)
        self.costs[hour - self.first] += cost
        self.covered_s[hour - self.first] += covered_s
        surplus = len(self.costs) - self.hours
        if surplus > 0:
            del self.costs[:surplus], self.covered_s[:surplus]
            self.first += surplus

    def at(self, hour: int) -> SpendHour:
        """Return an hour's cost."""
        index = hour - self.first
        if not 0 <= index < len(self.costs):
            return NOTHING
        return SpendHour(self.costs[index], min(self.covered_s[index], 3600.0))

    def cut(self, hour: int) -> None:
        """Discard an hour and all later ones."""
        first_kept = max(0, hour - self.first)
        del self.costs[first_kept:], self.covered_s[first_kept:]


class SpendBook:
    """Costs of all payers by the hour, aligned to a time zone's full hours.

    Args:
        phase_ns: Offset of its hours from UTC's full hours, in ns.
        hours: Number of hours that are kept.
    """

    def __init__(self, phase_ns: int = 0, hours: int = HISTORY_HOURS) -> None:
        self.phase_ns = phase_ns
        self.hours = hours
        # Before this UTC ns the hours are final.
        self.final_ns = 0
        self._series: dict[Payer, HourSeries] = {}

    @property
    def payers(self) -> tuple[Payer, ...]:
        """Return all payers with a cost."""
        return tuple(self._series)

    def hour_of(self, time_ns: int) -> int:
        """Return the number of the hour that contains a UTC ns."""
        return (time_ns - self.phase_ns) // HOUR_NS

    def start_ns(self, hour: int) -> int:
        """Return the UTC ns at which an hour starts."""
        return hour * HOUR_NS + self.phase_ns

    def at(self, payer: Payer, hour: int) -> SpendHour:
        """Return the cost of a payer's hour."""
        series = self._series.get(payer)
        return NOTHING if series is None else series.at(hour)

    def add_rows(
        self, payer: Payer, rows: Sequence[CostRow], within: TimeSpan, usual_s: float
    ) -> None:
        """Add the part of rows that lies within a span.

        Args:
            payer: The payer.
            rows: The payer's rows, in the order of their ends; also some before and after the span,
                which define the intervals at its edges.
            within: The span; its hours must have been cut before.
            usual_s: Length of an interval in seconds if there are too few rows to derive it.
        """
        series = self._series.setdefault(payer, HourSeries(self.hours))
        for hour, cost, covered_s in spend_by_step(rows, usual_s, within, HOUR_NS, self.phase_ns):
            series.add(hour, cost, covered_s)

    def clear(self) -> None:
        """Discard all hours."""
        self.final_ns = 0
        self._series = {}

    def cut(self, time_ns: int) -> None:
        """Discard the hour of a UTC ns and all later ones, to add them again."""
        hour = self.hour_of(time_ns)
        for series in self._series.values():
            series.cut(hour)

    def between(self, payer: Payer, span: TimeSpan) -> SpendHour:
        """Return a payer's cost in a span; of an hour at its edge, the part that lies in it."""
        cost = covered_s = 0.0
        for hour in range(self.hour_of(span.start_ns), self.hour_of(span.end_ns - 1) + 1):
            spend = self.at(payer, hour)
            begins_ns = self.start_ns(hour)
            outside_ns = max(0, span.start_ns - begins_ns)
            part = 1 - outside_ns / HOUR_NS
            cost += spend.cost * part
            covered_s += spend.covered_s * part
        return SpendHour(cost, covered_s)

    def to_document(self) -> dict[str, Any]:
        """Return the final hours as JSON."""
        final = self.hour_of(self.final_ns)
        return {
            "phase_ns": self.phase_ns,
            "hours": self.hours,
            "final_ns": self.final_ns,
            "series": [
                [
                    *payer,
                    series.first,
                    _rounded(series.costs[: max(0, final - series.first)]),
                    _rounded(series.covered_s[: max(0, final - series.first)]),
                ]
                for payer, series in self._series.items()
            ],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SpendBook:
        """Return the book of a document.

        Raises:
            KeyError, TypeError, ValueError: The document is damaged.
        """
        book = cls(int(document["phase_ns"]), int(document["hours"]))
        book.final_ns = int(document["final_ns"])
        for service, device, currency, first, costs, covered_s in document["series"]:
            if len(costs) != len(covered_s):
                raise ValueError("costs and covered times differ in number")
            series = HourSeries(book.hours, int(first), array("d", costs), array("d", covered_s))
            book._series[Payer(service, device, currency)] = series
        return book


def spend_by_step(
    rows: Sequence[CostRow], usual_s: float, within: TimeSpan, step_ns: int, phase_ns: int = 0
) -> Iterator[tuple[int, float, float]]:
    """Return the cost and the covered seconds of rows in each step of a span, evenly divided by time.

    Args:
        rows: The rows of one payer, in the order of their ends.
        usual_s: Length of a row in seconds if there are too few rows to derive it.
        within: The span; what lies outside is left out.
        step_ns: Length of a step, such as an hour or a day.
        phase_ns: Offset of the steps from UTC's.

    Returns:
        The number of the step, currency and seconds; a step may occur several times.
    """
    spans = row_spans([RowEnd(row.end_ns, row.rows, row.step_ns) for row in rows], usual_s)
    for row, (start_ns, end_ns, covered_s) in zip(rows, spans, strict=True):
        first, last = max(start_ns, within.start_ns), min(end_ns, within.end_ns)
        while first < last:
            step = (first - phase_ns) // step_ns
            until_ns = min(last, (step + 1) * step_ns + phase_ns)
            share = (until_ns - first) / (end_ns - start_ns)
            yield step, row.cost * share, covered_s * share
            first = until_ns


def hourly_change(
    before: Mapping[str, SpendHour],
    after: Mapping[str, SpendHour],
    before_s: float,
    after_s: float,
) -> tuple[float, float] | None:
    """Return the cost per covered hour before and after, of the devices that both know.

    Unequal coverage must not read as a change: a device counts if rows cover at least half of both
    spans, with its cost per covered hour.

    Args:
        before: Cost and coverage of each device in the earlier span.
        after: The same in the later one.
        before_s: Length of the earlier span in seconds.
        after_s: Length of the later one.

    Returns:
        Currency per hour in both; None where no device is known in both.
    """
    known = [
        name
        for name in after
        if name in before
        and before[name].covered_s >= COMPARED_SHARE * before_s
        and after[name].covered_s >= COMPARED_SHARE * after_s
    ]
    if not known:
        return None
    first, second = (
        math.fsum(hours[name].cost / hours[name].covered_s for name in known) * HOUR_S
        for hours in (before, after)
    )
    return first, second


def coverage_of(covered_s: Mapping[str, float], elapsed_s: float) -> float:
    """Return the share of the time of all devices that rows cover.

    Args:
        covered_s: Covered seconds of each device that has a row in that time.
        elapsed_s: Length of the time.
    """
    known_s = math.fsum(min(elapsed_s, covered) for covered in covered_s.values())
    whole_s = elapsed_s * len(covered_s)
    return min(1.0, known_s / whole_s) if whole_s > 0 else 0.0


def _rounded(values: array[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
