"""Events as causes: software, boards and annotations around the beginning of a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from costprobe.core.records import BOARD, Point
from costprobe.domain.detection.causes import Cause
from costprobe.domain.detection.runs import (
    ANNOTATION,
    DetectionRun,
    SoftwareChange,
    software_change_of,
)


@dataclass(frozen=True, slots=True)
class Onset:
    """Runs around the beginning of a change.

    Attributes:
        earliest: The last run without any event that may be the cause.
        first: The last run before the events that coincide.
        last: The last run with which the change may have begun.
        latest: The latest run.
    """

    earliest: DetectionRun
    first: DetectionRun
    last: DetectionRun
    latest: DetectionRun


def is_annotation_of(row: Point, device: str, probe: str) -> bool:
    """Return whether a row of `event` is an annotation that concerns a device's probe.

    One without a device or probe concerns all; one of a service too, because it may share the device.
    """
    tags = row.tags
    return (
        tags.get("kind") == ANNOTATION
        and tags.get("device", device) == device
        and tags.get("probe", probe) == probe
    )


def annotations_of(rows: Iterable[Point], onset: Onset) -> list[Cause]:
    """Return the annotations that precede a change as one cause; their effects cannot be separated."""
    found = [
        row
        for row in rows
        if row.tags.get("kind") == ANNOTATION
        if onset.earliest.time_ns < row.time_ns <= onset.last.time_ns
    ]
    return _as_cause(found, onset.first.time_ns)


def service_annotations_of(rows: Iterable[Point], service: str, coincident_ns: int) -> list[Cause]:
    """Return the annotations of a service, or of its host, as one cause.

    Args:
        rows: Rows of `event` that precede the change.
        service: Name of the service.
        coincident_ns: UTC in ns from which an annotation coincides with the change.
    """
    found = [
        row
        for row in rows
        if row.tags.get("kind") == ANNOTATION
        if row.tags.get("service", service) == service and "probe" not in row.tags
    ]
    return _as_cause(found, coincident_ns)


def _as_cause(annotations: Sequence[Point], coincident_ns: int) -> list[Cause]:
    if not annotations:
        return []
    texts = dict.fromkeys(str(row.fields.get("title", "")) for row in annotations)
    coincides = any(row.time_ns > coincident_ns for row in annotations)
    return [Cause(ANNOTATION, ", ".join(texts), coincides=coincides)]


def coincides_with_software(rows: Iterable[Point], onset: Onset) -> bool | None:
    """Return whether an event of software or a board coincides with a change; None without any."""
    times_ns = [
        change.time_ns for change in _changes(rows, onset) if change.time_ns <= onset.last.time_ns
    ]
    return max(times_ns) > onset.first.time_ns if times_ns else None


def _changes(rows: Iterable[Point], onset: Onset) -> Sequence[SoftwareChange]:
    """Return the changes of software around a change, the oldest first."""
    found = [
        change
        for row in rows
        if (change := software_change_of(row)) is not None
        if onset.earliest.time_ns < change.time_ns <= onset.latest.time_ns
    ]
    return sorted(found, key=lambda change: change.time_ns)


def software_of(rows: Iterable[Point], onset: Onset) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed for good, before and after.

    Versions are omitted if the fingerprint is the same.

    Args:
        rows: Rows of `event`.
        onset: The runs with which a cause may have begun.
    """
    before, after = onset.earliest, onset.latest
    changes = _changes(rows, onset)
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old = {**change.before, **old}
        new = {**new, **change.after}
    in_time = {
        key
        for change in changes
        if change.time_ns <= onset.last.time_ns
        for key in (*change.before, *change.after)
    }
    old, new = ({key: tags[key] for key in in_time if key in tags} for tags in (old, new))
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: tags[BOARD]} if BOARD in tags else {} for tags in (old, new)]
        is_later = before.fingerprint == onset.last.fingerprint
        old = {"fingerprint": before.fingerprint, **boards[0]}
        new = {"fingerprint": before.fingerprint if is_later else after.fingerprint, **boards[1]}
    return old, new
