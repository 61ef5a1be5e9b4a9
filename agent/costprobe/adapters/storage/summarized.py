"""Rows read by means of the summaries of their hours, where these exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from costprobe.adapters.storage.database import Database
from costprobe.adapters.storage.history import StoredSeries
from costprobe.adapters.storage.rollup import number_columns, summary_reading
from costprobe.adapters.storage.rollup.aggregation import SUMMED
from costprobe.adapters.storage.rollup.number_columns import Summed
from costprobe.adapters.storage.rollup.rollup import HOURS
from costprobe.adapters.storage.rollup.summary_reading import Kind
from costprobe.core.row_spans import RowEnd

Span = tuple[int, int]


def is_summarized(series: StoredSeries, fields: frozenset[str]) -> bool:
    """Return whether summaries hold these fields of the rows of a series."""
    return fields <= summary_reading.read_fields(series.measurement, series.tags)


def stored(
    database: Database, series: StoredSeries, kind: Kind, span: Span
) -> list[tuple[int, Any]]:
    """Return the summaries of the full hours in a span, by their start in UTC ns."""
    with database.reading("read") as connection:
        return summary_reading.read(connection, series.id, kind, *span)


def gaps(hours: Iterable[tuple[int, Any]], span: Span) -> list[Span]:
    """Return the spans between the summaries of a series."""
    at_ns, until_ns = span
    found = []
    for hour_ns, _ in hours:
        found.append((at_ns, hour_ns))
        at_ns = hour_ns + HOURS.period_ns
    return [
        (since_ns, end_ns) for since_ns, end_ns in (*found, (at_ns, until_ns)) if since_ns < end_ns
    ]


def hourly_sums(
    database: Database,
    series: StoredSeries,
    fields: Sequence[str],
    edges_ns: Sequence[int],
    layouts: Callable[[], Mapping[int, Sequence[str]]],
) -> dict[str, list[Summed]]:
    """Return the sums of totals of a series in each part of a time range, in order of time."""
    known: dict[int, Mapping[str, Sequence[tuple[int, Sequence[int], float]]]] = {}
    with database.snapshot("read") as connection:
        if {*fields} <= {*SUMMED.get(series.measurement, ())}:
            parts = set(pairwise(edges_ns))
            hours = summary_reading.read(connection, series.id, "sums", edges_ns[0], edges_ns[-1])
            known = {
                hour_ns: sums
                for hour_ns, sums in hours
                if (hour_ns, hour_ns + HOURS.period_ns) in parts
            }
        found = number_columns.hourly_sums(
            connection, series.id, fields, edges_ns, layouts(), known
        )
    for field, of_rows in found.items():
        of_rows.extend(
            (time_ns, RowEnd(*end), total)
            for sums in known.values()
            for time_ns, end, total in sums.get(field, ())
        )
        of_rows.sort()
    return found
