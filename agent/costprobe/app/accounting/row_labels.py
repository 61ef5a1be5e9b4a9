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

    def added_to(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return rows with the labels of the probe or service that they belong to."""
        if not self._labels:
            return points
        return [self._with_labels(point) for point in points]

    def _with_labels(self, point: Point) -> Point:
        tags = dict(point.tags)
        for tag in ("probe", "service"):
            tags |= self._labels.get((tag, tags.get(tag, "")), {})
        return replace(point, tags=tags) if tags != point.tags else point
