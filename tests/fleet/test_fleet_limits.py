"""Servers that refuse, limit, truncate or fail: parts that add up, a stated gap, or an error; and the requests of clusters."""

import base64
import json
import math
import threading
from collections import defaultdict

import pytest
from costprobe.adapters.databases.question import FleetConfig, Question
from costprobe.adapters.http.errors import DeliveryError, Misconfigured, Rejected, RetryLater
from costprobe.core import outside
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from fakes import fleet
from fakes.cases import check_all
from fakes.command import called
from fakes.fleet import END_S
from fakes.fleet_database import HOUR_S, KINDS, MEDIAN, ask, document, form_of, hours_of
from fakes.servers import InfluxDB, Scripted, running
from pydantic import ValidationError

DATABASE = "costprobe"
LIMITS = """[coordinator]
  max-select-point = 400
"""
TOO_MANY = (422, {}, b'{"status":"error","error":"too many samples"}')


def encoded(kind, value, **more):
    return json.dumps(document(kind, value, **more)).encode()


def error_of(kind, text):
    error = {"error": text}
    return json.dumps({"results": [error]} if kind == "influxql" else error).encode()


def always(body, status=200, headers=()):
    return Scripted(lambda *_: (status, dict(headers), body))


def up_to(hours, kind, refusal=TOO_MANY):
    """A server on which each hour costs 1, and longer spans are refused."""

    def answer(_method, _path, _headers, body):
        asked = hours_of(body)
        return refusal if asked > hours else (200, {}, encoded(kind, asked))

    return Scripted(answer)


CUT = {"Connection": "close"}
LONG_QUERY = "sum by (host) " * 60
# What a database says of a question that is too large for it: an error, or an answer without its end.
ERRORS = (
    ("influxql", 200, "max-select-series limit exceeded: (9/8)"),
    ("influxql", 200, "max-select-buckets limit exceeded: (9/8)"),
    ("influxql", 200, "query-timeout limit exceeded"),
    ("influxql", 200, "max-select-point limit exceeded: (9/8)"),
    ("victoriametrics", 422, "too many points for the given step"),
    ("victoriametrics", 422, "cannot select more than 8 unique timeseries"),
    ("victoriametrics", 422, "not enough memory for processing"),
    ("victoriametrics", 503, "timeout exceeded during the query"),
    # VictoriaMetrics quotes the query before the reason.
    (
        "victoriametrics",
        422,
        f'cannot execute query="{LONG_QUERY}": cannot select more than 7 samples',
    ),
    ("prometheus", 422, "query processing would load too many samples"),
    ("prometheus", 422, "the query exceeded the maximum number of chunks"),
    ("prometheus", 503, "query timed out in expression"),
)
REFUSALS = (
    *((kind, status, {}, error_of(kind, text)) for kind, status, text in ERRORS),
    # The error comes after groups that were sent already.
    ("influxql", 200, {}, encoded("influxql", 9) + b'\n{"results":[{"error":"timeout"}]}\n'),
    ("influxql", 200, {"Content-Length": "999", **CUT}, encoded("influxql", 9)),
    ("victoriametrics", 200, {"Transfer-Encoding": "chunked", **CUT}, b"fff\r\n{"),
    ("victoriametrics", 504, {}, b"<html><head><title>504 Gateway Time-out</title></head></html>"),
    ("prometheus", 413, {}, b"request entity too large"),
)


def test_spans_that_a_server_cannot_answer_are_asked_in_halves():
    def check(kind, *refusal):
        with up_to(4, kind, refusal) as server:
            found = ask(kind, server)
        assert ([row.value for row in found.rows], found.problems) == ([8.0], ())
        # A median has no halves: the command fails, with the server's reason.
        with up_to(4, kind, refusal) as server, pytest.raises(DeliveryError) as caught:
            ask(kind, server, MEDIAN)
        assert len(server.requests) == 1
        assert ("7 samples" in str(caught.value)) is (b"7 samples" in refusal[-1])

    check_all(check, REFUSALS)


def vector(value, **labels):
    """The answer of a PromQL database with one series."""
    result = [{"metric": {"host": "h", **labels}, "value": [END_S, str(value)]}]
    return 200, {}, json.dumps({"data": {"result": result}}).encode()


def test_counts_and_largest_values_of_parts_are_those_of_the_whole():
    """Of the devices `a` and `b` of a host, each has rows in one half."""
    number = Question("device", "cost", "count", "count", by=("host",))
    newest = Question("agent", "rss_bytes", "newest", by=("host",))
    for question, wanted in ((number, 2.0), (newest, END_S - 60)):

        def answer(_method, _path, _headers, body, question=question):
            if hours_of(body) > 4:
                return TOO_MANY
            is_last = int(form_of(body)["time"]) == END_S
            labels = {"device": "ab"[is_last]} if question is number else {}
            return vector(END_S - (60 if is_last else 6 * HOUR_S), **labels)

        with Scripted(answer) as server:
            found = ask("victoriametrics", server, question)
        assert [(row.tags, row.value) for row in found.rows] == [(("h",), wanted)]
        assert found.problems == ()


