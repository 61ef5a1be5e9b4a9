"""Rows of a long history, spread evenly over it: an answer that takes no longer as it grows.

A quarter of a year of eight devices is a million rows, of which a picture shows some hundred. So
the time is cut into stretches of one length, and of each the row is read that stands at, or next
after, one instant in it. That instant lies in another part of each stretch, so that no rhythm of
the data, such as an hour's or a day's, is met at the same beat each time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.storage.rolled import Found
from agent.storage.rollup import HOURS, MINUTES

# Multiples of it, without their whole parts, fill a stretch more evenly than chance does.
_GOLDEN: Final = 0.6180339887498949

# Of a series among very many at least so many rows are read: fewer would show nothing.
SHARE_ROWS_MIN: Final = 32


@dataclass(frozen=True, slots=True)
class _Place:
    """A table that holds rows.

    Attributes:
        table: Its name.
        period_s: Length in s of what a row in it stands for; 0 for one as it was measured.
        columns: What `Found` has beside the time and the period.
    """

    table: str
    period_s: int
    columns: str


_PLACES: Final = (
    _Place("points", 0, "fields, 0, 0, 0"),
    _Place(MINUTES.table, MINUTES.period_s, "cells, newest_ns, rows, layout_id"),
    _Place(HOURS.table, HOURS.period_s, "cells, newest_ns, rows, layout_id"),
)
_WITHIN = "series_id = :series AND time_ns >= :since AND time_ns < :until"


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of a series in a time; its end is not in it.

    Attributes:
        series_id: Its number in the store.
        since_ns: UTC ns.
        until_ns: UTC ns.
    """

    series_id: int
    since_ns: int
    until_ns: int

    def asked(self, **more: int | str) -> dict[str, int | str]:
        """The values of a statement."""
        return {
            "series": self.series_id,
            "since": self.since_ns,
            "until": self.until_ns,
            **more,
        }


def spread(
    connection: sqlite3.Connection, spans: Sequence[Span], sample: int
) -> list[list[Found] | None]:
    """For each series about as many rows as it may have; None where every row is to be read.

    Args:
        connection: The store, in a transaction: a row that is rolled up meanwhile would be missed.
        spans: The rows of each series.
        sample: How many rows at most, of all together, unless there are very many series. A row
            that is looked up takes longer than one that is read in order: of a longer history it
            is two thirds of that.
    """
    # Counting takes time too: first only as far as an even share, then what the others leave.
    even = max(SHARE_ROWS_MIN, sample // max(1, len(spans)))
    counts = [count_rows(connection, span, even + 1) for span in spans]
    long = sum(count > even for count in counts)
    left = sample - sum(count for count in counts if count <= even)
    share = max(even, left // max(1, long))
    return [
        None
        if count <= even or count_rows(connection, span, share + 1) <= share
        else spread_rows(connection, span, max(SHARE_ROWS_MIN, share * 2 // 3))
        for span, count in zip(spans, counts, strict=True)
    ]


def count_rows(connection: sqlite3.Connection, span: Span, limit: int) -> int:
    """How many rows there are; no more than about `limit` are counted.

    Args:
        connection: The store.
        span: Which rows.
        limit: Greater than 0.
    """
    found = 0
    for place in _PLACES:
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM {place.table}"  # noqa: S608 - literals
            f" WHERE {_WITHIN} LIMIT :limit)"
        )
        (count,) = connection.execute(sql, span.asked(limit=limit)).fetchone()
        found += count
    return found


def spread_rows(connection: sqlite3.Connection, span: Span, count: int) -> list[Found]:
    """About so many rows of a time, by time: the first, the last, and one of each stretch.

    A stretch without a row adds none, and where two tables have one it is the earlier.

    Args:
        connection: The store, in a transaction.
        span: Which rows.
        count: How many stretches; greater than 0.
    """
    bounds = [(place, *_bounds(connection, span, place)) for place in _PLACES]
    held = [(place, first, last) for place, first, last in bounds if first is not None]
    if not held:
        return []
    first_ns, last_ns = min(first for _, first, _ in held), max(last for _, _, last in held)
    step_ns = max(1, (last_ns - first_ns) // count)
    times_ns = [
        first_ns,
        *(first_ns + int(step_ns * (index + index * _GOLDEN % 1)) for index in range(count)),
        last_ns,
    ]
    nearest: dict[int, Found] = {}
    for place, first, last in held:
        near = [time_ns for time_ns in times_ns if first - step_ns <= time_ns <= last]
        for time_ns, found in zip(near, _at_or_after(connection, span, place, near), strict=True):
            known = nearest.get(time_ns)
            if known is None or found.time_ns < known.time_ns:
                nearest[time_ns] = found
    rows = {(found.time_ns, found.period_s): found for found in nearest.values()}
    return [rows[key] for key in sorted(rows)]


def _bounds(
    connection: sqlite3.Connection, span: Span, place: _Place
) -> tuple[int, int] | tuple[None, None]:
    """Times of the first and the last row of a table; one statement for each is one seek each."""
    first, last = (
        connection.execute(
            f"SELECT {end}(time_ns) FROM {place.table} WHERE {_WITHIN}",  # noqa: S608 - literals
            span.asked(),
        ).fetchone()[0]
        for end in ("min", "max")
    )
    return first, last


def _at_or_after(
    connection: sqlite3.Connection, span: Span, place: _Place, times_ns: list[int]
) -> list[Found]:
    """For each time a table's row at it or next after it; there is one up to its last."""
    sql = (
        f"SELECT time_ns, {place.period_s}, {place.columns}"  # noqa: S608 - literals
        f" FROM json_each(:times) AS wanted CROSS JOIN {place.table} ON series_id = :series"
        f" AND time_ns = (SELECT min(time_ns) FROM {place.table}"
        " WHERE series_id = :series AND time_ns >= wanted.value AND time_ns < :until)"
        " ORDER BY wanted.id"
    )
    asked = span.asked(times=json.dumps(times_ns))
    return [Found._make(row) for row in connection.execute(sql, asked)]
