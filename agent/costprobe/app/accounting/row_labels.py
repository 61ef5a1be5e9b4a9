"""The operator's labels of probes and services, as tags of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from costprobe.core.records import Point


class Labelled(Protocol):
    """A section of the configuration with a name and labels."""

    @property
    def name(self) -> str:
        """Value of the tag of its rows."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Further tags of its rows."""
        ...


class RowLabels:
    """Adds labels to rows; the label of a probe or service replaces that of the host.

    Args:
        probes: The configured probes.
        services: The configured services.
    """

    def __init__(self, probes: Iterable[Labelled] = (), services: Iterable[Labelled] = ()) -> None:
        self._labels = {
            (tag, section.name): section.labels
            for tag, sections in (("probe", probes), ("service", services))
            for section in sections
            if section.labels
        }

    def of(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of the probe or service that tags belong to."""
        found: dict[str, str] = {}
        for tag in ("probe", "service"):
            found |= self._labels.get((tag, tags.get(tag, "")), {})
        return found

    def added_to(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return rows with the labels of the probe or service that they belong to."""
        if not self._labels:
            return points
        return [self._with_labels(point) for point in points]

    def _with_labels(self, point: Point) -> Point:
        tags = {**point.tags, **self.of(point.tags)}
        return replace(point, tags=tags) if tags != point.tags else point
