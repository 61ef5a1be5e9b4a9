"""What servers refuse and truncate, and the paths, tenants and headers of clusters."""

import base64
import json

import pytest
from costprobe.adapters.databases.question import FleetConfig, Question
from costprobe.adapters.http.errors import Misconfigured, Rejected, RetryLater
from fakes.command import called
from fakes.fleet_database import KINDS, ask, document, form_of
from fakes.servers import Scripted
from pydantic import ValidationError


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_other_errors_are_not_repeated(kind):
    body = b'{"error": "parse error at char 7"}'
    with Scripted(lambda *_: (400, {}, body)) as server, pytest.raises(Rejected, match="char 7"):
        ask(kind, server)
    assert len(server.requests) == 1


def test_a_server_that_limits_the_rate_is_asked_once(kind, tmp_path):
    refusal = (429, {"Retry-After": "30"}, b"Too Many Requests")
    path = tmp_path / "costprobe.toml"
    with Scripted(lambda *_: refusal) as server:
        with pytest.raises(RetryLater, match="HTTP 429: Too Many Requests; try again in 30 s"):
            ask(kind, server)
        assert len(server.requests) == 1
        section = {**KINDS[kind], "url": server.url}
        path.write_text("[fleet]\n" + "".join(f'{k} = "{v}"\n' for k, v in section.items()))
        done = called(path, "status", "--fleet", code=1)
    assert done.stderr == f"Error: {server.url}: HTTP 429: Too Many Requests; try again in 30 s\n"


def test_an_answer_that_is_no_json_is_not_asked_in_parts(kind):
    # The parser's message has the word "delimiter".
    with (
        Scripted(lambda *_: (200, {}, b'{"data" 1}')) as server,
        pytest.raises(Rejected, match=r"delimiter.*check url and kind of \[fleet\]"),
    ):
        ask(kind, server)
    assert len(server.requests) == 1


def test_truncated_answers_of_servers_are_partial():
    says = "the database says: "
    for kind, answer, wanted in (
        ("influxql", document("influxql", 1.0, partial=True), "the database truncated the answer"),
        (
            "influxql",
            document("influxql", 1.0, messages=[{"level": "warning", "text": "deprecated"}]),
            f"{says}deprecated",
        ),
        (
            "victoriametrics",
            document("victoriametrics", 1.0, isPartial=True),
            "a storage node of the cluster did not answer",
        ),
        (
            "prometheus",
            document("prometheus", 1.0, warnings=["store \x1b[2J gone"]),
            f"{says}store [2J gone",
        ),
    ):
        body = json.dumps(answer).encode()
        with Scripted(lambda *_, body=body: (200, {}, body)) as server:
            found = ask(kind, server)
        assert found.problems == (wanted,), kind
        assert found.rows[0].value == 1.0


def test_answers_of_another_shape_are_rejected(kind):
    shapes = [b"[]", b"{}", b'{"results": 7, "data": 7}', b"<html>", b'{"data": {"result": [7]}}']
    shapes += [b'{"results": [{"series": [{"values": [7]}]}]}', b"[" * 100, b'{"a": ' + b" " * 9]
    # Sums of such values overflow, and such times have no date.
    shapes += [json.dumps(document(kind, value)).encode() for value in (1e308, -1e308)]
    shapes += [json.dumps(document("prometheus", value)).encode() for value in ("+Inf", "-Inf")]
    for body in shapes:
        with (
            Scripted(lambda *_, body=body: (200, {}, body)) as server,
            pytest.raises(Rejected, match="answer"),
        ):
            ask(kind, server)


def test_names_that_are_no_unicode_are_replaced(kind):
    # A name with half a character would stop all alerts of `fleet watch`.
    body = json.dumps(document(kind, 1.0)).replace('"a"', '"a\\ud800é"').encode()
    with Scripted(lambda *_: (200, {}, body)) as server:
        found = ask(kind, server)
    assert [row.tags for row in found.rows] == [("a?é",)]


def test_missing_database_is_an_error_of_the_configuration():
    body = b'{"results": [{"error": "database not found: d"}]}'
    with (
        Scripted(lambda *_: (200, {}, body)) as server,
        pytest.raises(Misconfigured, match="check database"),
    ):
        ask("influxql", server)


