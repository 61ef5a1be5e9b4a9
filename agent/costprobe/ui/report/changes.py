"""Events of a period with their causes; equal events are merged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from costprobe.core.columns import number
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import Point
from costprobe.ui.report.model import ReportedChange
from costprobe.ui.text import devices_text

MAX_CHANGES: Final = 40
_RANKS: Final = {"drift": 0, "price": 1, "annotation": 2, "software": 3, "fault": 4, "anomaly": 5}
# The same change of several devices is one if each is no later than this after the first.
_TOGETHER_NS: Final = HOUR_NS
_ANY: Final = "*"
_AMOUNT: Final = re.compile(r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")
_SEVERITIES: Final = ("critical", "warning", "info")


def changes(events: Iterable[Point]) -> tuple[list[ReportedChange], int]:
    """Return the most important events, the newest first, and the number of omitted ones.

    Events with the same title are merged and counted; the same event on several devices within an
    hour, such as a new price of all of them, is one. If there are too many, drift and price events
    and annotations take precedence over software, faults and anomalies.

    Args:
        events: Rows of `event` in time order.
    """
    by_key: dict[tuple[str, str, str], ReportedChange] = {}
    for row in events:
        change = _change(row, 1)
        key = (change.kind, change.subject, change.title)
        present = by_key.get(key)
        by_key[key] = change if present is None else _change(row, present.occurrences + 1)
    merged = _merged(by_key.values())
    ranked = sorted(merged, key=_rank)
    listed = sorted(ranked[:MAX_CHANGES], key=lambda change: -change.time_ns)
    return listed, len(ranked) - len(listed)


def _merged(found: Iterable[ReportedChange]) -> list[ReportedChange]:
    """Return the changes, one for each that several devices have at about the same time."""
    groups: dict[tuple[object, ...], list[ReportedChange]] = {}
    for change in sorted(found, key=lambda one: one.time_ns):
        texts = (change.kind, change.subject, change.title, change.detail)
        key: tuple[object, ...] = (
            *(_named(text, change, _ANY) for text in texts),
            change.before,
            change.after,
            change.change_pct,
            change.occurrences,
        )
        group = groups.get(key)
        if group and change.time_ns - group[0].time_ns <= _TOGETHER_NS:
            group.append(change)
        else:
            groups[(*key, change.time_ns) if group else key] = [change]
    return [_together(group) for group in groups.values()]


def _named(text: str, change: ReportedChange, name: str) -> str:
    """Return a text with another name instead of that of the change's device."""
    if not change.devices:
        return text
    return re.sub(rf"(?<![\w.]){re.escape(change.devices[0])}(?![\w.])", lambda _: name, text)


def _together(group: Sequence[ReportedChange]) -> ReportedChange:
    first = group[0]
    if len(group) == 1:
        return first
    devices = tuple(name for change in group for name in change.devices)
    name = devices_text(devices)
    title = _named(first.title, first, name)
    if first.kind == "price" and first.before and first.after:
        title = f"{name} cost {first.after} each instead of {first.before}"
    return replace(
        first,
        subject=_named(first.subject, first, name),
        title=title,
        detail=_named(first.detail, first, name),
        devices=devices,
    )


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
        change_pct=_price_pct(text("before"), text("after"))
        if tags.get("kind") == "price"
        else number(row, "change_pct"),
        occurrences=times,
        devices=(device,) if device else (),
        named=subject,
    )


def _price_pct(before: str, after: str) -> float | None:
    """Return the change between two prices as events write them, "$4.5/h"; None between currencies."""
    amounts = [_AMOUNT.search(text) for text in (before, after)]
    old, new = (0.0 if one is None else float(one[0].replace(",", "")) for one in amounts)
    is_alike = _AMOUNT.sub("", before) == _AMOUNT.sub("", after)
    return (new / old - 1) * 100 if old and new and is_alike else None
