"""PromQL for a fleet: rows pushed to VictoriaMetrics, or `/metrics` scraped by Prometheus.

Pushed rows: each field of a row is a sample. A metric is `measurement_field` with the tags of the
row as labels. Range selectors of VictoriaMetrics exclude their start and include their end, like
the spans of a question. Source: https://docs.victoriametrics.com/metricsql.

Scraped metrics, in Prometheus and compatible databases: sums are differences of the monotonic
counters. `increase()` extrapolates to the ends of its range, so it is used only for a counter
that was reset in the range (the store of the host was created again); every other increase is
exact between the scrapes. Source: https://prometheus.io/docs/prometheus/latest/querying.
"""

from __future__ import annotations

import dataclasses
import math
import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from costprobe.adapters.databases.question import (
    LARGEST,
    PAIRED,
    WEIGHTED,
    FleetAnswer,
    FleetConfig,
    GroupValue,
    Question,
    group_of,
    remarks,
)
from costprobe.adapters.databases.reader import FleetReader, Span
from costprobe.adapters.http.errors import Rejected, RetryLater, server_message
from costprobe.core.clock import Clock
from costprobe.core.line_protocol import label_name
from costprobe.core.outside import SHAPE_ERRORS
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import COUNTERS, DESCRIPTIVE, PREFIX, RUN_LATENCY

_DAY_S: Final = 86_400
_NOT_PROMQL: Final = "the answer is not one of PromQL; check url and kind of [fleet]"
# Label of the part of a `weighted` answer, and its values, which are functions of MetricsQL.
_ROLLUP: Final = "rollup"
_MEAN_WEIGHT: Final = "avg_over_time"
_HAS_WEIGHT: Final = "present_over_time"
_PARTS: Final = {_MEAN_WEIGHT: WEIGHTED, _HAS_WEIGHT: PAIRED}
_NOT_SCRAPED: Final = "not in /metrics, so a Prometheus that scrapes it cannot answer"
_MODEL: Final = "served_model"
_HOUR_S: Final = 3600
# Evaluations of a subquery for the newest sample.
_NEWEST_STEPS: Final = 240


