"""Stored summaries of full hours, as `summaries` writes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from costprobe.adapters.storage.rollup.rollup import HOURS
from costprobe.core.bounded import bounded_json
from costprobe.domain.costing.comparison.read_fields import (
    PAID_FIELDS,
    RUN_FIELDS,
    SERVICE_FIELDS,
    WORK_FIELDS,
)

# Sums of totals, the load of a device, rows as columns.
Kind = Literal["sums", "load", "rows"]


def read_fields(measurement: str, tags: Mapping[str, str]) -> frozenset[str]:
    """Return the fields of the rows of a series that are summarized as columns."""
    if measurement == "cost":
        return PAID_FIELDS if tags.get("basis") == "probe" else SERVICE_FIELDS
    return {"probe": RUN_FIELDS, "serving": WORK_FIELDS}.get(measurement, frozenset())


def read(
    connection: sqlite3.Connection, series_id: int, kind: Kind, since_ns: int, until_ns: int
) -> Iterator[tuple[int, Any]]:
    """Iterate over the summaries of the full hours of a series in a range: start in UTC ns, document."""
    rows = connection.execute(
        "SELECT time_ns, document FROM summaries WHERE kind = ? AND series_id = ?"
        " AND time_ns >= ? AND time_ns <= ? ORDER BY time_ns",
        (kind, series_id, since_ns, until_ns - HOURS.period_ns),
    )
    for time_ns, document in rows.fetchall():
        yield time_ns, bounded_json(document)
