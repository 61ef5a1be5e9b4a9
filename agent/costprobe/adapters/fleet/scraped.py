"""PromQL over the metrics of `/metrics`: Prometheus and compatible databases that scrape the hosts.

Sums are differences of the monotonic counters. `increase()` extrapolates to the ends of its range, so
it is used only for a counter that was reset in the range (the store of the host was created again);
every other increase is exact between the scrapes.
Source: https://prometheus.io/docs/prometheus/latest/querying.
"""

from __future__ import annotations

from typing import Final

from costprobe.adapters.fleet.promql import (
    HAS_WEIGHT,
    MEAN_WEIGHT,
    ROLLUP,
    PromQl,
    across,
    covered,
    matchers,
    over_range,
)
from costprobe.adapters.fleet.question import Question
from costprobe.adapters.fleet.reader import Span
from costprobe.core.counters import COUNTERS, DESCRIPTIVE, PREFIX, RUN_LATENCY
from costprobe.core.label_names import label_name

_MODEL: Final = "served_model"
HOUR_S: Final = 3600
# Evaluations of a subquery for the newest sample.
_NEWEST_STEPS: Final = 240


class Scraped(PromQl):
    """Asks about counters and newest values that a Prometheus scraped."""

    def label_name(self, tag: str) -> str:
        """Return the label of a tag, as `/metrics` writes it."""
        return label_name(tag)

    def expression(self, question: Question, range_s: int, span: Span) -> str | None:
        """Return the PromQL of a question, evaluated at the end of a range; None if there is none."""
        del span
        by, identity = self._grouping(question.by), self._grouping(question.identity)
        how = question.over_time
        counter = self._counter(question)
        gauge = self._gauge(question, question.field)
        text: str | None = None
        if how == "sum" and counter:
            text = f"sum by {by} ({self._once(increase(counter, range_s))})"
        elif how == "count" and question.across == "count":
            each = f"count_over_time({counter or gauge}[{range_s}s])"
            text = f"count by {by} (count by {identity} ({each}))"
        elif how == "count":
            text = self._count(question, by, range_s)
        elif how == "covered":
            each = covered(counter or gauge, identity, question.bucket_s, range_s)
            text = f"sum by {by} ({each})"
        elif how == "newest":
            text = f"max by {by} ({newest(gauge, range_s)})"
        elif how == "weighted" and counter:
            weight = over_range("mean", self._gauge(question, question.weight), range_s - 1)
            weight = f"* on (host, device) group_left () max by (host, device) ({weight})"
            each = f"{self._once(increase(counter, range_s))} {weight}"
            # A factor of 1 where there is a weight.
            parts = ((MEAN_WEIGHT, each), (HAS_WEIGHT, f"{each} ^ 0"))
            text = " or ".join(
                f'label_replace(sum by {by} ({one}), "{ROLLUP}", "{name}", "", "")'
                for name, one in parts
            )
        elif how in ("mean", "median", "max", "share"):
            # Versions before 3.0 include the start of a range.
            each = self._once(over_range(how, gauge, range_s - 1))
            text = across(question.across, by, each)
        return text

    def _grouping(self, tags: tuple[str, ...]) -> str:
        return f"({', '.join(label_name(tag) for tag in tags)})"

    def _once(self, each: str) -> str:
        """Count copies of replicated servers once."""
        labels = self._config.replica_labels
        return f"max without ({', '.join(map(label_name, labels))}) ({each})" if labels else each

    def _counter(self, question: Question) -> str | None:
        """Return the selector of the counter that adds up a field; None without one."""
        for counter in COUNTERS.get(question.measurement, ()):
            if counter.field == question.field:
                name, where = counter.name, dict(question.where)
                if _MODEL in question.present:
                    name = name.replace("service_", "model_", 1)
                elif where.get(_MODEL) == "":
                    del where[_MODEL]
                kept = {tag: value for tag, value in where.items() if tag not in DESCRIPTIVE}
                return f"{PREFIX}{name}_total{self._labels(question, kept)}"
        return None

    def _gauge(self, question: Question, field: str) -> str:
        labels = self._labels(question, dict(question.where))
        return f"{PREFIX}{question.measurement}_{field}{labels}"

    def _labels(self, question: Question, where: dict[str, str]) -> str:
        named = {label_name(tag): value for tag, value in where.items()}
        return matchers(named, tuple(map(label_name, question.present)), question.hosts)

    def _count(self, question: Question, by: str, range_s: int) -> str | None:
        """Return the number of rows of a group, which only some metrics show."""
        labels = self._labels(question, dict(question.where))
        if question.measurement == "probe":
            runs = f"{PREFIX}{RUN_LATENCY}_count{labels}"
            return f"sum by {by} ({self._once(increase(runs, range_s))})"
        if question.measurement in ("event", "alert"):
            changed = f"changes({PREFIX}{question.measurement}_time_s{labels}[{range_s}s]) + 1"
            return f"sum by {by} ({self._once(changed)})"
        return None


def increase(counter: str, range_s: int) -> str:
    """Return the increase of each series of a counter, from its value at the start of the range.

    A series that begins in the range counts from its first value.
    """
    within = f"{counter}[{range_s}s]"
    before = f"({counter} offset {range_s}s or min_over_time({within}))"
    exact = f"(max_over_time({within}) - {before} and resets({within}) == 0)"
    return f"({exact} or increase({within}))"


def newest(gauge: str, range_s: int) -> str:
    """Return the time of the newest sample of each series, UTC in s.

    Within the last five minutes and the last hour it is exact to a scrape and to 15 s, before that to a
    part of the range: PromQL has no other way to the time of an old sample.
    """
    levels = [f"timestamp({gauge})"]
    for seconds in sorted({min(HOUR_S, range_s), range_s}):
        step_s = max(1, seconds // _NEWEST_STEPS)
        levels.append(f"max_over_time(timestamp({gauge})[{seconds}s:{step_s}s])")
    return " or ".join(levels)
