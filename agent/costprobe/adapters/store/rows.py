"""Points, small named documents and totals of counters, as they are stored.

A point is rendered to line protocol once, and sent by sinks without changes.

Totals of the counters of `/metrics` are committed together with the rows that they add up.
Retention deletes rows and leaves the totals. A row at the time of another, as after a step back of
the wall clock, gets the next free nanosecond: neither replaces the other.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from costprobe.adapters.store.hours import insert_hour, stored_part
from costprobe.core.line_protocol import field_set, parse_series_key, series_key, written_tags
from costprobe.core.money import total_of
from costprobe.core.outside import bounded_json
from costprobe.core.records import Point
from costprobe.core.schema import StoredSample, increments

TIME_NS_MAX = 2**63 - 2  # the maximum of InfluxDB
_EVENT = "event,"  # the start of its series keys


class StoredRow(NamedTuple):
    """A point in line protocol, in its three parts.

    Attributes:
        key: Measurement and tags.
        fields: The field set, never empty.
        time_ns: UTC in ns since 1970.
        counted: What it adds to the totals.
    """

    key: str
    fields: str
    time_ns: int
    counted: tuple[StoredSample, ...] = ()


def rendered(points: Iterable[Point]) -> list[StoredRow]:
    """Render points to rows; points without fields are skipped.

    Raises:
        ValueError: A point without a measurement or with a time beyond 64 bits.
    """
    rows = []
    for point in points:
        if abs(point.time_ns) > TIME_NS_MAX:
            raise ValueError(f"{point.time_ns} ns does not fit into 64 bits")
        fields = field_set(point.fields)
        if fields:
            key = series_key(point.measurement, point.tags)
            counted = increments(point.measurement, written_tags(point.tags), point.fields)
            rows.append(StoredRow(key, fields, point.time_ns, tuple(counted)))
    return rows


def _series_id(connection: sqlite3.Connection, key: str) -> int:
    """Return the id of a series; create it if it is new."""
    select = "SELECT id FROM series WHERE key = ?"
    found = connection.execute(select, (key,)).fetchone()
    if found is not None:
        return int(found[0])
    measurement, tags = parse_series_key(key)
    connection.execute(
        "INSERT INTO series (measurement, key, tags) VALUES (?, ?, ?)",
        (measurement, key, json.dumps(tags, ensure_ascii=False)),
    )
    return int(connection.execute(select, (key,)).fetchone()[0])


def insert(
    connection: sqlite3.Connection,
    rows: Sequence[StoredRow],
    *,
    repeated: bool = False,
) -> None:
    """Insert rows, each at its time or the next free ns of its series, and add them to the totals.

    An event replaces one of its series and time: after a restart detectors report it again.

    Args:
        connection: In a transaction.
        rows: The rows.
        repeated: Whether the commit of an earlier attempt may have succeeded, although it was reported
            as failed: then a row that is stored unchanged is the same row.
    """
    placed: dict[tuple[int, int], str] = {}
    new = []
    for row in rows:
        series_id, time_ns = _series_id(connection, row.key), row.time_ns
        is_event = row.key.startswith(_EVENT)
        while (
            not is_event
            and (stored := _fields_at(connection, placed, series_id, time_ns)) is not None
        ):
            if repeated and stored == row.fields:
                break
            time_ns += 1
        else:
            placed[series_id, time_ns] = row.fields
            new.append(row)
    _add_totals(connection, new)
    connection.executemany(
        "INSERT OR REPLACE INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)",
        [(*place, fields) for place, fields in placed.items()],
    )


def rename_devices(connection: sqlite3.Connection, rename: Callable[[str], str]) -> None:
    """Give the series of devices that have other names now these names; sinks keep the former ones.

    A series whose new name an unknown device had is added to the series of that device.

    Args:
        connection: In a transaction.
        rename: Returns the present name of a device.
    """
    (newest_seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM points").fetchone()
    renamed = []
    for series_id, key in connection.execute("SELECT id, key FROM series").fetchall():
        measurement, tags = parse_series_key(key)
        device = tags.get("device", "")
        if rename(device) != device:
            tags["device"] = rename(device)
            renamed.append((series_id, key, series_key(measurement, tags), tags))
    connection.executemany(
        "INSERT OR IGNORE INTO former_keys (series_id, until_seq, key) VALUES (?, ?, ?)",
        [(series_id, newest_seq, key) for series_id, key, _, _ in renamed],
    )
    # Names are exchanged: each key is free before one of them is taken.
    connection.executemany(
        "UPDATE series SET key = ? WHERE id = ?",
        [(f"{series_id} {key}", series_id) for series_id, key, _, _ in renamed],
    )
    for series_id, _, key, tags in renamed:
        taken = connection.execute("SELECT id FROM series WHERE key = ?", (key,)).fetchone()
        if taken is not None:
            # An hour row beside its rows is of one of the two only.
            connection.execute(
                "DELETE FROM hours WHERE series_id IN (?, ?) AND NOT is_reduced",
                (series_id, *taken),
            )
            _merge_points(connection, series_id, *taken)
            _merge_hours(connection, series_id, *taken)
            connection.execute("DELETE FROM series WHERE id = ?", taken)
        connection.execute(
            "UPDATE series SET key = ?, tags = ? WHERE id = ?",
            (key, json.dumps(tags, ensure_ascii=False), series_id),
        )


_SHARED = "SELECT time_ns FROM {0} WHERE series_id = ? INTERSECT SELECT time_ns FROM {0} WHERE series_id = ?"


def _merge_points(connection: sqlite3.Connection, into: int, other: int) -> None:
    """Add the rows of a series to another, those at the time of another at the next free ns."""
    for (taken_ns,) in connection.execute(_SHARED.format("points"), (into, other)).fetchall():
        free_ns = taken_ns
        while connection.execute(
            "SELECT 1 FROM points WHERE series_id IN (?, ?) AND time_ns = ?", (into, other, free_ns)
        ).fetchone():
            free_ns += 1
        connection.execute(
            "UPDATE points SET time_ns = ? WHERE series_id = ? AND time_ns = ?",
            (free_ns, other, taken_ns),
        )
    connection.execute("UPDATE points SET series_id = ? WHERE series_id = ?", (into, other))


def _merge_hours(connection: sqlite3.Connection, into: int, other: int) -> None:
    """Add the hour rows of a series to another; two of the same hour become one, of all their rows."""
    (measurement,) = connection.execute(
        "SELECT measurement FROM series WHERE id = ?", (into,)
    ).fetchone()
    for (hour_ns,) in connection.execute(_SHARED.format("hours"), (into, other)).fetchall():
        found = (stored_part(connection, (series_id, hour_ns)) for series_id in (into, other))
        parts = sorted(
            (part for part in found if part is not None), key=lambda part: part.newest_ns
        )
        connection.execute(
            "DELETE FROM hours WHERE series_id IN (?, ?) AND time_ns = ?", (into, other, hour_ns)
        )
        if parts:
            # Without the load: it was that of another device.
            insert_hour(connection, (into, hour_ns), measurement, parts)
    connection.execute("UPDATE hours SET series_id = ? WHERE series_id = ?", (into, other))


def _fields_at(
    connection: sqlite3.Connection,
    placed: Mapping[tuple[int, int], str],
    series_id: int,
    time_ns: int,
) -> str | None:
    """Return the fields of the row at a time, of those just placed or stored; None if it is free."""
    if (series_id, time_ns) in placed:
        return placed[series_id, time_ns]
    found = connection.execute(
        "SELECT fields FROM points WHERE series_id = ? AND time_ns = ?", (series_id, time_ns)
    ).fetchone()
    return None if found is None else str(found[0])


def state_text(document: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a document as it is stored.

    Raises:
        ValueError: It contains NaN or an infinity, which JSON does not have.
        TypeError: It is not a JSON value.
    """
    return json.dumps(document, allow_nan=False)


def put_states(connection: sqlite3.Connection, states: Mapping[str, str], time_ns: int) -> None:
    """Store documents by name; each replaces the previous one.

    Args:
        connection: In a transaction.
        states: As `state_text` returns them.
        time_ns: UTC in ns.
    """
    connection.executemany(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        [(name, text, time_ns) for name, text in states.items()],
    )


def _add_totals(connection: sqlite3.Connection, rows: Iterable[StoredRow]) -> None:
    """Add rows to the totals."""
    added: dict[tuple[str, str], list[Decimal]] = {}
    for row in rows:
        for amount in row.counted:
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


def read_totals(connection: sqlite3.Connection) -> Iterator[StoredSample]:
    """Return every total, in the order of names and labels."""
    rows = connection.execute("SELECT name, labels, value FROM totals ORDER BY name, labels")
    for name, labels, value in rows.fetchall():
        yield StoredSample(name, bounded_json(labels), Decimal(value))
