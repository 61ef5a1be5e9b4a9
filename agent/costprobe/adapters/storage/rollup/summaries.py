"""Summaries of full hours: what reports and savings would compute from the rows of each hour again.

A summary is written once the rows of its hour are complete, and used instead of them; an hour without
one is read from its rows, with the same result. A trigger deletes the summary of an hour to which a
late row is added, and `rollup` that of an hour whose rows become one: a summary stands beside raw rows
and rows of a minute only.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from costprobe.adapters.storage.rollup import number_columns
from costprobe.adapters.storage.rollup.aggregation import SUMMED
from costprobe.adapters.storage.rollup.rollup import HOURS, Layouts
from costprobe.adapters.storage.rollup.summary_reading import Kind, read_fields
from costprobe.core.bounded import bounded_json
from costprobe.core.line_protocol import fields_reader
from costprobe.core.records import NS_PER_S, Device, FieldValue
from costprobe.core.row_spans import RowEnd
from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.hour_load import (
    EDGE_NS,
    LOAD_FIELDS,
    LOAD_HIGHEST,
    add_rows,
    hour_document,
    is_on,
)

# Rows that arrive later than this are late: they delete the summary.
SETTLED_NS: Final = 2 * 3600 * NS_PER_S


def kinds_of(measurement: str) -> Sequence[Kind]:
    """Return the kinds of summaries of a measurement: `sums` of totals, `load` of a device, `rows` as columns."""
    kinds: list[Kind] = []
    if measurement in SUMMED:
        kinds.append("sums")
    if measurement == "device":
        kinds.append("load")
    if read_fields(measurement, {}):
        kinds.append("rows")
    return kinds


def summarize(connection: sqlite3.Connection, until_ns: int, usual_s: float, limit: int) -> bool:
    """Run one step; see `Store.summarize`."""
    step = _Summarizer(connection, usual_s)
    rows = connection.execute("SELECT id, measurement, tags FROM series ORDER BY id").fetchall()
    step.series = [(series_id, name, bounded_json(tags)) for series_id, name, tags in rows]
    for series_id, measurement, tags in step.series:
        for kind in kinds_of(measurement):
            for hour_ns in _due(connection, series_id, kind, until_ns - SETTLED_NS):
                if limit <= 0:
                    return False
                limit -= 1
                document = step.document(kind, (series_id, measurement, tags), hour_ns)
                connection.execute(
                    "INSERT INTO summaries (kind, series_id, time_ns, document) VALUES (?, ?, ?, ?)",
                    (kind, series_id, hour_ns, json.dumps(document, separators=(",", ":"))),
                )
    return True


def _due(
    connection: sqlite3.Connection, series_id: int, kind: Kind, until_ns: int
) -> Iterator[int]:
    """Yield the hours after the last summary that have rows, none of which is of an hour."""
    (last_ns,) = connection.execute(
        "SELECT max(time_ns) FROM summaries WHERE kind = ? AND series_id = ?", (kind, series_id)
    ).fetchone()
    next_ns = 0 if last_ns is None else last_ns + HOURS.period_ns
    while True:
        (first_ns,) = connection.execute(
            "SELECT min(time_ns) FROM ("
            "SELECT min(time_ns) AS time_ns FROM points WHERE series_id = ? AND time_ns >= ?"
            " UNION ALL SELECT min(time_ns) FROM rollups_1m WHERE series_id = ? AND time_ns >= ?)",
            (series_id, next_ns, series_id, next_ns),
        ).fetchone()
        if first_ns is None or HOURS.floor(first_ns) + HOURS.period_ns > until_ns:
            return
        hour_ns = HOURS.floor(first_ns)
        next_ns = hour_ns + HOURS.period_ns
        if not _has_hour(connection, series_id, hour_ns):
            yield hour_ns


def _has_hour(connection: sqlite3.Connection, series_id: int, hour_ns: int) -> bool:
    sql = "SELECT 1 FROM rollups_1h WHERE series_id = ? AND time_ns = ?"
    return connection.execute(sql, (series_id, hour_ns)).fetchone() is not None


_Series = tuple[int, str, Mapping[str, str]]


class _Summarizer:
    """Computes summaries, each from the rows of an hour of a series."""

    def __init__(self, connection: sqlite3.Connection, usual_s: float) -> None:
        self.series: Sequence[_Series] = ()
        self._connection = connection
        self._usual_s = usual_s
        names = Layouts(connection)
        ids = connection.execute("SELECT id FROM layouts").fetchall()
        self._layouts = {layout_id: names.names(layout_id) for (layout_id,) in ids}
        self._documents: Mapping[Kind, Callable[[_Series, int], object]] = {
            "sums": self._sums,
            "load": self._load,
            "rows": self._rows,
        }

    def document(self, kind: Kind, series: _Series, hour_ns: int) -> object:
        """Return the summary of an hour."""
        return self._documents[kind](series, hour_ns)

    def _sums(self, series: _Series, hour_ns: int) -> dict[str, list[number_columns.Summed]]:
        """Return what `hourly_sums` finds in the rows, of each field that has a value."""
        edges_ns, fields = (hour_ns, hour_ns + HOURS.period_ns), SUMMED[series[1]]
        found = number_columns.hourly_sums(
            self._connection, series[0], fields, edges_ns, self._layouts
        )
        return {field: sums for field, sums in found.items() if sums}

    def _load(self, series: _Series, hour_ns: int) -> object:
        """Return the load of a device."""
        series_id, _, tags = series
        within = (hour_ns, hour_ns + HOURS.period_ns)
        span = (within[0] - EDGE_NS, within[1] + EDGE_NS)
        sql = number_columns.rows_sql(LOAD_FIELDS, LOAD_HIGHEST, self._layouts)
        parameters = {"series": series_id, "since": span[0], "until": span[1], "limit": -1}
        found = self._connection.execute(sql, parameters)
        rows = [(RowEnd(row[2], row[3]), row[4:]) for row in found]
        device = Device(tags.get("device", ""), "gpu", "", "")
        history = DeviceHistory(device, within[1], self._run_ends(device.name, span))
        add_rows(history, rows, self._usual_s, within)
        return hour_document(history, hour_ns)

    def _run_ends(self, device: str, span: tuple[int, int]) -> list[int]:
        """Return the end times of the runs of probes on a device, ascending."""
        ends_ns: list[int] = []
        for series_id, measurement, own in self.series:
            if measurement == "probe" and is_on(own.get("device", ""), device):
                found = self._connection.execute(
                    "SELECT time_ns FROM points WHERE series_id = ? AND time_ns >= ? AND time_ns < ?",
                    (series_id, *span),
                )
                ends_ns += [time_ns for (time_ns,) in found]
        return sorted(ends_ns)

    def _rows(self, series: _Series, hour_ns: int) -> list[Any]:
        """Return the times of the rows since the start of the hour, and their fields as columns."""
        read_row = fields_reader(read_fields(*series[1:]))
        found = self._connection.execute(
            "SELECT time_ns, fields FROM points WHERE series_id = ? AND time_ns >= ? AND time_ns < ?"
            " ORDER BY time_ns",
            (series[0], hour_ns, hour_ns + HOURS.period_ns),
        ).fetchall()
        rows = [read_row(text) for _, text in found]
        names = sorted({name for row in rows for name in row})
        columns = {name: _shortened([row.get(name) for row in rows]) for name in names}
        return [[time_ns - hour_ns for time_ns, _ in found], columns]


def _shortened(column: list[FieldValue | None]) -> list[FieldValue | None]:
    """Return a column; one value where all are the same."""
    first = column[0]
    is_same = all(value == first and type(value) is type(first) for value in column)
    return column[:1] if is_same else column
