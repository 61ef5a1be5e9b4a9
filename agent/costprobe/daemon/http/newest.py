"""The newest value of each numeric field of each series, for `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from costprobe.core.records import NS_PER_S, FieldValue, Point

Tags = Mapping[str, str]
_Key = tuple[tuple[str, str], ...]
# Series that differ only in this tag are states of one object, of which one is current.
_STATE_TAG: Final = {"alert": "state"}
# Texts that become labels: rows of these series are few. Their time is a value, for annotations.
_TEXT_LABELS: Final = {
    "event": ("severity", "title", "cause"),
    "alert": ("severity", "cause"),
}
_TEXT_LABEL_MAX: Final = 200


class Newest:
    """The newest value of each numeric field of each series.

    Args:
        max_series: Maximum number of values; others are only counted.
    """

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._count = 0
        self._series: dict[str, dict[_Key, tuple[Tags, dict[str, float]]]] = {}
        self._dropped: set[int] = set()

    @property
    def dropped(self) -> int:
        """Number of values beyond `max_series`."""
        return len(self._dropped)

    def take(self, point: Point) -> None:
        """Add a row; rows of one measurement must come in the order of their times."""
        state = _STATE_TAG.get(point.measurement)
        key = tuple((name, value) for name, value in point.tags.items() if name != state)
        by_tags = self._series.setdefault(point.measurement, {})
        labels, fields = _labelled(point)
        tags, values = by_tags.get(key, (labels, {}))
        if tags != labels:
            self._count -= len(values)
            values = {}
        for field, value in fields.items():
            if isinstance(value, str):
                continue
            if field not in values:
                if self._count >= self._max_series:
                    self._dropped.add(hash((point.measurement, key, field)))
                    continue
                self._count += 1
            values[field] = float(value)
        if values:
            by_tags[key] = (labels, values)
        else:
            by_tags.pop(key, None)

    def by_field(self, measurement: str) -> Iterator[tuple[str, list[tuple[Tags, float]]]]:
        """Return each field of a measurement with tags and value of each series that has it."""
        by_field: dict[str, list[tuple[Tags, float]]] = {}
        for _, (tags, values) in sorted(self._series.get(measurement, {}).items()):
            for field, value in values.items():
                by_field.setdefault(field, []).append((tags, value))
        yield from sorted(by_field.items())


def _labelled(point: Point) -> tuple[Tags, Mapping[str, FieldValue]]:
    """Return the labels and values of a row."""
    texts = _TEXT_LABELS.get(point.measurement)
    if texts is None:
        return point.tags, point.fields
    found = {
        name: str(point.fields[name])[:_TEXT_LABEL_MAX] for name in texts if name in point.fields
    }
    return {**point.tags, **found}, {**point.fields, "time_s": point.time_ns / NS_PER_S}