class PromQl(FleetReader):
    """Asks in PromQL; subclasses give the expression of a question.

    Args:
        config: The section [fleet].
        clock: UTC.
    """

    def __init__(self, config: FleetConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        is_path = config.tenant is not None and config.kind == "victoriametrics"
        self._prefix = f"/select/{config.tenant}/prometheus" if is_path else ""

    def fetch(self, question: Question, span: Span) -> FleetAnswer:
        """Ask about one span; raises as `FleetReader.fetch`."""
        range_s = question.every_s or (span.end_ns - span.start_ns) // NS_PER_S
        text = self.expression(question, range_s, span)
        if text is None:
            return FleetAnswer((), (f"{question.measurement}.{question.field}: {_NOT_SCRAPED}",))
        end_s = span.end_ns // NS_PER_S
        form = {"query": text, "timeout": f"{math.ceil(self._config.timeout_s)}s", "nocache": "1"}
        if question.every_s:
            start_s = span.start_ns // NS_PER_S + question.every_s
            form |= {"start": str(start_s), "end": str(end_s), "step": str(question.every_s)}
            (document, *_) = self._transport.post(f"{self._prefix}/api/v1/query_range", form)
        else:
            (document, *_) = self._transport.post(
                f"{self._prefix}/api/v1/query", {**form, "time": str(end_s)}
            )
        largest = span.end_ns / NS_PER_S + _DAY_S if question.over_time == "newest" else LARGEST
        names = tuple(map(self.label_name, question.by))
        if question.over_time == "weighted":
            return _with_parts(answer((*names, _ROLLUP), document, largest))
        return answer(names, document, largest)

    def label_name(self, tag: str) -> str:
        """Return the label of a tag; VictoriaMetrics keeps its characters."""
        return tag

    @abstractmethod
    def expression(self, question: Question, range_s: int, span: Span) -> str | None:
        """Return the PromQL of a question, evaluated at the end of a range; None if there is none."""


class VictoriaMetrics(PromQl):
    """Asks about rows that the hosts push."""

    def expression(self, question: Question, range_s: int, span: Span) -> str | None:
        """Return the PromQL of a question, evaluated at the end of a range."""
        config = self._config
        database = config.hourly_database if span.is_hourly else config.database
        where = {**question.where, **({"db": database} if database else {})}
        labels = matchers(where, question.present, question.hosts)

        def selected(field: str) -> str:
            return f"{question.measurement}_{field}{labels}"

        metric, by = selected(question.field), grouping(question.by)
        if question.over_time == "covered":
            if span.is_hourly:
                each = f"count_over_time({metric}[{range_s}s])"
            else:
                each = covered(metric, grouping(question.identity), question.bucket_s, range_s)
            return f"sum by {by} ({each})"
        if question.over_time == "newest":
            return f"max by {by} (tlast_over_time({metric}[{range_s}s]))"
        if question.over_time == "weighted":
            # The mean of the weight, and 1 where there is one, from one reading of it.
            names = ", ".join(map(quoted, _PARTS))
            weights = f"aggr_over_time(({names}), {selected(question.weight)}[{range_s}s])"
            each = f"sum_over_time({metric}[{range_s}s]) * ignoring ({_ROLLUP}) group_right () {weights}"
            return f"sum by {grouping((*question.by, _ROLLUP))} ({each})"
        each = _over_range(question.over_time, metric, range_s)
        if question.across == "count":
            each = f"count by {grouping(question.identity)} ({each})"
        return across(question.across, by, each)


def covered(metric: str, identity: str, bucket_s: int, range_s: int) -> str:
    """Return how many buckets before each evaluation have a sample, by the identity of a series."""
    # Prometheus before 3.0 includes the start of a range: it is a second later.
    has_row = f"count by {identity} (count_over_time({metric}[{bucket_s - 1}s])) > bool 0"
    return f"sum_over_time(({has_row})[{range_s - 1}s:{bucket_s}s])"


def _over_range(over_time: str, metric: str, range_s: int) -> str:
    """Return an aggregation over time of each series."""
    if over_time == "median":
        return f"quantile_over_time(0.5, {metric}[{range_s}s])"
    name = {"mean": "avg", "share": "avg"}.get(over_time, over_time)
    return f"{name}_over_time({metric}[{range_s}s])"


def across(how: str, by: str, each: str) -> str:
    """Return an aggregation across series."""
    if how == "median":
        return f"quantile by {by} (0.5, {each})"
    return f"{ {'mean': 'avg'}.get(how, how) } by {by} ({each})"


def grouping(tags: tuple[str, ...]) -> str:
    """Return the labels of an aggregation."""
    return f"({', '.join(label(tag) for tag in tags)})"


def label(tag: str) -> str:
    """Return a tag as a label: escaped, as VictoriaMetrics keeps its characters."""
    plain = "".join(
        mark if mark == "_" or (mark.isascii() and mark.isalnum()) else f"\\{mark}" for mark in tag
    )
    return f"\\{plain}" if plain[:1].isdigit() else plain


def matchers(
    where: dict[str, str], present: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
) -> str:
    """Return the label matchers of a selector."""
    parts = [f"{label(tag)}={quoted(value)}" for tag, value in where.items()]
    parts += [f'{label(tag)}!=""' for tag in present]
    if hosts:
        parts.append(f"host=~{quoted('|'.join(map(re.escape, hosts)))}")
    return "{" + ", ".join(parts) + "}"


def quoted(text: str) -> str:
    """Quote a text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def answer(
    names: tuple[str, ...], document: dict[str, Any], largest: float = LARGEST
) -> FleetAnswer:
    """Parse the response to a query.

    Args:
        names: Labels of the groups, in the order of the question's tags.
        document: The response.
        largest: Largest value; of times the latest one, UTC in s.

    Raises:
        RetryLater: It reports a timeout.
        Rejected: It reports another error, or has another shape.
    """
    if document.get("status") == "error":
        message = server_message(str(document.get("error")).encode())
        raise RetryLater(message) if "timeout" in message else Rejected(message)
    try:
        data = document["data"]
        problems = remarks(document.get("warnings") or ())
        if document.get("isPartial") or data.get("isPartial"):
            problems.append("a storage node of the cluster did not answer")
        rows = tuple(_rows(names, data["result"], largest))
    except SHAPE_ERRORS:
        raise Rejected(_NOT_PROMQL) from None
    return FleetAnswer(rows, tuple(problems))


def _rows(
    names: tuple[str, ...], result: list[dict[str, Any]], largest: float
) -> Iterator[GroupValue]:
    absent = ("",) * len(names)
    # There are few instants and many series.
    times_ns: dict[float, int] = {}
    for series in result:
        group = group_of(tuple(map(series["metric"].get, names, absent)))
        for time_s, text in series["values"] if "values" in series else (series["value"],):
            time_ns = times_ns.get(time_s)
            if time_ns is None:
                time_ns = times_ns[time_s] = round(float(time_s) * NS_PER_S)
            if -largest <= (value := float(text)) <= largest:
                yield GroupValue(group, value, time_ns)
            elif not math.isnan(value):
                raise ValueError("no measurement")


def _with_parts(found: FleetAnswer) -> FleetAnswer:
    """Return a `weighted` answer with the names of its parts."""
    try:
        rows = [row._replace(tags=(*row.tags[:-1], _PARTS[row.tags[-1]])) for row in found.rows]
    except LookupError:
        raise Rejected(_NOT_PROMQL) from None
    return dataclasses.replace(found, rows=tuple(rows))


class Scraped(PromQl):
    """Asks about counters and newest values that a Prometheus scraped."""

    def label_name(self, tag: str) -> str:
        """Return the label of a tag, as `/metrics` writes it."""
        return label_name(tag)

    def expression(self, question: Question, range_s: int, span: Span) -> str | None:
        """Return the PromQL of a question, evaluated at the end of a range; None if there is none."""
        del span
        by, identity = (
            grouping(tuple(map(label_name, tags))) for tags in (question.by, question.identity)
        )
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
            weight = _over_range("mean", self._gauge(question, question.weight), range_s - 1)
            weight = f"* on (host, device) group_left () max by (host, device) ({weight})"
            each = f"{self._once(increase(counter, range_s))} {weight}"
            # A factor of 1 where there is a weight.
            parts = ((_MEAN_WEIGHT, each), (_HAS_WEIGHT, f"{each} ^ 0"))
            text = " or ".join(
                f'label_replace(sum by {by} ({one}), "{_ROLLUP}", "{name}", "", "")'
                for name, one in parts
            )
        elif how in ("mean", "median", "max", "share"):
            # Versions before 3.0 include the start of a range.
            each = self._once(_over_range(how, gauge, range_s - 1))
            text = across(question.across, by, each)
        return text

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
    for seconds in sorted({min(_HOUR_S, range_s), range_s}):
        step_s = max(1, seconds // _NEWEST_STEPS)
        levels.append(f"max_over_time(timestamp({gauge})[{seconds}s:{step_s}s])")
    return " or ".join(levels)
