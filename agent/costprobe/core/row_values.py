"""Numeric fields of rows."""

from __future__ import annotations

from collections.abc import Iterable

from costprobe.core.records import FieldValue, Point


def as_number(value: FieldValue | None) -> float | None:
    """Return a numeric value; None for any other."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def number(row: Point, field: str) -> float | None:
    """Return a numeric field of a row; None if it is absent."""
    return as_number(row.fields.get(field))


def numbers(rows: Iterable[Point], field: str) -> list[float]:
    """Return the values of a numeric field of the rows that have it."""
    values = [row.fields.get(field) for row in rows]
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
