"""Production over spans of time: ratios of sums, and their change between two equal spans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from costprobe.core.records import NS_PER_S, Point
from costprobe.core.serving_ratios import SERVING_RATIOS

HOUR_NS: Final = 3600 * NS_PER_S
DAY_NS: Final = 24 * HOUR_NS
WEEK_NS: Final = 7 * DAY_NS
# Of a span with a lower coverage nothing is said.
COMPARED_SHARE: Final = 0.5


class Change(NamedTuple):
    """A ratio of production in two adjacent spans of equal length.

    Attributes:
        before: Ratio in the earlier span.
        after: Ratio in the later one.
        span_s: Length of each in seconds: whole weeks, days or hours.
    """

    before: float
    after: float
    span_s: float

    @property
    def pct(self) -> float | None:
        """Change in percent; None from zero."""
        return (self.after / self.before - 1) * 100 if self.before else None


def ratio_of_sums(rows: Iterable[Point], field: str) -> float | None:
    """Return a ratio of production over rows of `cost`; None where nothing was counted.

    Args:
        rows: Rows on the serving basis, of one service or model, in one currency.
        field: A ratio of `SERVING_RATIOS`.
    """
    ratio = SERVING_RATIOS[field]
    sums: dict[str, list[float]] = {}
    for row in rows:
        values = {name: row.fields.get(name) for name in ratio.fields}
        each, over = row.fields.get(field), values[ratio.over]
        if values[ratio.per] is None and isinstance(each, float) and isinstance(over, float):
            # A row without its denominator: it follows from the ratio.
            values[ratio.per] = over * ratio.scale / each if each and not ratio.part else None
        for name, value in values.items():
            if isinstance(value, int | float):
                sums.setdefault(name, []).append(value)
    return ratio.of({name: math.fsum(values) for name, values in sums.items()})


def change_of(rows: Sequence[Point], field: str, since_ns: int, until_ns: int) -> Change | None:
    """Return how a ratio changed from the first half of a time to the second.

    The halves are equal and hold the same hours of the day, and of the week where there are two
    weeks: otherwise the change would be that of the time of day. What remains is at the beginning.

    Args:
        rows: Rows of `cost` on the serving basis, of one service or model, in one currency.
        field: A ratio of `SERVING_RATIOS`.
        since_ns: UTC ns.
        until_ns: UTC ns.

    Returns:
        None where the time is shorter than two hours, or windows cover less than half of a span.
    """
    half_ns = (until_ns - since_ns) // 2
    span_ns = next(
        (
            half_ns // unit_ns * unit_ns
            for unit_ns in (WEEK_NS, DAY_NS, HOUR_NS)
            if half_ns >= unit_ns
        ),
        0,
    )
    if not span_ns:
        return None
    first_ns, middle_ns = until_ns - 2 * span_ns, until_ns - span_ns
    spans = ((first_ns, middle_ns), (middle_ns, until_ns))
    found = [[row for row in rows if start < _middle_ns(row) <= end] for start, end in spans]
    for own in found:
        if sum(_window_s(row) for row in own) < COMPARED_SHARE * span_ns / NS_PER_S:
            return None
    before, after = (ratio_of_sums(own, field) for own in found)
    if before is None or after is None:
        return None
    return Change(before, after, span_ns / NS_PER_S)


def _window_s(row: Point) -> float:
    value = row.fields.get("window_s")
    return value if isinstance(value, float) else 0.0


def _middle_ns(row: Point) -> int:
    """Return the middle of a window, or of those in a rolled-up row, which ends with the newest."""
    end_ns = getattr(row, "newest_ns", row.time_ns)
    return int(end_ns - _window_s(row) / 2 * NS_PER_S)
