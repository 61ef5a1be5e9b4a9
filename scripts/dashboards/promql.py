"""The queries of the dashboards as PromQL on `/metrics`: totals by its counters, readings by its gauges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from costprobe.core.schema import COUNTERS, PREFIX, SCHEMA

from scripts.dashboards.queries import Columns, Query, Tag

# Texts of rows that are labels of their metrics, beside a metric of the rows' time.
_TEXT_LABELS = {"event": ("severity", "title", "cause"), "alert": ("severity", "cause")}
TIME = "time"
# Counters of the daemon itself, which are fields of `agent`.
_AGENT_COUNTERS = {"cpu_s", "sent_points", "dropped_points", "late_jobs", "child_restarts"}
_MODEL_TAG = "served_model"
_COLUMN = re.compile(r'(?P<expression>.+?)(?: AS "(?P<name>[^"]+)")?')
_CALL = re.compile(r'(?P<function>\w+)\("(?P<field>\w+)"\)')
_RATE = re.compile(r'non_negative_derivative\(max\("(?P<field>\w+)"\), 1s\)')
_RANGE = "$__range"
_READINGS = {
    "mean": "avg{by} (avg_over_time({series}[{window}]))",
    "max": "max{by} (max_over_time({series}[{window}]))",
    "last": "max{by} (last_over_time({series}[{window}]))",
    "median": "quantile{by} (0.5, quantile_over_time(0.5, {series}[{window}]))",
}

_OUTER = {
    **{name: f"{name}{{by}} ({{text}})" for name in ("count", "max", "min", "sum")},
    "median": "quantile{by} (0.5, {text})",
}


class UntranslatableError(ValueError):
    """The query needs what `/metrics` does not have, such as texts and single rows."""


@dataclass(frozen=True)
class Promql:
    """A query.

    Attributes:
        name: Name of its column; empty without one.
        text: The expression.
    """

    name: str
    text: str


_DIVISOR = re.compile(r' / (\w+\("\w+"\)|\((?:[^()]|\([^()]*\))*\))')


def columns_of(query: Query) -> Columns | None:
    """Return names and PromQL of a query's columns; None if it cannot be translated."""
    try:
        return [(column.name, column.text) for column in promql(query)]
    except UntranslatableError:
        return None


def promql(query: Query) -> list[Promql]:
    """Return the queries of the columns; a column that cannot be translated is left out.

    Raises:
        UntranslatableError: There are none.
    """
    if query.prometheus is not None:
        return [Promql(name, text) for name, text in query.prometheus.items()]
    services = _translated(query, "service")
    if not any(f"{PREFIX}service_" in column.text for column in services):
        return services
    if _MODEL_TAG not in query.by:
        return services
    # Rows of whole services and of their models.
    models = _translated(query, "model")
    return [
        replace(whole, text=f"{whole.text} or {part.text}")
        for whole, part in zip(services, models, strict=True)
    ]


def _translated(query: Query, counted: str) -> list[Promql]:
    if isinstance(query.source, Query):
        return [_outer(query, _translated(query.source, counted))]
    fields = _Fields(query, query.source, counted)
    columns = fields.newest if query.is_rows else fields.columns
    found = [column for part in _columns(query.select) for column in columns(*part)]
    if query.is_rows and query.source in _TEXT_LABELS:
        found.append(fields.time())
    if not found:
        raise UntranslatableError(query.select)
    # `newest` groups by the tags and texts among the columns, which it collects first.
    return [replace(column, text=fields.grouped(column.text)) for column in found]


def _columns(select: str) -> Iterator[tuple[str, str]]:
    for column in re.split(r", (?![^()]*\))", select):
        match = _COLUMN.fullmatch(column)
        if match is None:
            raise UntranslatableError(column)
        yield match["name"] or "", match["expression"]


def _outer(query: Query, inner: list[Promql]) -> Promql:
    found = {column.name: column.text for column in inner}
    select = query.select
    if select.strip('"') in found:
        text = found[select.strip('"')]
        positive = re.match(r'"(\w+)" > 0', "".join(map(str, query.where)))
        # Without it, an amount divided by nothing would be infinite.
        return Promql("", f"({text}) and {found[positive[1]]} > 0" if positive else text)
    call = _CALL.match(select)
    if call is None or call["field"] not in found:
        raise UntranslatableError(select)
    text = _OUTER[call["function"]].format(by=_by(query.by), text=found[call["field"]])
    return Promql("", text + select.removeprefix(call[0]))


