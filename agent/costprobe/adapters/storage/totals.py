"""Totals of the counters of `/metrics`, committed together with the rows that they add up.

Retention deletes rows and leaves the totals. A row that is stored again unchanged counts once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache

from costprobe.adapters.storage.rows import SeriesIds, StoredRow
from costprobe.core.bounded import bounded_json
from costprobe.core.counters import COUNTED, StoredSample, increments
from costprobe.core.line_protocol import parse_field_set, parse_series_key
from costprobe.domain.costing.money import total_of


def add(connection: sqlite3.Connection, ids: SeriesIds, rows: Iterable[StoredRow]) -> None:
    """Add rows to the totals; call it before the rows are inserted.

    Args:
        connection: In the transaction that inserts the rows.
        ids: Ids of the series.
        rows: The rows; others than counted ones are skipped.
    """
    added: dict[tuple[str, str], list[Decimal]] = {}
    for row in dict.fromkeys(rows):
        if row.key.partition(",")[0] not in COUNTED or _is_stored(connection, ids, row):
            continue
        measurement, tags = _parsed(row.key)
        for amount in increments(measurement, tags, parse_field_set(row.fields)):
            key = (amount.name, json.dumps(amount.labels, ensure_ascii=False, sort_keys=True))
            added.setdefault(key, []).append(amount.value)
    for key, values in added.items():
        before = connection.execute(
            "SELECT value FROM totals WHERE name = ? AND labels = ?", key
        ).fetchone()
        total = total_of([*values, Decimal(before[0]) if before else Decimal(0)])
        connection.execute(
            "INSERT OR REPLACE INTO totals (name, labels, value) VALUES (?, ?, ?)",
            (*key, str(total)),
        )


def read(connection: sqlite3.Connection) -> Iterator[StoredSample]:
    """Return every total, in the order of names and labels."""
    rows = connection.execute("SELECT name, labels, value FROM totals ORDER BY name, labels")
    for name, labels, value in rows.fetchall():
        yield StoredSample(name, bounded_json(labels), Decimal(value))


@lru_cache(maxsize=1024)
def _parsed(key: str) -> tuple[str, dict[str, str]]:
    """Cached: a host writes the same few dozen series repeatedly."""
    return parse_series_key(key)


def _is_stored(connection: sqlite3.Connection, ids: SeriesIds, row: StoredRow) -> bool:
    found = connection.execute(
        "SELECT 1 FROM points WHERE series_id = ? AND time_ns = ? AND fields = ?",
        (ids.of(connection, row.key), row.time_ns, row.fields),
    ).fetchone()
    return found is not None
