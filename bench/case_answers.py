"""costprobe's own answers to scripted cases: their rows replayed through detectors, rules and causes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean

from case_rows import START_S, rows_of
from case_scores import EARLY_H, CaseAnswer
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.replay import COLLECTOR, replay
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.alerts.settings import AlertingConfig
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.delivery.contract import NotifierConfig
from costprobe.drift.causes import UNKNOWN, Explanation
from costprobe.drift.findings import CONTENTION, Finding
from costprobe.drift.message import Key, change_of
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.settings import DetectionConfig
from scripted_case import ScriptedCase

MAX_RUNS = 10_000
H_NS = 3600 * NS_PER_S


class CaseRows:
    """The rows of a case by measurement, as a drift monitor asks for them."""

    def __init__(self, rows: Sequence[Point]) -> None:
        self._rows = {
            name: [row for row in rows if row.measurement == name]
            for name in ("probe", "cost", "event")
        }
        self._times_ns = {
            name: [row.time_ns for row in found] for name, found in self._rows.items()
        }

    def __call__(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        """Return the newest rows of a measurement in a span of UTC ns; of the only probe."""
        del device, probe
        first, last = (bisect_left(self._times_ns[measurement], at_ns) for at_ns in span_ns)
        return self._rows[measurement][max(first, last - limit) : last]


def answer_of(case: ScriptedCase) -> CaseAnswer:
    """Replay a case; the answer is what the first message says."""
    rows = rows_of(case)
    history = CaseRows(rows)
    rules = [
        rule.model_copy(update={"notify": None}) for rule in effective_rules((), use_defaults=True)
    ]
    collector = NotifierConfig(name=COLLECTOR, kind="replay")
    engine = AlertEngine(rules, AlertingConfig(), (), (collector,), {"host": "h1"})
    monitor = DriftMonitor(DetectionConfig(), history)
    found = replay((row for row in rows if row.measurement != "event"), engine, monitor, 300)
    drifts = [event for event in found.events if event.kind == "drift" and event.change_pct]
    onset_ns = START_S * NS_PER_S + int(case.onset_h * H_NS)
    earliest_ns = onset_ns - int(EARLY_H * H_NS)
    late = [event for event in drifts if (event.since_ns or event.time_ns) >= earliest_ns]
    alarms = _alarms(case, drifts)
    first = _first(late)
    if first is None:
        return CaseAnswer(alarms=alarms, incidents=len(found.incidents))
    explained = _explanation_of(first, history)
    shares = {cause.name: cause.share.mean for cause in explained.causes if cause.share}
    return CaseAnswer(
        first=first.cause,
        metric=first.metric,
        shares={**shares, UNKNOWN: 1 - sum(shares.values())},
        delay_h=(first.time_ns - onset_ns) / H_NS if case.changes else None,
        alarms=alarms,
        incidents=len(found.incidents),
        text=f"{first.title}: {first.detail}",
    )


def _explanation_of(event: Event, history: CaseRows) -> Explanation:
    """Return the explanation in the event's message, which contains it as text."""
    since_ns = event.since_ns or event.time_ns
    change = math.log1p((event.change_pct or 0.0) / 100)
    metric = event.metric
    if metric == CONTENTION:
        # Its percentage is that of the runs beside a neighbour.
        rows = history("probe", "", "", (since_ns, event.time_ns + 1), MAX_RUNS)
        metric = "cost"
        change *= fmean(row.fields.get("contended") is True for row in rows)
    finding = Finding(
        "drift", event.time_ns / NS_PER_S, since_ns / NS_PER_S, 1.0, math.exp(change), change
    )
    key: Key = (event.device, event.subject["probe"], metric)  # type: ignore[assignment]
    return change_of(finding, key, (0, since_ns), event.time_ns, history).explanation


def _alarms(case: ScriptedCase, drifts: Sequence[Event]) -> int:
    """Return the number of drifts before everything scripted."""
    hours = [change.hour for change in case.changes]
    first_ns = START_S * NS_PER_S + int((min(hours, default=case.hours) - EARLY_H) * H_NS)
    return sum((event.since_ns or event.time_ns) < first_ns for event in drifts)


def _first(drifts: Sequence[Event]) -> Event | None:
    """Return the drift that leads the first message: of the cost, if it comes within an hour."""
    if not drifts:
        return None
    soon = [event for event in drifts if event.time_ns - drifts[0].time_ns < H_NS]
    return min(soon, key=lambda event: (event.cause in {"", UNKNOWN}, event.metric != "cost"))
