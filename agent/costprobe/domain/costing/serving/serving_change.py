"""Production over spans of time: ratios of sums, and their change between two equal spans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from costprobe.core.records import NS_PER_S, Point
from costprobe.core.row_columns import RowColumns
from costprobe.core.row_values import number, numbers
from costprobe.core.serving_ratios import SERVING_RATIOS
from costprobe.domain.costing.budgets.periods import TimeSpan

DAY_NS: Final = 24 * 3600 * NS_PER_S
WEEK_NS: Final = 7 * DAY_NS
# A span with a lower coverage is not compared: it lacks hours of the day that the other has.
COMPARED_SHARE: Final = 0.9


class ServingChange(NamedTuple):
    """A ratio of production in two spans of equal length and the same hours of the day.

    Attributes:
        before: Ratio in the earlier span.
        after: Ratio in the later one.
    """

    before: float
    after: float

    @property
    def pct(self) -> float | None:
        """Change in percent; None from zero."""
        return (self.after / self.before - 1) * 100 if self.before else None


def compared_spans(since_ns: int, until_ns: int) -> tuple[TimeSpan, TimeSpan]:
    """Return the two equal spans that are compared for a time.

    They hold the same hours of the day, and from two weeks on the same days of the week: otherwise a
    change would be that of the time of day. Of a long time they are its last whole days in two
    halves; of less than two days its last day and the one before; of less than a day that time and
    the same hours of the day before.

    Args:
        since_ns: UTC ns.
        until_ns: UTC ns.
    """
    length_ns = until_ns - since_ns
    half_ns = length_ns // 2
    unit_ns = WEEK_NS if half_ns >= WEEK_NS else DAY_NS
    span_ns = half_ns // unit_ns * unit_ns or min(length_ns, DAY_NS)
    shift_ns = max(span_ns, DAY_NS)
    after = TimeSpan(until_ns - span_ns, until_ns)
    return TimeSpan(after.start_ns - shift_ns, after.end_ns - shift_ns), after


def ratio_of_sums(rows: Iterable[Point], field: str) -> float | None:
    """Return a ratio of production over rows; see `ratio_of_columns`."""
    rows = list(rows)
    times_ns = [row.time_ns for row in rows]
    names = {field, *SERVING_RATIOS[field].fields}
    columns = {name: [row.fields.get(name) for row in rows] for name in names}
    return ratio_of_columns([RowColumns({}, times_ns, times_ns, columns)], field)


def ratio_of_columns(parts: Iterable[RowColumns], field: str) -> float | None:
    """Return a ratio of production over rows of `cost`; None where nothing was counted.

    Rows without the numerator, such as windows of unknown energy, do not count; idle windows do.

    Args:
        parts: Rows on the serving basis, of one service or model, in one currency.
        field: A ratio of `SERVING_RATIOS`.
    """
    ratio = SERVING_RATIOS[field]
    sums: dict[str, list[float]] = {}
    for part in parts:
        if ratio.over not in part.columns:
            continue
        counted = part.where([value is not None for value in part.column(ratio.over)])
        found = {name: counted.numbers(name) for name in ratio.fields}
        if len(found[ratio.per]) < len(counted) and not ratio.part:
            found[ratio.per] = [*found[ratio.per], *_missing_denominators(counted, field)]
        for name, values in found.items():
            if values:
                sums.setdefault(name, []).extend(values)
    return ratio.of({name: math.fsum(values) for name, values in sums.items()})


def _missing_denominators(part: RowColumns, field: str) -> list[float]:
    """Return the denominator of each row that lacks it but has the ratio, from which it follows."""
    ratio = SERVING_RATIOS[field]
    lacking = part.where([value is None for value in part.column(ratio.per)])
    lacking = lacking.where([bool(value) for value in lacking.column(field)])
    pairs = zip(lacking.numbers(ratio.over), lacking.numbers(field), strict=True)
    return [over * ratio.scale / value for over, value in pairs]


def change_of(rows: Sequence[Point], field: str, spans: Sequence[TimeSpan]) -> ServingChange | None:
    """Return how production changed between two spans.

    Args:
        rows: Rows of `cost` on the serving basis or of `serving`, of one service or model, in one
            currency, over both spans.
        field: A ratio of `SERVING_RATIOS`, or a total of a window, which is compared by its rate.
        spans: The earlier and the later one, of equal length.

    Returns:
        None where windows cover less than nine tenths of a span, or nothing was counted.
    """
    sums: list[float] = []
    for span in spans:
        in_span = [row for row in rows if span.start_ns < middle_ns(row) <= span.end_ns]
        window_s = math.fsum(_window_s(row) for row in in_span)
        if window_s < COMPARED_SHARE * (span.end_ns - span.start_ns) / NS_PER_S:
            return None
        if field in SERVING_RATIOS:
            value = ratio_of_sums(in_span, field)
        else:
            totals = numbers(in_span, field)
            value = math.fsum(totals) / window_s if totals else None
        if value is None:
            return None
        sums.append(value)
    return ServingChange(*sums)


def _window_s(row: Point) -> float:
    return number(row, "window_s") or 0.0


def middle_ns(row: Point) -> int:
    """Return the middle of a window, or of those in a rolled-up row, which ends with the newest."""
    end_ns = getattr(row, "newest_ns", row.time_ns)
    return int(end_ns - _window_s(row) / 2 * NS_PER_S)
