"""A share of probe runs that must be within a latency, over a rolling window."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agent.alert import Fault, Symptom
from agent.alerting.rules.evaluator import Series, labels_of, where
from agent.calendar_step import CalendarStep
from agent.config_alerting import SloRuleConfig
from agent.model import NS_PER_S, Event, Point
from agent.units import format_duration

BUCKETS = 240


class Slo:
    """A latency objective at work: it counts runs in buckets of time."""

    def __init__(self, rule: SloRuleConfig) -> None:
        self._rule = rule
        self._bucket_ns = max(1, int(rule.window_s * NS_PER_S) // BUCKETS)
        # For each series its buckets: [good runs, all runs].
        self._runs: Series[dict[int, list[int]]] = Series()
        self._since_ns: dict[str, int] = {}

    def observe(self, point: Point) -> None:
        """Takes a row of `probe`."""
        value = point.fields.get(self._rule.field)
        if not isinstance(value, int | float):
            return
        labels = labels_of(point.tags)
        buckets = self._runs.get(labels, {})
        counts = buckets.setdefault(point.time_ns // self._bucket_ns, [0, 0])
        counts[0] += value <= self._rule.within_ms
        counts[1] += 1
        self._runs.keep(labels, buckets)

    def notice(self, event: Event) -> None:
        """Objectives look at rows only."""

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:  # noqa: ARG002 - of the protocol
        """Each series that misses its objective."""
        rule = self._rule
        oldest = time_ns // self._bucket_ns - BUCKETS
        found = []
        since_ns: dict[str, int] = {}
        for labels, buckets in list(self._runs.items()):
            kept = {bucket: counts for bucket, counts in buckets.items() if bucket > oldest}
            if not kept:
                del self._runs[labels]
                continue
            self._runs[labels] = kept
            good, runs = (sum(counts[i] for counts in kept.values()) for i in (0, 1))
            if runs < rule.min_runs or good >= rule.objective * runs:
                continue
            series = f"objective {rule.name}{where(labels)}"
            since_ns[series] = self._since_ns.get(series, time_ns)
            found.append(
                Symptom(
                    rule=rule.name,
                    series=series,
                    text=(
                        f"{good} of {runs} runs{where(labels)} in the last"
                        f" {format_duration(rule.window_s)} had {rule.field} within"
                        f" {rule.within_ms:g} ms: {100 * good / runs:.1f} %, below the objective"
                        f" of {100 * rule.objective:g} %"
                    ),
                    since_ns=since_ns[series],
                    value=100 * good / runs,
                    threshold=100 * rule.objective,
                    severity=rule.severity,
                    labels=dict(labels),
                )
            )
        self._since_ns = since_ns
        return found

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar."""
        for labels, buckets in self._runs.items():
            moved: dict[int, list[int]] = {}
            for bucket, (good, runs) in buckets.items():
                now = step.of_ns(bucket * self._bucket_ns) // self._bucket_ns
                counts = moved.setdefault(now, [0, 0])
                counts[0] += good
                counts[1] += runs
            self._runs[labels] = moved
        self._since_ns = {series: step.of_ns(at_ns) for series, at_ns in self._since_ns.items()}

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """The counts, with the buckets' length: another window begins anew."""
        runs = [
            [list(labels), [[bucket, *counts] for bucket, counts in buckets.items()]]
            for labels, buckets in self._runs.items()
        ]
        return {"bucket_ns": self._bucket_ns, "runs": runs, "since_ns": self._since_ns}

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Goes on from a document."""
        if document["bucket_ns"] != self._bucket_ns:
            return
        for labels, buckets in document["runs"]:
            key = tuple((name, value) for name, value in labels)
            self._runs.keep(key, {bucket: [good, runs] for bucket, good, runs in buckets})
        self._since_ns = dict(document["since_ns"])
