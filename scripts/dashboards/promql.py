"""The InfluxQL of the dashboards as PromQL on `/metrics`: totals by its counters, readings by its gauges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from costprobe.core.counters import COUNTERS, PREFIX

# Counters of the daemon itself, which are fields of `agent`.
_AGENT_COUNTERS = {"cpu_s", "sent_points", "dropped_points", "late_jobs", "child_restarts"}
_QUERY = re.compile(
    r'SELECT (?P<select>.+?) FROM (?:"(?P<measurement>\w+)"|\((?P<inner>.+)\))'
    r" WHERE (?P<where>.+?)(?: GROUP BY (?P<by>.+?))?(?: fill\(none\))?"
)
_COLUMN = re.compile(r'(?P<expression>.+?)(?: AS "(?P<name>[^"]+)")?')
_CALL = re.compile(r'(?P<function>\w+)\("(?P<field>\w+)"\)')
_RATE = re.compile(r'non_negative_derivative\(max\("(?P<field>\w+)"\), 1s\)')
_TAG = re.compile(
    r"\"(?P<tag>\w+)\" =(?P<like>~?) (?:'(?P<text>\w*)'|/\^\(?(?P<regex>[^)]+?)\)?\$/)"
)
_READINGS = {
    "mean": "avg{by} (avg_over_time({series}[{window}]))",
    "max": "max{by} (max_over_time({series}[{window}]))",
    "last": "max{by} (last_over_time({series}[{window}]))",
    "median": "quantile{by} (0.5, quantile_over_time(0.5, {series}[{window}]))",
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


def promql(influxql: str) -> list[Promql]:
    """Return the queries of the columns.

    Raises:
        UntranslatableError: There are none.
    """
    match = _QUERY.fullmatch(influxql)
    if match is None:
        raise UntranslatableError(influxql)
    window, tags = _grouped(match["by"] or "")
    if match["inner"]:
        return [_outer(match["select"], match["where"], promql(match["inner"]), tags)]
    fields = [part for part in match["where"].split(" AND ") if not _TAG.fullmatch(part)]
    if fields != ["$timeFilter"]:
        raise UntranslatableError(f"chooses rows by a field: {fields}")
    return [
        Promql(name, _Fields(match["measurement"], match["where"], tags, window).read(expression))
        for name, expression in _columns(match["select"])
    ]


def _columns(select: str) -> Iterator[tuple[str, str]]:
    for column in re.split(r", (?![^()]*\))", select):
        match = _COLUMN.fullmatch(column)
        if match is None:
            raise UntranslatableError(column)
        yield match["name"] or "", match["expression"]


def _grouped(by: str) -> tuple[str, list[str]]:
    """Return the window and the tags of a GROUP BY clause."""
    every = re.search(r"time\(([^)]+)\)", by)
    window = "$__range" if every is None else every[1].replace("$__interval", "$__rate_interval")
    return window, re.findall(r'"(\w+)"', by)


def _outer(select: str, where: str, inner: list[Promql], tags: list[str]) -> Promql:
    found = {column.name: column.text for column in inner}
    bare = re.fullmatch(r'"(\w+)"', select)
    call = _CALL.fullmatch(select)
    if bare is not None and bare[1] in found:
        positive = re.match(r'"(\w+)" > 0 AND', where)
        # Without it, an amount divided by nothing would be infinite.
        condition = f" and {found[positive[1]]} > 0" if positive else ""
        return Promql("", f"({found[bare[1]]}){condition}" if condition else found[bare[1]])
    if call is None or call["field"] not in found:
        raise UntranslatableError(select)
    return Promql("", f"{call['function']}{_by(tags)} ({found[call['field']]})")


def _by(tags: list[str]) -> str:
    return f" by ({', '.join(tags)})" if tags else ""


class _Fields:
    """The fields of one measurement, as PromQL."""

    def __init__(self, measurement: str, where: str, tags: list[str], window: str) -> None:
        self._measurement = measurement
        self._where = where
        self._tags = tags
        self._window = window

    def read(self, expression: str) -> str:
        text = _RATE.sub(lambda call: self._counted(call["field"], "rate"), expression)
        text = _CALL.sub(self._call, text)
        # A bare field is that of single rows.
        if re.search(r'(?<![=~{,])"\w+"(?![,}])', text):
            raise UntranslatableError(expression)
        return text

    def _call(self, call: re.Match[str]) -> str:
        function, field = call["function"], call["field"]
        if function in {"sum", "spread"}:
            return self._counted(field, "increase")
        if self._measurement == "agent" and field in _AGENT_COUNTERS:
            field = f"{field}_total"
        if function not in _READINGS or self._measurement in {"event", "sweep"}:
            raise UntranslatableError(call[0])
        series = f"{PREFIX}{self._measurement}_{field}{self._matchers()}"
        return _READINGS[function].format(by=_by(self._tags), series=series, window=self._window)

    def _counted(self, field: str, function: str) -> str:
        if self._measurement == "agent" and field in _AGENT_COUNTERS:
            name, unmatched = f"agent_{field}", frozenset[str]()
        else:
            counters = COUNTERS.get(self._measurement, ())
            counter = next((each for each in counters if each.field == field), None)
            if counter is None:
                raise UntranslatableError(field)
            name = counter.name
            # Counters have no labels that describe; services' have none of models.
            own = ["basis", "served_model", *([] if counter.is_money else ["currency"])]
            unmatched = frozenset(own)
        tags = [tag for tag in self._tags if tag != "served_model"]
        series = f"{PREFIX}{name}_total{self._matchers(unmatched)}"
        return f"sum{_by(tags)} ({function}({series}[{self._window}]))"

    def _matchers(self, unmatched: frozenset[str] = frozenset()) -> str:
        matchers = [
            f'{match["tag"]}=~"{match["regex"]}"'
            if match["like"]
            else f'{match["tag"]}="{match["text"]}"'
            for match in _TAG.finditer(self._where)
            if match["tag"] not in unmatched
        ]
        return f"{{{','.join(matchers)}}}" if matchers else ""