def _by(tags: Sequence[str]) -> str:
    return f" by ({', '.join(tags)})" if tags else ""


class _Fields:
    """The fields of one measurement, as PromQL.

    Args:
        counted: "service" for counters of whole services, "model" for those of their models.
    """

    def __init__(self, query: Query, measurement: str, counted: str) -> None:
        if any(isinstance(part, str) for part in query.where):
            raise UntranslatableError(f"chooses rows by a field: {query.where}")
        self._measurement = measurement
        self._query = query
        self._tags = list(query.by)
        bucket = query.every and query.every.replace("$__interval", "$__rate_interval")
        self._window = query.since or ("" if query.is_rows else bucket) or _RANGE
        self._counted_as = counted

    def columns(self, name: str, expression: str) -> Iterator[Promql]:
        """Return the query of a column of aggregates; none if it cannot be translated."""
        try:
            # Between two windows nothing was counted: an amount of it would be 0 / 0.
            expression = _DIVISOR.sub(r" / (\1 > 0)", expression)
            text = _RATE.sub(lambda call: self._counted(call["field"], "rate"), expression)
            text = _CALL.sub(self._call, text)
        except UntranslatableError:
            return
        # A bare field is that of single rows.
        if not re.search(r'(?<![=~{,])"\w+"(?![,}])', text):
            yield Promql(name, text)

    def newest(self, name: str, expression: str) -> Iterator[Promql]:
        """Return the query of a column of the newest rows; none of a tag, by which they are grouped."""
        field = expression.strip('"')
        kind = SCHEMA[self._measurement].fields.get(field)
        is_label = field in _TEXT_LABELS.get(self._measurement, ())
        if kind is None or is_label:
            self._tags.append(field)
        elif kind is not str:
            series = f"{PREFIX}{self._measurement}_{field}{self._matchers()}"
            yield Promql(name or field, f"max<by> (last_over_time({series}[{self._window}]))")

    def time(self) -> Promql:
        """Return the query of the time of the newest rows, in ms."""
        series = f"{PREFIX}{self._measurement}_time_s{self._matchers()}"
        return Promql(TIME, f"1000 * max<by> (last_over_time({series}[{self._window}]))")

    def grouped(self, text: str) -> str:
        """Return a query of newest rows, grouped by all of their tags."""
        return text.replace("<by>", _by(self._tags))

    def _call(self, call: re.Match[str]) -> str:
        function, field = call["function"], call["field"]
        if function in {"sum", "spread"}:
            return self._counted(field, "increase")
        if self._measurement == "agent" and field in _AGENT_COUNTERS:
            field = f"{field}_total"
        kind = SCHEMA[self._measurement].fields.get(field)
        if function not in _READINGS or kind is str:
            raise UntranslatableError(call[0])
        series = f"{PREFIX}{self._measurement}_{field}{self._matchers()}"
        return _READINGS[function].format(by=_by(self._tags), series=series, window=self._window)

    def _counted(self, field: str, function: str) -> str:
        if self._measurement == "agent" and field in _AGENT_COUNTERS:
            name, unmatched = f"agent_{field}", frozenset[str]()
        else:
            counters = {one.field: one for one in COUNTERS.get(self._measurement, ())}
            counter = counters.get(field)
            if counter is None:
                raise UntranslatableError(field)
            name = counter.name.replace("service_", f"{self._counted_as}_", 1)
            # Counters have no labels that describe; those of whole services have no model.
            own = ["basis", _MODEL_TAG, *([] if counter.is_money else ["currency"])]
            unmatched = frozenset(own)
        is_whole = self._counted_as == "service"
        tags = [tag for tag in self._tags if not (is_whole and tag == _MODEL_TAG)]
        series = f"{PREFIX}{name}_total{self._matchers(unmatched)}"
        return f"sum{_by(tags)} ({function}({series}[{self._window}]))"

    def _matchers(self, unmatched: frozenset[str] = frozenset()) -> str:
        found = [Tag(tag, f"${tag}", "=~") for tag in self._query.over]
        found += [one for one in self._query.where if isinstance(one, Tag)]
        matchers = [f'{tag}{sign}"{text}"' for tag, text, sign in found if tag not in unmatched]
        return f"{{{','.join(matchers)}}}" if matchers else ""
