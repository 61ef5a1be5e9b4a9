"""A share of probe runs that must stay within a latency, over a rolling window."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from costprobe.core.config.fields import Duration, Name, Share, key
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import format_duration
from costprobe.domain.alerting.rules.compared_field import numeric_field
from costprobe.domain.alerting.rules.rule import Rule, RuleConfig, SeriesTable, labels_of, where

BUCKETS = 240


class SloRuleConfig(RuleConfig):
    """A share of probe runs that must stay within a latency, over a rolling window."""

    kind: Literal["slo"] = Field(description="Kind of rule.", examples=["slo"])
    field: Name = Field("latency_p90_ms", description="Field of `probe` that is compared.")
    within_ms: float = Field(gt=0, description="Longest acceptable latency in ms.", examples=[12])
    objective: Share = Field(
        0.99, description="Share of runs that must be within it.", examples=["99%"]
    )
    window_s: Duration = key(
        "window", 86400.0, description="Rolling window over which runs are counted."
    )
    min_runs: int = Field(12, ge=1, le=100_000, description="Fewest runs for an evaluation.")

    @field_validator("field")
    @classmethod
    def _is_numeric(cls, field: str) -> str:
        return numeric_field("probe", field)


class SloRule(Rule):
    """The state of a rule of kind `slo`: counts of runs in time buckets."""

    measurement = "probe"

    def __init__(self, config: SloRuleConfig) -> None:
        self._config = config
        self._bucket_ns = max(1, int(config.window_s * NS_PER_S) // BUCKETS)
        # Series -> bucket -> [good runs, all runs].
        self._runs: SeriesTable[dict[int, list[int]]] = SeriesTable()
        self._since_ns: dict[str, int] = {}

    def observe(self, row: Point) -> None:
        """Add a row of `probe`."""
        value = row.fields.get(self._config.field)
        if not isinstance(value, int | float):
            return
        labels = labels_of(row.tags)
        buckets = self._runs.get(labels, {})
        self._count(buckets, row.time_ns, int(value <= self._config.within_ms), 1)
        self._runs.put(labels, buckets)

    def evaluate(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the contract
        """Return each series that misses its objective."""
        config = self._config
        oldest = time_ns // self._bucket_ns - BUCKETS
        symptoms = []
        since_ns: dict[str, int] = {}
        for labels, buckets in list(self._runs.items()):
            in_window = {bucket: counts for bucket, counts in buckets.items() if bucket > oldest}
            if not in_window:
                del self._runs[labels]
                continue
            self._runs[labels] = in_window
            good, runs = (sum(counts[i] for counts in in_window.values()) for i in (0, 1))
            if runs < config.min_runs or good >= config.objective * runs:
                continue
            series = f"objective {config.name}{where(labels)}"
            since_ns[series] = self._since_ns.get(series, time_ns)
            symptoms.append(
                Symptom(
                    rule=config.name,
                    series=series,
                    text=(
                        f"{good} of {runs} runs{where(labels)} in the last"
                        f" {format_duration(config.window_s)} had {config.field} within"
                        f" {config.within_ms:g} ms: {100 * good / runs:.1f} %, below the objective"
                        f" of {100 * config.objective:g} %"
                    ),
                    since_ns=since_ns[series],
                    value=100 * good / runs,
                    threshold=100 * config.objective,
                    severity=config.severity,
                    labels=dict(labels),
                )
            )
        self._since_ns = since_ns
        return symptoms

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the counts with the bucket length: a changed window starts from zero."""
        runs = self._runs.document(
            lambda buckets: {
                "runs_at_ns": [bucket * self._bucket_ns for bucket in buckets],
                "counts": list(buckets.values()),
            }
        )
        return {"bucket_ns": self._bucket_ns, "runs": runs, "since_at_ns": self._since_ns}

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Restore a state of the same bucket length."""
        if document["bucket_ns"] != self._bucket_ns:
            return
        self._runs.restore(document["runs"], self._buckets)
        self._since_ns = dict(document["since_at_ns"])

    def _buckets(
        self, runs_at_ns: Sequence[int], counts: Sequence[tuple[int, int]]
    ) -> dict[int, list[int]]:
        buckets: dict[int, list[int]] = {}
        for time_ns, (good, runs) in zip(runs_at_ns, counts, strict=True):
            self._count(buckets, time_ns, good, runs)
        return buckets

    def _count(self, buckets: dict[int, list[int]], time_ns: int, good: int, runs: int) -> None:
        counts = buckets.setdefault(time_ns // self._bucket_ns, [0, 0])
        counts[0] += good
        counts[1] += runs
