"""Events as rows of the series."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.core.records import Event, FieldValue, Point
from costprobe.core.schema import make_point


def event_point(event: Event, tags: Mapping[str, str]) -> Point:
    """Return a row of `event`; tags are the host and static labels."""
    fields: dict[str, FieldValue | None] = {
        "severity": event.severity,
        "title": event.title,
        "detail": event.detail or None,
        "before": event.before or None,
        "after": event.after or None,
        "cause": event.cause or None,
        "change_pct": event.change_pct,
        "level_pct": event.level_pct,
        "since_ns": event.since_ns,
        "cost_per_month": event.cost_per_month,
        "currency": event.currency or None,
    }
    metric = {"metric": event.metric} if event.metric else {}
    own_tags = {"kind": event.kind, "device": event.device, **event.subject, **metric}
    return make_point("event", {**tags, **own_tags}, fields, event.time_ns)
