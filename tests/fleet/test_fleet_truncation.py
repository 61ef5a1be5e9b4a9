"""Servers that run out of time, memory or limits, or truncate: parts that add up, or a stated gap, never less."""

import json
import math
import threading
from collections import defaultdict

import pytest
from costprobe.adapters.databases.question import Question
from costprobe.adapters.http.errors import DeliveryError, Rejected, RetryLater
from costprobe.core import outside
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from fakes import fleet
from fakes.fleet import END_S
from fakes.fleet_database import HOUR_S, MEDIAN, ask, document, form_of, hours_of
from fakes.servers import InfluxDB, Scripted, running

DATABASE = "costprobe"
LIMITED = """[coordinator]
  max-select-point = {points}
"""


def sums(kind, hours):
    """A response in which each hour costs 1."""
    return json.dumps(document(kind, hours)).encode()


CUT = {"Connection": "close"}
REFUSALS = (
    ("influxql", 200, {}, b'{"results":[{"error":"max-select-series limit exceeded: (9/8)"}]}'),
    ("influxql", 200, {}, b'{"results":[{"error":"max-select-buckets limit exceeded: (9/8)"}]}'),
    ("influxql", 200, {}, b'{"results":[{"error":"query-timeout limit exceeded"}]}'),
    ("influxql", 200, {}, b'{"results":[{"error":"max-select-point limit exceeded: (9/8)"}]}'),
    # The error comes after groups that were sent already.
    ("influxql", 200, {}, sums("influxql", 9) + b'\n{"results":[{"error":"timeout"}]}\n'),
    ("influxql", 200, {"Content-Length": "999", **CUT}, sums("influxql", 9)),
    ("victoriametrics", 422, {}, b'{"status":"error","error":"too many points for the given step"}'),
    ("victoriametrics", 422, {}, b'{"status":"error","error":"cannot select more than 8 unique timeseries"}'),
    ("victoriametrics", 422, {}, b'{"status":"error","error":"not enough memory for processing"}'),
    ("victoriametrics", 503, {}, b'{"status":"error","error":"timeout exceeded during the query"}'),
    ("victoriametrics", 200, {"Transfer-Encoding": "chunked", **CUT}, b"fff\r\n{"),
    ("victoriametrics", 504, {}, b"<html><head><title>504 Gateway Time-out</title></head></html>"),
    ("prometheus", 422, {}, b'{"status":"error","error":"query processing would load too many samples"}'),
    ("prometheus", 422, {}, b'{"status":"error","error":"the query exceeded the maximum number of chunks"}'),
    ("prometheus", 503, {}, b'{"status":"error","error":"query timed out in expression"}'),
    ("prometheus", 413, {}, b"request entity too large"),
)  # fmt: skip


def test_spans_that_a_server_cannot_answer_are_asked_in_halves():
    wrong = {}
    for kind, status, headers, refusal in REFUSALS:

        def answer(_method, _path, _headers, body, refused=(status, headers, refusal), kind=kind):
            hours = hours_of(body)
            return refused if hours > 4 else (200, {}, sums(kind, hours))

        with Scripted(answer) as server:
            found = ask(kind, server)
        if [row.value for row in found.rows] != [8.0] or found.problems:
            wrong[refusal] = found
        # A median has no halves: the command fails, with the server's reason.
        with Scripted(answer) as server, pytest.raises(DeliveryError):
            ask(kind, server, MEDIAN)
        assert len(server.requests) == 1
    assert not wrong


def test_counts_and_largest_values_of_parts_are_those_of_the_whole():
    """Of the devices `a` and `b` of a host, each has rows in one half."""
    refusal = (422, {}, b'{"status":"error","error":"too many samples"}')
    number = Question("device", "cost", "count", "count", by=("host",))
    newest = Question("agent", "rss_bytes", "newest", by=("host",))
    for question, wanted in ((number, 2.0), (newest, END_S - 60)):

        def answer(_method, _path, _headers, body, question=question):
            if hours_of(body) > 4:
                return refusal
            form = form_of(body)
            is_last = int(form["time"]) == END_S
            value = END_S - (60 if is_last else 6 * HOUR_S)
            device = {"device": "ab"[is_last]} if question is number else {}
            result = [{"metric": {"host": "h", **device}, "value": [END_S, str(value)]}]
            return 200, {}, json.dumps({"status": "success", "data": {"result": result}}).encode()

        with Scripted(answer) as server:
            found = ask("victoriametrics", server, question)
        assert [(row.tags, row.value) for row in found.rows] == [(("h",), wanted)]
        assert found.problems == ()


