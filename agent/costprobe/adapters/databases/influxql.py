"""InfluxQL: InfluxDB 1.x, the compatible endpoint of 2.x, and 3.x.

Source: InfluxDB's query language reference, https://docs.influxdata.com/influxdb/v1/query_language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from costprobe.adapters.databases.question import (
    LARGEST,
    PAIRED,
    WEIGHTED,
    Across,
    FleetAnswer,
    GroupValue,
    OverTime,
    Question,
    group_of,
    remarks,
)
from costprobe.adapters.databases.reader import FleetReader, Span
from costprobe.adapters.http.errors import Misconfigured, Rejected, RetryLater, server_message
from costprobe.core.line_protocol import identifier, literal
from costprobe.core.outside import SHAPE_ERRORS
from costprobe.core.records import NS_PER_S

_FUNCTIONS: Final[dict[OverTime | Across, str]] = {
    name: name for name in ("sum", "count", "mean", "median", "max")
}
_ERRORS_OF_SETUP: Final = ("database not found", "retention policy not found", "authorization")


class InfluxQl(FleetReader):
    """Asks in InfluxQL.

    Args:
        config: The section [fleet].
        clock: UTC.
    """

    def fetch(self, question: Question, span: Span) -> FleetAnswer:
        """Ask about one span; raises as `FleetReader.fetch`."""
        if question.over_time == "share":
            # InfluxQL has no mean of true and false.
            counted = replace(question, over_time="count", across="sum")
            every = self._asked(question, span, statement(counted, span))
            true = self._asked(question, span, statement(counted, span, is_true=True))
            return shares(every, true)
        if question.over_time == "weighted":
            weighted = self._asked(question, span, statement(question, span))
            paired = self._asked(
                question, span, statement(replace(question, over_time="sum"), span)
            )
            return with_parts({WEIGHTED: weighted, PAIRED: paired})
        return self._asked(question, span, statement(question, span))

    def _asked(self, question: Question, span: Span, text: str) -> FleetAnswer:
        config = self._config
        # In one piece a server with max-row-limit leaves out groups without notice.
        form = {"q": text, "epoch": "ns", "chunked": "true"}
        form["db"] = str(config.hourly_database if span.is_hourly else config.database)
        if config.retention_policy and not span.is_hourly:
            form["rp"] = config.retention_policy
        return answer(question, span, self._transport.post("/query", form))


def statement(question: Question, span: Span, *, is_true: bool = False) -> str:
    """Return the InfluxQL of a question about a span, of rows whose field is true if `is_true`."""
    field, source = identifier(question.field), identifier(question.measurement)
    times = _times(span)
    where = " AND ".join([*_conditions(question), *([f"{field} = true"] if is_true else []), times])
    by = [identifier(tag) for tag in question.by]
    inner_by = [identifier(tag) for tag in question.identity]
    every = [_interval(question.every_s, span)] if question.every_s else []
    fill = " fill(none)" if every else ""
    if question.over_time == "newest":
        # One row per group, with its time.
        return f"SELECT last({field}) FROM {source} WHERE {where}{_group(by)}"  # noqa: S608 - quoted
    if question.over_time in ("sum", "count") and question.across == "sum":
        head = f"SELECT {question.over_time}({field}) AS v"
        return f"{head} FROM {source} WHERE {where}{_group([*every, *by])}{fill}"
    if question.over_time == "covered":
        bucket = _interval(question.bucket_s, span)
        inner = f"SELECT count({field}) AS b FROM {source} WHERE {where}"  # noqa: S608 - quoted
        inner += f"{_group([bucket, *inner_by])} fill(none)"
        return f"SELECT count(b) AS v FROM ({inner}) WHERE {times}{_group(by)}"  # noqa: S608 - quoted
    value = f"{_FUNCTIONS.get(question.over_time)}({field})"
    if question.over_time == "weighted":
        value = f"sum({field}) * mean({identifier(question.weight)})"
    inner = f"SELECT {value} AS x FROM {source} WHERE {where}{_group([*every, *inner_by])}{fill}"  # noqa: S608 - quoted
    outer = f"SELECT {question.across}(x) AS v FROM ({inner}) WHERE {times}"  # noqa: S608 - quoted
    return f"{outer}{_group([*every, *by])}{fill}"


def _times(span: Span) -> str:
    if span.is_hourly:
        # Hourly rows have the time at which their hour begins.
        return f"time >= {span.start_ns} AND time < {span.end_ns}"
    after = ">=" if span.follows_hours else ">"
    before = "<" if span.precedes_hours else "<="
    return f"time {after} {span.start_ns} AND time {before} {span.end_ns}"


def _interval(every_s: int, span: Span) -> str:
    # A row at the end of an interval belongs to it.
    offset_ns = (span.start_ns + (0 if span.is_hourly else 1)) % (every_s * NS_PER_S)
    return f"time({every_s}s, {offset_ns}ns)"


def _conditions(question: Question) -> Iterator[str]:
    for tag, value in question.where.items():
        yield f"{identifier(tag)} = {literal(value)}"
    for tag in question.present:
        yield f"{identifier(tag)} != ''"
    if question.hosts:
        names = " OR ".join(f'"host" = {literal(host)}' for host in question.hosts)
        yield f"({names})"
    if question.weight:
        # Only rows with a value; weights are not negative.
        yield f"{identifier(question.weight)} >= 0"


def _group(parts: list[str]) -> str:
    return f" GROUP BY {', '.join(parts)}" if parts else ""


def answer(question: Question, span: Span, documents: Sequence[Mapping[str, Any]]) -> FleetAnswer:
    """Parse the response to a statement.

    Args:
        question: The question.
        span: What was asked about.
        documents: The parts of the response, in order; all but the last are marked as partial.

    Raises:
        RetryLater: It reports a timeout.
        Rejected: It reports another error, or has another shape.
        Misconfigured: It reports that database or rights are missing.
    """
    try:
        errors = [one["error"] for one in documents if one.get("error")]
        parts = [() if "error" in one else one["results"] for one in documents]
        results = [result for part in parts for result in part]
        errors += [one["error"] for one in results if one.get("error")]
        if not (results or errors):
            raise LookupError
        problems = remarks(
            message["text"] for result in results for message in result.get("messages", ())
        )
        series = [one for result in results for one in result.get("series", ())]
        ends = [one for result in results[-1:] for one in (result, *result.get("series", ()))]
        if any(one.get("partial") for one in ends):
            problems.append("the database truncated the answer")
        rows = tuple(row for one in series for row in _rows(question, span, one))
    except SHAPE_ERRORS:
        raise Rejected("the answer is not one of InfluxDB; check url and kind of [fleet]") from None
    for error in errors:
        message = server_message(str(error).encode())
        if any(word in message for word in _ERRORS_OF_SETUP):
            raise Misconfigured(f"{message}; check database and user of [fleet]")
        raise RetryLater(message) if "timeout" in message else Rejected(message)
    return FleetAnswer(rows, tuple(problems))


def with_parts(parts: Mapping[str, FleetAnswer]) -> FleetAnswer:
    """Return the rows of several answers, each with the name of its answer as a further tag."""
    rows = (
        row._replace(tags=(*row.tags, name)) for name, found in parts.items() for row in found.rows
    )
    problems = (problem for found in parts.values() for problem in found.problems)
    return FleetAnswer(tuple(rows), tuple(problems))


def shares(every: FleetAnswer, true: FleetAnswer) -> FleetAnswer:
    """Return the share of rows that are true from the numbers of all and of these."""
    counts = {(row.tags, row.time_ns): row.value for row in true.rows}
    rows = (
        row._replace(value=counts.get((row.tags, row.time_ns), 0.0) / row.value)
        for row in every.rows
        if row.value
    )
    return FleetAnswer(tuple(rows), (*every.problems, *true.problems))


def _rows(question: Question, span: Span, series: dict[str, Any]) -> Iterator[GroupValue]:
    tags = series.get("tags") or {}
    group = group_of(tuple([str(tags.get(tag) or "") for tag in question.by]))
    for time_ns, value in series["values"]:
        if value is None:
            continue
        if not 0 <= time_ns <= span.end_ns:
            raise ValueError("not of this span")
        if question.over_time == "newest":
            yield GroupValue(group, time_ns / NS_PER_S, span.end_ns)
            continue
        if not -LARGEST <= value <= LARGEST:
            raise ValueError("no measurement")
        end_ns = span.end_ns
        if question.every_s:
            begins_ns = int(time_ns) - (0 if span.is_hourly else 1)
            end_ns = begins_ns + question.every_s * NS_PER_S
        yield GroupValue(group, float(value), end_ns)
