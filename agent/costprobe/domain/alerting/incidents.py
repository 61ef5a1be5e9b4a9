"""State of one incident: pending, firing, flapping, resolved; and the notifications sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from costprobe.core.device_names import natural
from costprobe.core.incident import Alert, Symptom
from costprobe.core.records import NS_PER_S, Severity
from costprobe.domain.alerting.matching import SEVERITIES
from costprobe.domain.alerting.rules.rule import RuleConfig
from costprobe.domain.alerting.settings import AlertingConfig

MAX_SYMPTOMS = 200
MAX_CAUSES = 20
# A drift that grew by this factor is notified again.
GROWTH = 2.0
MAX_HISTORIES = 1000
HISTORY_NS = 7 * 86_400 * NS_PER_S


@dataclass(slots=True)
class Incident:
    """An incident and its state in the engine.

    Attributes:
        alert: The alert as it is listed and sent.
        seen_ns: First observation of each symptom, by rule and series, UTC ns.
        quiet_ns: Start of the time without symptoms of a flapping incident, UTC ns; else None.
        notified: Last severity, UTC ns and revision of notification, by notifier.
        causes: Its causes since it fired, `unknown` included.
        size: Largest shift of its drifts at the last revision, in percent.
    """

    alert: Alert
    seen_ns: dict[str, int] = field(default_factory=dict)
    quiet_ns: int | None = None
    notified: dict[str, tuple[Severity, int, int]] = field(default_factory=dict)
    causes: list[str] = field(default_factory=list)
    size: float = 0.0

    def revise(self, rules: Mapping[str, RuleConfig]) -> bool:
        """Count a revision if a firing incident has a new cause or its drift doubled.

        Args:
            rules: The rules in force, by name.
        """
        alert = self.alert
        # An improvement in an incident of deteriorations is no reason to notify again.
        drifts = [
            symptom
            for symptom in alert.symptoms
            if rules[symptom.rule].kind == "drift"
            and (symptom.severity != "info" or alert.severity == "info")
        ]
        size = max((abs(drift.value or 0.0) for drift in drifts), default=0.0)
        # An outlier or a threshold names a cause too, but only a drift lasts.
        is_of_drift = any(drift.cause == alert.cause for drift in drifts)
        is_known = alert.cause in {"", "unknown", *self.causes}
        is_new = bool(self.causes) and is_of_drift and not is_known
        is_doubled = 0 < GROWTH * self.size <= size
        if alert.cause and alert.cause not in self.causes:
            self.causes = [*self.causes, alert.cause][-MAX_CAUSES:]
        is_revised = alert.fired_ns is not None and (is_new or is_doubled)
        if is_revised:
            self.alert = replace(alert, revision=alert.revision + 1)
        if is_revised or not self.size:
            self.size = size
        return is_revised

    def to_document(self) -> dict[str, Any]:
        """Return the incident as JSON."""
        return {
            "alert": self.alert.to_document(),
            "seen_ns": self.seen_ns,
            "quiet_ns": self.quiet_ns,
            "notified": self.notified,
            "causes": self.causes,
            "size": self.size,
        }

    def shift(self, step_ns: int) -> None:
        """Shift stored instants by a wall-clock step in ns."""
        self.seen_ns = {series: at_ns + step_ns for series, at_ns in self.seen_ns.items()}
        if self.quiet_ns is not None:
            self.quiet_ns += step_ns
        self.notified = {
            name: (worst, at_ns + step_ns, revision)
            for name, (worst, at_ns, revision) in self.notified.items()
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Incident:
        """Return the incident that `to_document` wrote."""
        notified = {
            name: (severity, time_ns, *(revision or [0]))
            for name, (severity, time_ns, *revision) in document["notified"].items()
        }
        return cls(
            Alert.from_document(document["alert"]),
            dict(document["seen_ns"]),
            document["quiet_ns"],
            notified,
            list(document.get("causes", ())),
            document.get("size", 0.0),
        )


@dataclass(slots=True)
class IncidentHistory:
    """State of an incident key that outlives its incidents.

    Attributes:
        resolved_ns: UTC ns of the last resolution; None before the first.
        changes_ns: UTC ns of recent firings and resolutions.
    """

    resolved_ns: int | None = None
    changes_ns: list[int] = field(default_factory=list)

    def shift(self, step_ns: int) -> None:
        """Shift stored instants by a wall-clock step in ns."""
        if self.resolved_ns is not None:
            self.resolved_ns += step_ns
        self.changes_ns = [at_ns + step_ns for at_ns in self.changes_ns]

    def is_flapping(self, settings: AlertingConfig, time_ns: int) -> bool:
        """Return whether the state changed too often in the flapping window."""
        since_ns = time_ns - int(settings.flapping_window_s * NS_PER_S)
        self.changes_ns = [at_ns for at_ns in self.changes_ns if at_ns > since_ns]
        return len(self.changes_ns) >= settings.flapping_changes

    def is_cooling(self, cool_down_s: float, time_ns: int) -> bool:
        """Return whether the cool-down of a resolved incident still applies."""
        if self.resolved_ns is None:
            return False
        return time_ns - self.resolved_ns < cool_down_s * NS_PER_S


def expire(
    histories: dict[str, IncidentHistory], incidents: Mapping[str, Incident], time_ns: int
) -> None:
    """Remove histories without a change for HISTORY_NS, and the oldest beyond MAX_HISTORIES.

    Args:
        histories: Histories by the key of their incidents.
        incidents: The present incidents, whose histories stay.
        time_ns: Present UTC in ns.
    """
    for key, history in list(histories.items()):
        latest_ns = max([history.resolved_ns or 0, *history.changes_ns])
        if key not in incidents and time_ns - latest_ns > HISTORY_NS:
            del histories[key]
    for key in [key for key in histories if key not in incidents][:-MAX_HISTORIES]:
        del histories[key]


def in_order(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Return alerts in the order of a list: firing ones first, then the worst, then the oldest."""
    return tuple(
        sorted(
            alerts,
            key=lambda alert: (
                alert.state != "firing",
                -SEVERITIES[alert.severity],
                alert.since_ns,
            ),
        )
    )