def test_adjacent_parts_without_an_answer_are_one():
    def answer(_method, _path, _headers, body):
        form = form_of(body)
        if hours_of(body) > 2 or int(form["time"]) > END_S - 4 * HOUR_S:
            return 422, {}, b'{"status":"error","error":"too many samples"}'
        return 200, {}, sums("victoriametrics", hours_of(body))

    with Scripted(answer) as server:
        found = ask("victoriametrics", server)
    assert [row.value for row in found.rows] == [4.0]
    (problem,) = found.problems
    begin, end = (iso((END_S - hours * HOUR_S) * NS_PER_S) for hours in (4, 0))
    assert problem.startswith(f"no answer from {begin} to {end}: ")


def test_a_limit_behind_a_long_query_is_read():
    # VictoriaMetrics quotes the query before the reason.
    query = json.dumps("sum by (host) " * 60)
    body = json.dumps({"error": f"cannot execute query={query}: cannot select more than 7 samples"})

    def answer(_method, _path, _headers, request):
        is_long = hours_of(request) > 4
        return (422, {}, body.encode()) if is_long else (200, {}, sums("prometheus", 4))

    with Scripted(answer) as server:
        found = ask("prometheus", server)
        assert ([row.value for row in found.rows], found.problems) == ([8.0], ())
        with pytest.raises(Rejected, match='query="…": cannot select more than 7 samples'):
            ask("prometheus", server, MEDIAN)


def test_a_server_that_does_not_answer_in_time_is_asked_in_halves():
    is_over = threading.Event()

    def answer(_method, _path, _headers, body):
        if hours_of(body) > 4:
            is_over.wait()
        return 200, {}, sums("victoriametrics", hours_of(body))

    with Scripted(answer) as server:
        found = ask("victoriametrics", server, timeout="300ms")
        is_over.set()
    assert ([row.value for row in found.rows], found.problems) == ([8.0], ())


def test_a_server_that_never_answers_is_the_reason_and_not_the_time_that_is_over():
    is_over = threading.Event()

    def answer(*_):
        is_over.wait()
        return 200, {}, b"{}"

    with Scripted(answer) as server:
        try:
            with pytest.raises(RetryLater, match="no response within"):
                ask("victoriametrics", server, timeout="300ms")
        finally:
            is_over.set()


def test_answers_with_too_many_values_are_asked_in_halves(monkeypatch):
    monkeypatch.setattr(outside, "MAX_VALUES", 30)
    hourly = Question("device", "cost", "sum", by=("host",), every_s=HOUR_S)

    def answer(_method, _path, _headers, body):
        start_s, end_s, step_s = (int(form_of(body)[name]) for name in ("start", "end", "step"))
        times = range(start_s, end_s + 1, step_s)
        result = [{"metric": {"host": "a"}, "values": [[time_s, "1"] for time_s in times]}]
        return 200, {}, json.dumps({"data": {"result": result}}).encode()

    with Scripted(answer) as server:
        found = ask("victoriametrics", server, hourly)
        assert len(server.requests) == 3
        assert math.fsum(row.value for row in found.rows) == 8
        # All of the hosts at once: no part of the period is smaller.
        monkeypatch.setattr(outside, "MAX_VALUES", 5)
        with pytest.raises(Rejected, match="more than 5 values"):
            ask("victoriametrics", server, hourly)


def test_parts_of_a_response_are_joined_and_its_end_must_not_be_partial():
    def parts(*ends):
        for number, end in enumerate(ends):
            series = {"tags": {"host": f"h{number}"}, "values": [[0, 1.0]]}
            yield json.dumps({"results": [{"series": [series], **end}]}).encode()

    for ends, problems in (
        (({"partial": True}, {"partial": True}, {}), ()),
        (({"partial": True}, {"partial": True}), ("the database truncated the answer",)),
    ):
        body = b"\n".join(parts(*ends)) + b"\n"
        with Scripted(lambda *_, body=body: (200, {}, body)) as server:
            found = ask("influxql", server)
        assert {row.tags for row in found.rows} == {(f"h{number}",) for number in range(len(ends))}
        assert found.problems == problems


def test_influxdb_with_limits_gives_the_same_answer(tmp_path):
    wanted = defaultdict(float)
    for row in fleet.rows():
        if row.measurement == "device" and row.time_ns > (END_S - 2 * HOUR_S) * NS_PER_S:
            wanted[(row.tags["host"],)] += row.fields["cost"]

    class Limited(InfluxDB):
        def __init__(self, folder):
            super().__init__(folder)
            text = self._config.read_text() + LIMITED.format(points=400)
            # Fewer rows than groups: in one piece it would leave out hosts without notice.
            self._config.write_text(text.replace("[http]\n", "[http]\n  max-row-limit = 3\n"))

    with running(Limited, tmp_path / "influxdb", "influxd") as server:
        server.query(f'CREATE DATABASE "{DATABASE}"')
        fleet.write(server, db=DATABASE)
        found = ask("influxql", server, hours=2, database=DATABASE)
    assert found.problems == ()
    assert {row.tags: row.value for row in found.rows} == pytest.approx(wanted)
