"""A persistent shift of a monitored series, from its event until it reverts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from costprobe.core.config.fields import Duration, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Event
from costprobe.domain.alerting.rules.rule import MAX_SERIES, Rule, RuleConfig, labels_of, where
from costprobe.domain.detection.settings import Metric

# Below this share of the smallest shift, the series has reverted.
REVERTED_SHARE = 0.5


Direction = Literal["up", "down", "both"]


class DriftRuleConfig(RuleConfig):
    """A persistent shift of a monitored series; resolved when it reverts or is accepted as normal."""

    kind: Literal["drift"] = Field(description="Kind of rule.", examples=["drift"])
    metrics: tuple[Metric, ...] = Field(
        ("cost", "latency", "energy", "throughput"), description="Monitored series of a probe."
    )
    at_least: Share = Field(0.01, description="Smallest shift that is reported.")
    direction: Direction = Field("both", description="Direction of the shift.")
    accept_after_s: Duration = key(
        "accept_after",
        86400.0,
        description="When a new level counts as normal and the incident is resolved.",
    )


class DriftRule(Rule):
    """The state of a rule of kind `drift`."""

    def __init__(self, config: DriftRuleConfig) -> None:
        self._config = config
        self._active: dict[str, dict[str, Any]] = {}

    def observe_event(self, event: Event) -> None:
        """Add a drift: a new shift, a further shift, or a reversal."""
        config = self._config
        tags = {**event.subject, "device": event.device}
        if event.kind != "drift" or event.metric not in config.metrics:
            return
        labels = labels_of(tags)
        series = f"{event.metric}{where(labels)}"
        level_pct = event.level_pct if event.level_pct is not None else event.change_pct or 0.0
        min_pct = config.at_least * 100
        if abs(level_pct) < REVERTED_SHARE * min_pct:
            self._active.pop(series, None)
            return
        before = self._active.get(series)
        is_selected = config.direction == "both" or (config.direction == "up") == (level_pct > 0)
        if before is None and (abs(level_pct) < min_pct or not is_selected):
            return
        if before is not None and not is_selected:
            del self._active[series]
            return
        since_ns = event.since_ns if event.since_ns is not None else event.time_ns
        self._active[series] = {
            "labels": dict(labels),
            "level_pct": level_pct,
            "since_at_ns": since_ns if before is None else before["since_at_ns"],
            "reported_at_ns": event.time_ns,
            # A further shift is reported with the cause of the first.
            "text": event.detail or f"{event.title}{_reason(before)}",
            "began": before["began"] if before else event.detail or event.title,
            # An improvement is reported with severity info.
            "severity": "info" if event.severity == "info" else config.severity,
            "cause": event.cause or (before or {}).get("cause", ""),
        }
        while len(self._active) > MAX_SERIES:
            del self._active[next(iter(self._active))]

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return the shifts that have neither reverted nor been accepted as normal."""
        config = self._config
        accept_ns = int(config.accept_after_s * NS_PER_S)
        for series in [
            series
            for series, drift in self._active.items()
            if time_ns - drift["reported_at_ns"] > accept_ns
        ]:
            del self._active[series]
        return [
            Symptom(
                rule=config.name,
                series=series,
                text=drift["text"],
                since_ns=drift["since_at_ns"],
                value=drift["level_pct"],
                threshold=config.at_least * 100,
                cause=drift["cause"],
                severity=drift["severity"],
                labels=drift["labels"],
            )
            for series, drift in self._active.items()
        ]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the active shifts."""
        return self._active

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state."""
        self._active = {str(series): dict(drift) for series, drift in document.items()}


def _reason(before: dict[str, Any] | None) -> str:
    return f"; initial cause: {before['began']}" if before else ""