def test_adjacent_parts_without_an_answer_are_one():
    def answer(_method, _path, _headers, body):
        if hours_of(body) > 2 or int(form_of(body)["time"]) > END_S - 4 * HOUR_S:
            return TOO_MANY
        return 200, {}, encoded("victoriametrics", hours_of(body))

    with Scripted(answer) as server:
        found = ask("victoriametrics", server)
    assert [row.value for row in found.rows] == [4.0]
    (problem,) = found.problems
    begin, end = (iso((END_S - hours * HOUR_S) * NS_PER_S) for hours in (4, 0))
    assert problem.startswith(f"no answer from {begin} to {end}: ")


def test_a_server_that_is_too_slow_is_asked_in_halves_and_is_the_reason():
    def asked(longest):
        is_over = threading.Event()

        def answer(_method, _path, _headers, body):
            if hours_of(body) > longest:
                is_over.wait()
            return 200, {}, encoded("victoriametrics", hours_of(body))

        with Scripted(answer) as server:
            try:
                return ask("victoriametrics", server, timeout="300ms")
            finally:
                is_over.set()

    found = asked(4)
    assert ([row.value for row in found.rows], found.problems) == ([8.0], ())
    with pytest.raises(RetryLater, match="no response within"):
        asked(0)


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


def test_influxdb_with_limits_gives_the_same_answer(tmp_path):
    wanted = defaultdict(float)
    for row in fleet.rows():
        if row.measurement == "device" and row.time_ns > (END_S - 2 * HOUR_S) * NS_PER_S:
            wanted[(row.tags["host"],)] += row.fields["cost"]

    class Limited(InfluxDB):
        def __init__(self, folder):
            super().__init__(folder)
            # Fewer rows than groups: in one piece it would leave out hosts without notice.
            text = self._config.read_text().replace("[http]\n", "[http]\n  max-row-limit = 3\n")
            self._config.write_text(text + LIMITS)

    with running(Limited, tmp_path / "influxdb", "influxd") as server:
        server.query(f'CREATE DATABASE "{DATABASE}"')
        fleet.write(server, db=DATABASE)
        found = ask("influxql", server, hours=2, database=DATABASE)
    assert found.problems == ()
    assert {row.tags: row.value for row in found.rows} == pytest.approx(wanted)


def part_of(host, **more):
    """A part of a response of InfluxDB."""
    series = [{"tags": {"host": host}, "values": [[0, 1.0]]}]
    return json.dumps({"results": [{"series": series, **more}]}).encode() + b"\n"


def test_truncated_answers_are_partial_and_names_are_text():
    says = "the database says: "
    warned = {"messages": [{"level": "warning", "text": "deprecated"}]}
    cases = [
        ("influxql", part_of("a", partial=True), "a", "the database truncated the answer"),
        # Parts of a response are joined; only its end must not be partial.
        ("influxql", part_of("a", partial=True) + part_of("b"), "ab"),
    ]
    more = (
        ("influxql", warned, f"{says}deprecated"),
        ("victoriametrics", {"isPartial": True}, "a storage node of the cluster did not answer"),
        ("prometheus", {"warnings": ["store \x1b[2J gone"]}, f"{says}store [2J gone"),
    )
    cases += [(kind, encoded(kind, 1.0, **keys), "a", problem) for kind, keys, problem in more]
    # A name with half a character would stop all alerts of `fleet watch`.
    cases += [(kind, encoded(kind, 1.0).replace(b'"a"', rb'"a\ud800b"'), ["a?b"]) for kind in KINDS]

    def check(kind, body, hosts, *problems):
        with always(body) as server:
            found = ask(kind, server)
        assert found.problems == problems
        assert [(row.tags, row.value) for row in found.rows] == [((host,), 1.0) for host in hosts]

    check_all(check, cases)


