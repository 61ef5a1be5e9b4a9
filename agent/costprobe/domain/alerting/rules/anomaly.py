"""Single outliers, until none has occurred for a while."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from costprobe.core.config.fields import Duration, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Event
from costprobe.domain.alerting.rules.rule import MAX_SERIES, Rule, RuleConfig, labels_of, where
from costprobe.domain.detection.settings import Metric

MAX_TIMES = 1000


class AnomalyRuleConfig(RuleConfig):
    """Single outliers; resolved when none has occurred for `within`."""

    kind: Literal["anomaly"] = Field(description="Kind of rule.", examples=["anomaly"])
    metrics: tuple[Metric, ...] = Field(
        ("cost", "latency", "energy", "throughput"), description="Monitored series of a probe."
    )
    at_least: int = Field(1, ge=1, le=1000, description="Number of outliers that fires.")
    within_s: Duration = key(
        "within",
        3600.0,
        description=(
            "Window in which outliers are counted; the incident is resolved after as "
            "long without one."
        ),
    )


class AnomalyRule(Rule):
    """The state of a rule of kind `anomaly`."""

    def __init__(self, config: AnomalyRuleConfig) -> None:
        self._config = config
        self._outliers: dict[str, dict[str, Any]] = {}

    def observe_event(self, event: Event) -> None:
        """Add an anomaly."""
        tags = {**event.subject, "device": event.device}
        if event.kind != "anomaly" or event.metric not in self._config.metrics:
            return
        labels = labels_of(tags)
        series = f"{event.metric}{where(labels)}"
        outliers = self._outliers.pop(series, {"times_at_ns": []})
        # After a restart an event may be delivered again.
        times_ns = [at_ns for at_ns in outliers["times_at_ns"] if at_ns != event.time_ns]
        self._outliers[series] = {
            "labels": dict(labels),
            "times_at_ns": [*times_ns, event.time_ns][-MAX_TIMES:],
            "text": f"{event.title} ({event.detail})",
            "cause": event.cause,
            "change_pct": event.change_pct,
        }
        while len(self._outliers) > MAX_SERIES:
            del self._outliers[next(iter(self._outliers))]

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series with enough outliers in the window."""
        config = self._config
        since_ns = time_ns - int(config.within_s * NS_PER_S)
        symptoms = []
        for series, outliers in list(self._outliers.items()):
            outliers["times_at_ns"] = [
                at_ns for at_ns in outliers["times_at_ns"] if at_ns >= since_ns
            ]
            if not outliers["times_at_ns"]:
                del self._outliers[series]
            elif len(outliers["times_at_ns"]) >= config.at_least:
                symptoms.append(
                    Symptom(
                        rule=config.name,
                        series=series,
                        text=outliers["text"],
                        since_ns=outliers["times_at_ns"][0],
                        value=outliers["change_pct"],
                        cause=outliers["cause"],
                        severity=config.severity,
                        labels=outliers["labels"],
                    )
                )
        return symptoms

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the outliers in the window."""
        return self._outliers

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state."""
        self._outliers = {str(series): dict(outliers) for series, outliers in document.items()}
