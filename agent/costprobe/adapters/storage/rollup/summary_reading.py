"""Stored summaries of full hours, as `summaries` writes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Literal

from costprobe.adapters.storage.rollup.rollup import HOURS
from costprobe.core.bounded import bounded_json_list
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
) -> list[tuple[int, Any]]:
    """Return the summaries of the full hours of a series in a range: start in UTC ns, document."""
    rows = connection.execute(
        "SELECT time_ns, document FROM summaries WHERE kind = ? AND series_id = ?"
        " AND time_ns >= ? AND time_ns <= ? ORDER BY time_ns",
        (kind, series_id, since_ns, until_ns - HOURS.period_ns),
    )
    found = rows.fetchall()
    documents = bounded_json_list(document for _, document in found)
    return [(time_ns, document) for (time_ns, _), document in zip(found, documents, strict=True)]
