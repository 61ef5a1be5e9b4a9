"""Events of a period with their causes; equal events are merged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from costprobe.core.records import Point
from costprobe.domain.costing.comparison.compare_rows import number
from costprobe.ui.report.model import ReportedChange

MAX_CHANGES: Final = 40
_RANKS: Final = {"drift": 0, "price": 1, "annotation": 2, "software": 3, "fault": 4, "anomaly": 5}
_SEVERITIES: Final = ("critical", "warning", "info")


def changes(events: Iterable[Point]) -> tuple[list[ReportedChange], int]:
    """Return the most important events, the newest first, and the number of omitted ones.

    Events with the same title are merged and counted. If there are too many, drift and price
    events and annotations take precedence over software, faults and anomalies.

    Args:
        events: Rows of `event` in time order.
    """
    by_key: dict[tuple[str, str, str], ReportedChange] = {}
    for row in events:
        change = _change(row, 1)
        key = (change.kind, change.subject, change.title)
        present = by_key.get(key)
        by_key[key] = change if present is None else _change(row, present.times + 1)
    ranked = sorted(by_key.values(), key=_rank)
    listed = sorted(ranked[:MAX_CHANGES], key=lambda change: -change.time_ns)
    return listed, len(ranked) - len(listed)


def _rank(change: ReportedChange) -> tuple[int, int, int]:
    severity = change.severity if change.severity in _SEVERITIES else _SEVERITIES[-1]
    kind = _RANKS.get(change.kind, len(_RANKS))
    return kind, _SEVERITIES.index(severity), -change.time_ns


def _change(row: Point, times: int) -> ReportedChange:
    tags, fields = row.tags, row.fields
    subject = tags.get("service") or tags.get("probe", "")
    device = tags.get("device", "")
    since_ns = number(row, "since_ns")

    def text(name: str) -> str:
        return str(fields.get(name, ""))

    return ReportedChange(
        time_ns=row.time_ns,
        since_ns=row.time_ns if since_ns is None else int(since_ns),
        kind=tags.get("kind", ""),
        severity=text("severity") or "info",
        subject=" on ".join(part for part in (subject, device) if part) or "the host",
        title=text("title"),
        detail=text("detail"),
        cause=text("cause"),
        before=text("before"),
        after=text("after"),
        change_pct=number(row, "change_pct"),
        times=times,
    )