def test_paths_tenants_and_credentials_of_clusters(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t-of-fleet\n")
    basic = base64.b64encode(b"reader:s3cr3t-of-fleet").decode()
    for config, path, headers in (
        # VictoriaMetrics cluster: account and project in the path of vmselect.
        ({"kind": "victoriametrics", "tenant": "42:7"}, "/select/42:7/prometheus/api/v1/query", {}),
        ({"kind": "victoriametrics"}, "/api/v1/query", {}),
        # Mimir and Cortex: below /prometheus, with the tenant in a header.
        (
            {"kind": "prometheus", "path": "/prometheus", "tenant": "ml|search"},
            "/prometheus/api/v1/query",
            {"X-Scope-OrgID": "ml|search"},
        ),
        (
            {"kind": "prometheus", "token": f"file:{secret}", "headers": {"X-Cluster": "eu"}},
            "/api/v1/query",
            {"Authorization": "Bearer s3cr3t-of-fleet", "X-Cluster": "eu"},
        ),
        # InfluxDB Enterprise, Clustered and 2.x.
        (
            {**KINDS["influxql"], "user": "reader", "password": f"file:{secret}"},
            "/query",
            {"Authorization": f"Basic {basic}"},
        ),
        (
            {**KINDS["influxql"], "token": f"file:{secret}"},
            "/query",
            {"Authorization": "Token s3cr3t-of-fleet"},
        ),
    ):
        kind = config.pop("kind")
        body = json.dumps(document(kind, 1.0)).encode()
        with Scripted(lambda *_, body=body: (200, {}, body)) as server:
            ask(kind, server, **{"url": server.url + config.pop("path", ""), **config})
        ((_, found, sent, _),) = server.requests
        assert found == path
        assert headers.items() <= sent.items(), config


def test_replicas_are_counted_once_by_their_labels():
    body = json.dumps(document("prometheus", 1.0)).encode()
    with Scripted(lambda *_: (200, {}, body)) as server:
        ask("prometheus", server, replica_labels=["replica"])
    query = form_of(server.requests[0][3])["query"]
    assert query.startswith("sum by (host) (max without (replica) (")


def test_hourly_rows_answer_for_whole_hours_of_long_periods(kind):
    if kind == "prometheus":
        return
    asked = []

    def answer(_method, _path, _headers, body):
        form = form_of(body)
        is_hourly = form.get("db", form.get("query", "")).find("hourly") >= 0
        asked.append(is_hourly)
        return 200, {}, json.dumps(document(kind, 70.0 if is_hourly else 2.0)).encode()

    with Scripted(answer) as server:
        databases = {"database": "d", "hourly_database": "hourly"}
        found = ask(kind, server, hours=72, **databases)
        assert asked == [True, False]
        assert [row.value for row in found.rows] == [72.0]
        asked.clear()
        # Counts of rows, and rows that have no hours.
        ask(kind, server, Question("probe", "samples", "count", by=("host",)), 72, **databases)
        ask(kind, server, Question("event", "title", "count", by=("host",)), 72, **databases)
    assert asked == [False, False]


def test_sections_that_do_not_fit_their_kind_are_errors():
    url = "http://127.0.0.1:8086"
    for config, words in (
        ({"kind": "influxql"}, 'add database = "costprobe"'),
        ({"kind": "influxql", "database": "d", "tenant": "7"}, "belong to PromQL"),
        ({"kind": "prometheus", "database": "d"}, "remove database"),
        ({"kind": "prometheus", "retention_policy": "d"}, "remove it"),
        ({"kind": "prometheus", "tenant": "a/b"}, "tenant id"),
        ({"kind": "prometheus", "password": "file:/x"}, "add user"),
        ({"kind": "prometheus", "user": "u", "token": "file:/x"}, "one of them"),
        ({"kind": "prometheus", "headers": {"Authorization": "x"}}, "authorization is set by"),
        ({"kind": "prometheus", "key": "file:/x", "key_header": "Host"}, "key_header: host is set"),
        ({"kind": "prometheus", "key": "x-1234"}, "never the key itself"),
        (
            {"kind": "prometheus", "headers": {"x-api-key": "x"}},
            "x-api-key: its value goes into key",
        ),
    ):
        with pytest.raises(ValidationError, match=words):
            FleetConfig.model_validate({"url": url, **config})


def test_numbers_of_options_are_finite(tmp_path):
    path = tmp_path / "costprobe.toml"
    path.write_text('[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n')
    for command, option in (("forecast", "--amount"), ("savings", "--utilization")):
        for value in ("nan", "inf", "-inf", "many"):
            done = called(path, command, "--fleet", option, value, code=2)
            assert f"Invalid value for '{option}'" in done.stderr