def test_answers_that_no_smaller_question_changes_are_errors_at_once(tmp_path):
    limited = "HTTP 429: Too Many Requests; try again in 30 s"
    shapes = [b"[]", b"{}", b'{"results": 7, "data": 7}', b"<html>", b'{"data": {"result": [7]}}']
    shapes += [b'{"results": [{"series": [{"values": [7]}]}]}', b"[" * 100, b'{"a": ' + b" " * 9]
    # Sums of such values overflow, and such times have no date.
    shapes += [encoded("prometheus", value) for value in ("+Inf", "-Inf")]
    cases = [("influxql", b'{"results": [{"error": "database not found: d"}]}', Misconfigured, "check database")]  # fmt: skip
    for kind in KINDS:
        cases += [
            (kind, b'{"error": "parse error at char 7"}', Rejected, "char 7", 400),
            (kind, b"Too Many Requests", RetryLater, limited, 429, (("Retry-After", "30"),)),
            # The parser's message has the word "delimiter".
            (kind, b'{"data" 1}', Rejected, r"delimiter.*check url and kind of \[fleet\]"),
            *((kind, shape, Rejected, "answer") for shape in shapes),
            *((kind, encoded(kind, value), Rejected, "answer") for value in (1e308, -1e308)),
        ]

    def check(kind, body, error, words, *more):
        with always(body, *more) as server, pytest.raises(error, match=words):
            ask(kind, server)
        assert len(server.requests) == 1

    check_all(check, cases)
    path = tmp_path / "costprobe.toml"
    with always(b"Too Many Requests", 429, {"Retry-After": "30"}) as server:
        path.write_text(f'[fleet]\nkind = "prometheus"\nurl = "{server.url}"\n')
        done = called(path, "status", "--fleet", code=1)
    assert done.stderr == f"Error: {server.url}: {limited}\n"


def test_paths_tenants_and_credentials_of_clusters(tmp_path):
    secret, word = tmp_path / "secret", "s3cr3t-of-fleet"
    secret.write_text(f"{word}\n")
    basic = base64.b64encode(f"reader:{word}".encode()).decode()
    of_file, query = f"file:{secret}", "/api/v1/query"
    cases = (
        # VictoriaMetrics cluster: account and project in the path of vmselect.
        ("victoriametrics", {"tenant": "42:7"}, f"/select/42:7/prometheus{query}", {}),
        ("victoriametrics", {}, query, {}),
        # Mimir and Cortex: below /prometheus, with the tenant in a header.
        ("prometheus", {"tenant": "ml"}, f"/prometheus{query}", {"X-Scope-OrgID": "ml"}),
        ("prometheus", {"headers": {"X-Cluster": "eu"}}, query, {"X-Cluster": "eu"}),
        ("prometheus", {"token": of_file}, query, {"Authorization": f"Bearer {word}"}),
        # InfluxDB Enterprise, Clustered and 2.x.
        (
            "influxql",
            {"user": "reader", "password": of_file},
            "/query",
            {"Authorization": f"Basic {basic}"},
        ),
        ("influxql", {"token": of_file}, "/query", {"Authorization": f"Token {word}"}),
    )

    def check(kind, config, path, headers):
        prefix = path.removesuffix("/api/v1/query") if kind == "prometheus" else ""
        with always(encoded(kind, 1.0)) as server:
            ask(kind, server, **config, url=server.url + prefix)
        ((_, found, sent, _),) = server.requests
        assert found == path
        assert headers.items() <= sent.items()

    check_all(check, cases)


def test_replicas_are_counted_once_by_their_labels():
    with always(encoded("prometheus", 1.0)) as server:
        ask("prometheus", server, replica_labels=["replica"])
    query = form_of(server.requests[0][3])["query"]
    assert query.startswith("sum by (host) (max without (replica) (")


@pytest.mark.parametrize("kind", ["influxql", "victoriametrics"])
def test_hourly_rows_answer_for_whole_hours_of_long_periods(kind):
    asked = []

    def answer(_method, _path, _headers, body):
        form = form_of(body)
        asked.append("hourly" in form.get("db", form.get("query", "")))
        return 200, {}, encoded(kind, 70.0 if asked[-1] else 2.0)

    with Scripted(answer) as server:
        databases = {"database": "d", "hourly_database": "hourly"}
        found = ask(kind, server, hours=72, **databases)
        assert asked == [True, False]
        assert [row.value for row in found.rows] == [72.0]
        asked.clear()
        # Counts of rows, and rows that have no hours.
        for names in (("probe", "samples"), ("event", "title")):
            ask(kind, server, Question(*names, "count", by=("host",)), 72, **databases)
    assert asked == [False, False]


def test_sections_that_do_not_fit_their_kind_are_errors():
    def check(config, words):
        with pytest.raises(ValidationError, match=words):
            FleetConfig.model_validate(
                {"kind": "prometheus", "url": "http://127.0.0.1:8086", **config}
            )

    check_all(
        check,
        [
            ({"kind": "influxql"}, 'add database = "costprobe"'),
            ({"kind": "influxql", "database": "d", "tenant": "7"}, "belong to PromQL"),
            ({"database": "d"}, "remove database"),
            ({"retention_policy": "d"}, "remove it"),
            ({"tenant": "a/b"}, "tenant id"),
            ({"password": "file:/x"}, "add user"),
            ({"user": "u", "token": "file:/x"}, "one of them"),
            ({"headers": {"Authorization": "x"}}, "authorization is set by"),
            ({"key": "file:/x", "key_header": "Host"}, "key_header: host is set"),
            ({"key": "x-1234"}, "never the key itself"),
            ({"headers": {"x-api-key": "x"}}, "x-api-key: its value goes into key"),
        ],
    )
