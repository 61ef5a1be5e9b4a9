"""The time that stored rows cover, whether they are raw or rolled up.

A row of an interval is stamped at its end, and a rolled-up row knows the newest of the rows in it and
their number. The length of a row is not stored: it starts at the end of the previous row, unless that
is further away than usual; then there is a gap between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from costprobe.core.records import NS_PER_S

# A distance of more than this many usual intervals is a gap.
GAP_STEPS = 2.5
# At least so many of the rolled-up rows follow another and lack no row, as one in this number.
_FULL_ONE_IN = 10


class RowEnd(NamedTuple):
    """The end of a row, or of the newest of the rows in a rolled-up one.

    Attributes:
        end_ns: UTC ns.
        rows: Number of rows in it: 1 for a raw row.
        step_ns: Mean distance of the rows in it, where it is known; else 0.
    """

    end_ns: int
    rows: int = 1
    step_ns: int = 0


class RowSpan(NamedTuple):
    """The time of a row.

    Attributes:
        start_ns: UTC ns.
        end_ns: UTC ns.
        covered_s: Seconds of it that were measured; less than its length where rows are missing in
            a rolled-up row.
    """

    start_ns: int
    end_ns: int
    covered_s: float


def row_spans(ends: Sequence[RowEnd], usual_s: float) -> list[RowSpan]:
    """Return the span of each row of a series.

    Args:
        ends: The rows, in the order of their ends.
        usual_s: Length of a row in s if there are too few rows to derive it.
    """
    step_ns = _usual_step_ns(ends, usual_s)
    spans = []
    before_ns: int | None = None
    for end_ns, rows, _ in ends:
        usual_ns = max(1, rows * step_ns)
        length_ns = usual_ns
        if before_ns is not None and end_ns - before_ns <= GAP_STEPS * usual_ns:
            length_ns = end_ns - before_ns
        # Within a rolled-up row a missing row is known by their number.
        covered_ns = length_ns if rows == 1 else min(length_ns, usual_ns)
        spans.append(RowSpan(end_ns - length_ns, end_ns, covered_ns / NS_PER_S))
        before_ns = end_ns
    return spans


def _usual_step_ns(ends: Sequence[RowEnd], usual_s: float) -> int:
    """Return the usual length of a raw row, by those that are raw or by the rolled-up ones."""
    steps = [(after.end_ns - before.end_ns, after) for before, after in pairwise(ends)]
    raw = [step_ns for step_ns, row in steps if row.rows == 1]
    # Rows are missing in many rolled-up rows of a host that is often off: the full ones show it.
    rolled = sorted(row.step_ns or step_ns // row.rows for step_ns, row in steps if row.rows > 1)
    if len(raw) > max(1, len(rolled)):
        return int(statistics.median(raw))
    if len(rolled) > 1:
        return rolled[len(rolled) // _FULL_ONE_IN]
    return max(1, int(usual_s * NS_PER_S))
