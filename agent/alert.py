"""An incident as operators are told of it: one alert, the symptoms it stands for, its life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from agent.model import Severity

AlertState = Literal["pending", "firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One series that a rule finds wrong.

    Attributes:
        rule: The rule.
        series: What is wrong, to tell it from others: "latency of transformer on gpu0".
        text: What was seen, in one sentence.
        since_ns: UTC in ns at which it began.
        value: The value that was compared, where there is one.
        threshold: What it was compared with, where there is one.
        cause: Named cause, where one is known.
        severity: The rule's.
        labels: Tags of the series: device, probe or service.
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


@dataclass(frozen=True, slots=True)
class Alert:
    """One incident; many symptoms of one trouble are one alert.

    Attributes:
        id: Lasting identity of this incident: no two incidents share one.
        name: The group of the rules that found it.
        state: Where it is in its life.
        severity: The worst of its symptoms so far.
        labels: What tells it from other incidents (host, device), and the rules' own labels.
        summary: One sentence that a person can act on.
        symptoms: What it stands for, the oldest first; of a resolved one, those it had.
        since_ns: UTC in ns of the first symptom.
        fired_ns: UTC in ns at which it began to fire; None while pending.
        ended_ns: UTC in ns at which it was resolved; None before.
        cause: Named cause, where one is known.
        is_flapping: True if it came and went so often that its ends are not told any more.
        raised_from: The severity before, in the message that tells of a rise; else None.
        is_test: True for the message of `infercost alerts test`.
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
    is_test: bool = False

    def to_document(self) -> dict[str, Any]:
        """The alert as JSON holds it."""
        return {**_plain(self), "symptoms": [_plain(symptom) for symptom in self.symptoms]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Alert:
        """The alert that a document holds.

        Raises:
            TypeError: It lacks a key or has one too many.
        """
        symptoms = tuple(Symptom(**symptom) for symptom in document["symptoms"])
        return cls(**{**document, "symptoms": symptoms})


def _plain(record: Alert | Symptom) -> dict[str, Any]:
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    return {**values, "labels": dict(record.labels)}


@dataclass(frozen=True, slots=True)
class Fault:
    """A part that does not work now.

    Attributes:
        name: Which fault, see `agent.config_alerting.FaultName`.
        subject: Which part: "gpu0", "influxdb"; empty where there is one of its kind.
        text: What is wrong and what to do, in one sentence.
        severity: How bad.
        labels: Tags of what it concerns: device, probe, sink, notifier.
    """

    name: str
    subject: str
    text: str
    severity: Severity = "warning"
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which matched incidents notify nobody; they are kept and listed all the same.

    Attributes:
        id: Short identity, by which it is ended.
        match: Labels to patterns, in which * and ? are wildcards; all must match.
        starts_ns: UTC in ns.
        ends_ns: UTC in ns.
        comment: Why.
        author: Who.
    """

    id: str
    match: Mapping[str, str]
    starts_ns: int
    ends_ns: int
    comment: str
    author: str


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert on its way to one notifier."""

    notifier: str
    alert: Alert
