"""A load curve that differs from the level before, from its event until a curve is back."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from costprobe.core.config.fields import Duration, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.row_values import number
from costprobe.core.schema import LOAD_CURVE
from costprobe.domain.alerting.rules.rule import Rule, RuleConfig, SeriesTable, labels_of, where
from costprobe.domain.costing.load.change import ACCEPTED_AFTER_S, CHANGE_MIN


class LoadCurveRuleConfig(RuleConfig):
    """A changed load curve; resolved when a later curve is back, or accepted as normal."""

    kind: Literal["load_curve"] = Field(description="Kind of rule.", examples=["load_curve"])
    at_least: Share = Field(
        CHANGE_MIN, description="Smallest change of the throughput at the same loads."
    )
    accept_after_s: Duration = key(
        "accept_after",
        ACCEPTED_AFTER_S,
        description="When a new level counts as normal and the incident is resolved.",
    )


class LoadCurveRule(Rule):
    """The state of a rule of kind `load_curve`: the shift of each probe's curve."""

    measurement = "event"

    def __init__(self, config: LoadCurveRuleConfig) -> None:
        self._config = config
        self._shifts: SeriesTable[dict[str, Any]] = SeriesTable()

    def observe(self, row: Point) -> None:
        """Add an event of a changed load curve; one of a level near 0 ends the shift."""
        if row.tags.get("metric") != LOAD_CURVE:
            return
        labels = labels_of(row.tags)
        level_pct = number(row, "level_pct") or 0.0
        if abs(level_pct) < self._config.at_least * 100:
            self._shifts.pop(labels, None)
            return
        before = self._shifts.get(labels)
        since_ns = int(number(row, "since_ns") or row.time_ns)
        is_improvement = row.fields.get("severity") == "info"
        self._shifts.put(
            labels,
            {
                "level_pct": level_pct,
                "since_at_ns": since_ns if before is None else before["since_at_ns"],
                "reported_at_ns": row.time_ns,
                "text": str(row.fields.get("title", "")),
                "detail": str(row.fields.get("detail", "")),
                "cause": str(row.fields.get("cause", "")),
                "severity": "info" if is_improvement else self._config.severity,
            },
        )

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return the curves that are neither back nor accepted as normal."""
        config = self._config
        accept_ns = int(config.accept_after_s * NS_PER_S)
        for labels, shift in list(self._shifts.items()):
            if time_ns - shift["reported_at_ns"] > accept_ns:
                del self._shifts[labels]
        return [
            Symptom(
                rule=config.name,
                series=f"{LOAD_CURVE}{where(labels)}",
                text=shift["text"],
                detail=shift["detail"],
                since_ns=shift["since_at_ns"],
                value=shift["level_pct"],
                threshold=config.at_least * 100,
                cause=shift["cause"],
                severity=shift["severity"],
                labels=dict(labels),
            )
            for labels, shift in self._shifts.items()
        ]

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the shifts."""
        return self._shifts.document(lambda shift: shift)

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state."""
        self._shifts.restore(document, lambda **shift: shift)
