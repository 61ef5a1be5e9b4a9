"""One incident's life: pending, firing, flapping, resolved; and who was told of what."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.alert import Alert, Symptom
from agent.alerting.matching import SEVERITIES
from agent.config_alerting import AlertingConfig, RuleConfig
from agent.model import NS_PER_S, Severity

MAX_SYMPTOMS = 200


@dataclass(slots=True)
class Incident:
    """An incident and what the engine must remember of it.

    Attributes:
        alert: As it is listed and told.
        seen_ns: For each symptom, by rule and series, the UTC ns at which it was first seen.
        quiet_ns: UTC ns since which a flapping incident has no symptom; None while it has one.
        told: For each notifier the severity it was told last, and when.
    """

    alert: Alert
    seen_ns: dict[str, int] = field(default_factory=dict)
    quiet_ns: int | None = None
    told: dict[str, tuple[Severity, int]] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """The incident as JSON."""
        return {
            "alert": self.alert.to_document(),
            "seen_ns": self.seen_ns,
            "quiet_ns": self.quiet_ns,
            "told": self.told,
        }

    def shift(self, step_ns: int) -> None:
        """Moves what durations are counted from, in ns, with a calendar that was stepped."""
        self.seen_ns = {series: at_ns + step_ns for series, at_ns in self.seen_ns.items()}
        if self.quiet_ns is not None:
            self.quiet_ns += step_ns
        self.told = {name: (worst, at_ns + step_ns) for name, (worst, at_ns) in self.told.items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Incident:
        """The incident of a document."""
        told = {name: (severity, time_ns) for name, (severity, time_ns) in document["told"].items()}
        return cls(
            Alert.from_document(document["alert"]),
            dict(document["seen_ns"]),
            document["quiet_ns"],
            told,
        )


@dataclass(slots=True)
class Past:
    """What is remembered of an incident's key after it was resolved.

    Attributes:
        resolved_ns: UTC ns of the last end; None before the first.
        changes_ns: UTC ns of firings and ends lately.
    """

    resolved_ns: int | None = None
    changes_ns: list[int] = field(default_factory=list)

    def shift(self, step_ns: int) -> None:
        """Moves them, in ns, with a calendar that was stepped."""
        if self.resolved_ns is not None:
            self.resolved_ns += step_ns
        self.changes_ns = [at_ns + step_ns for at_ns in self.changes_ns]

    def is_flapping(self, settings: AlertingConfig, time_ns: int) -> bool:
        """True if it came and went too often lately."""
        since_ns = time_ns - int(settings.flapping_window_s * NS_PER_S)
        self.changes_ns = [at_ns for at_ns in self.changes_ns if at_ns > since_ns]
        return len(self.changes_ns) >= settings.flapping_changes


def begun(
    name: str, key: str, labels: Mapping[str, str], symptoms: Sequence[Symptom], time_ns: int
) -> Incident:
    """A new incident, pending."""
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
    return Incident(described(alert, symptoms))


def described(alert: Alert, symptoms: Sequence[Symptom]) -> Alert:
    """An alert with the symptoms of now: the worst severity so far, the sentence, the cause."""
    worst = max([alert.severity, *(s.severity for s in symptoms)], key=SEVERITIES.__getitem__)
    ordered = sorted(symptoms, key=lambda s: (s.since_ns, s.rule, s.series))
    telling = min(ordered, key=_telling_order)
    others = len(ordered) - 1
    more = f" (and {others} more series)" if others > 1 else " (and 1 more series)" * others
    return replace(
        alert,
        severity=worst,
        symptoms=tuple(ordered[:MAX_SYMPTOMS]),
        summary=telling.text + more,
        cause=telling.cause or alert.cause,
    )


def is_due(
    incident: Incident, symptoms: Sequence[Symptom], rules: Mapping[str, RuleConfig], time_ns: int
) -> bool:
    """True if one of the symptoms has lasted as long as its rule wants."""
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


def _telling_order(symptom: Symptom) -> tuple[bool, bool, int, int]:
    """The symptom that says most comes first: one with a cause, of the cost, the worst."""
    return (
        symptom.cause in {"", "unknown"},
        not symptom.series.startswith("cost"),
        -SEVERITIES[symptom.severity],
        symptom.since_ns,
    )
