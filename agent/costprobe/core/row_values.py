"""Numeric fields of rows, and keys of their tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from costprobe.core.records import Point

_T = TypeVar("_T")


def number(row: Point, field: str) -> float | None:
    """Return a numeric field of a row; None if it is absent."""
    value = row.fields.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers(rows: Iterable[Point], field: str) -> list[float]:
    """Return the values of a numeric field of the rows that have it."""
    values = [row.fields.get(field) for row in rows]
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def keyed(
    rows: Iterable[Point], key_of: Callable[[Mapping[str, str]], _T]
) -> Iterator[tuple[_T, Point]]:
    """Yield the rows with a key of their tags, computed once for rows of a series that follow each other."""
    tags: Mapping[str, str] | None = None
    for row in rows:
        if row.tags is not tags:
            tags = row.tags
            key = key_of(tags)
        yield key, row