def new_incident(
    name: str, key: str, labels: Mapping[str, str], symptoms: Sequence[Symptom], time_ns: int
) -> Incident:
    """Return a new pending incident."""
    identity = hashlib.sha256(f"{key}\n{time_ns}".encode()).hexdigest()[:16]
    alert = Alert(
        id=identity,
        name=name,
        state="pending",
        severity="info",
        labels=dict(labels),
        summary="",
        symptoms=(),
        since_ns=min(time_ns, *(symptom.since_ns for symptom in symptoms)),
    )
    return Incident(with_symptoms(alert, symptoms))


def with_symptoms(alert: Alert, symptoms: Sequence[Symptom]) -> Alert:
    """Return an alert with its current symptoms, its worst severity so far, summary and cause."""
    worst = max([alert.severity, *(s.severity for s in symptoms)], key=SEVERITIES.__getitem__)
    ordered = sorted(symptoms, key=lambda s: (s.since_ns, s.rule, natural(s.series)))
    leading = leading_symptom(ordered)
    others = len(ordered) - 1
    suffix = f" (and {others} more series)" if others > 1 else " (and 1 more series)" * others
    return replace(
        alert,
        severity=worst,
        symptoms=tuple(ordered[:MAX_SYMPTOMS]),
        summary=leading.text + suffix,
        detail=leading.detail,
        cause=leading.cause or alert.cause,
    )


def is_due(
    incident: Incident, symptoms: Sequence[Symptom], rules: Mapping[str, RuleConfig], time_ns: int
) -> bool:
    """Return whether a symptom has lasted for `for` of its rule."""
    seen_ns = {}
    for symptom in symptoms:
        identity = f"{symptom.rule}\n{symptom.series}"
        seen_ns[identity] = incident.seen_ns.get(identity, time_ns)
    incident.seen_ns = seen_ns
    return any(
        time_ns - seen_ns[f"{symptom.rule}\n{symptom.series}"]
        >= rules[symptom.rule].for_s * NS_PER_S
        for symptom in symptoms
    )


def leading_symptom(symptoms: Sequence[Symptom]) -> Symptom:
    """Return the symptom that the summary is about."""
    return min(symptoms, key=_leading_order)


def _leading_order(symptom: Symptom) -> tuple[bool, bool, int, int]:
    """Sort key of the summary: symptoms with a cause first, then of cost or time, then the worst."""
    return (
        symptom.cause in {"", "unknown"},
        not symptom.series.startswith(("cost", "serving_time")),
        -SEVERITIES[symptom.severity],
        symptom.since_ns,
    )


def page_link(public_url: str, time_ns: int) -> str:
    """Return the URL of the dashboard's page at a UTC time in ns."""
    moment = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    return f"{public_url.rstrip('/')}/?at={moment:%Y-%m-%dT%H:%M:%SZ}"
