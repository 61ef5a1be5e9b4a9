"""Alerts, symptoms, faults, silences and notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from costprobe.core.records import Severity

AlertState = Literal["pending", "firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One series that violates a rule.

    Attributes:
        rule: The rule.
        series: Identity of the series: "latency of transformer on gpu0".
        text: Observation, in one sentence.
        since_ns: Start, UTC in ns.
        value: Compared value, if any.
        threshold: Limit, if any.
        cause: Named cause; empty if unknown.
        severity: Severity of the rule.
        labels: Tags of the series: device, probe or service.
        detail: Causes and what to do, in one line; empty where `text` has them.
    """

    rule: str
    series: str
    text: str
    since_ns: int
    value: float | None = None
    threshold: float | None = None
    cause: str = ""
    severity: Severity = "warning"
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    detail: str = ""

    def to_document(self) -> dict[str, Any]:
        """Return the symptom as JSON."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class Alert:
    """One incident: all symptoms of one problem.

    Attributes:
        id: Unique identity of this incident.
        name: The group of the rules that detected it.
        state: State of the incident.
        severity: The worst of its symptoms so far.
        labels: Labels that identify it (host, device), those of its series (team) and of the rules.
        summary: What happened, in one line.
        detail: Causes and what to do, in one line; empty where `summary` has them.
        symptoms: Its symptoms, oldest first; of a resolved incident all that it had, with their ends.
        since_ns: UTC in ns of the first symptom.
        fired_ns: UTC in ns of its firing; None while pending.
        ended_ns: UTC in ns of its resolution; None before.
        cause: Named cause; empty if unknown.
        is_flapping: True if its state changed so often that resolutions are delayed.
        raised_from: Previous severity, in a notice of a higher severity; else None.
        revision: How often it got a new cause or doubled since it fired; each is notified.
        is_test: True for the message of `costprobe alerts test`.
        link: URL of the page at the time of the incident; empty if it is not configured.
    """

    id: str
    name: str
    state: AlertState
    severity: Severity
    labels: Mapping[str, str]
    summary: str
    symptoms: tuple[Symptom, ...]
    since_ns: int
    fired_ns: int | None = None
    ended_ns: int | None = None
    cause: str = ""
    is_flapping: bool = False
    raised_from: Severity | None = None
    revision: int = 0
    is_test: bool = False
    detail: str = ""
    link: str = ""

    def to_document(self) -> dict[str, Any]:
        """Return the alert as JSON."""
        symptoms = [symptom.to_document() for symptom in self.symptoms]
        return {**_plain(self), "symptoms": symptoms}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Alert:
        """Return the alert of a document.

        Raises:
            TypeError: It lacks a key or has an unknown one.
        """
        symptoms = tuple(Symptom(**symptom) for symptom in document["symptoms"])
        return cls(**{**document, "symptoms": symptoms})


def _plain(record: Alert | Symptom) -> dict[str, Any]:
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    return {**values, "labels": dict(record.labels)}


@dataclass(frozen=True, slots=True)
class Fault:
    """A current fault of costprobe, of the host, or of a fleet.

    Attributes:
        name: Name of the fault, see `costprobe.alerts.rules.faults.FaultName`.
        subject: The component: "gpu0", "influxdb"; empty if there is only one.
        text: The problem, in one sentence.
        severity: Severity.
        labels: Tags of the component: device, probe, sink, notifier, or a host of a fleet.
        cause: Named cause; by default the name of the fault.
        detail: Causes and what to do, in one line; empty where the problem and `fix` say all.
        value: Size of the fault, if any.
        fix: What to do; empty if nothing is known.
    """

    name: str
    subject: str
    text: str
    severity: Severity = "warning"
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cause: str = ""
    detail: str = ""
    value: float | None = None
    fix: str = ""

    @property
    def words(self) -> str:
        """The problem, and what to do."""
        return f"{self.text}; {self.fix}" if self.fix else self.text


@dataclass(frozen=True, slots=True)
class Silence:
    """A period in which matching incidents send no notifications; they are still stored and listed.

    Attributes:
        id: Short identity, used to end it.
        match: Labels to patterns, in which * and ? are wildcards; all must match.
        starts_ns: UTC in ns.
        ends_ns: UTC in ns.
        comment: Reason.
        author: Author.
    """

    id: str
    match: Mapping[str, str]
    starts_ns: int
    ends_ns: int
    comment: str
    author: str


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert queued for one notifier."""

    notifier: str
    alert: Alert


def silence_document(silence: Silence) -> dict[str, Any]:
    """Return a silence as JSON."""
    return {**asdict(silence), "match": dict(silence.match)}
