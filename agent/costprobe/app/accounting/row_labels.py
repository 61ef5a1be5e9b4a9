"""The operator's labels of probes and services, as tags of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from costprobe.core.records import Point

# More than the containers of a node.
MAX_ADDED: Final = 1024


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

        self._added: dict[str, Mapping[str, str]] = {}

    def add_service(self, name: str, labels: Mapping[str, str]) -> None:
        """Add the labels of a service that is not configured; the oldest of many are dropped."""
        self._added.pop(name, None)
        self._added[name] = labels
        for oldest in list(self._added)[:-MAX_ADDED]:
            del self._added[oldest]

    def of(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of the probe or service that tags belong to."""
        found: dict[str, str] = {}
        for tag in ("probe", "service"):
            found |= self._labels.get((tag, tags.get(tag, "")), {})
        found |= self._added.get(tags.get("service", ""), {})
        return found

    def added_to(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return rows with the labels of the probe or service that they belong to."""
        if not self._labels and not self._added:
            return points
        return [self._with_labels(point) for point in points]

    def _with_labels(self, point: Point) -> Point:
        tags = {**point.tags, **self.of(point.tags)}
        return replace(point, tags=tags) if tags != point.tags else point
