"""/healthz, /metrics and annotations for a store and a daemon status, without a daemon."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.http.access import Secret
from costprobe.adapters.http.responses import PostRequest
from costprobe.adapters.http.settings import HttpConfig
from costprobe.configuration import Config, parse
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SCHEMA, make_point
from costprobe.daemon.metrics import labels_of
from costprobe.daemon.pages import BURST, PER_S, AnnotationEndpoint
from daemon.test_counters import rows
from fakes.cases import check_all
from fakes.pages import Reported, pages_of
from fakes.servers import answered
from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).parent / "metrics.txt"
LISTENING = HttpConfig(listen="127.0.0.1:0")
# Another server, without the answers that this one keeps for a moment.
AGAIN = HttpConfig(listen="127.0.0.1:0", max_series=200)
OWN = (("host", "h"), ("version", "1"))


@pytest.fixture
def reported(store, clock):
    fields = {"rss_bytes": 50_000_000, "cpu_s": 1.5, "sent_points": 7, "outbox_lag_s": 2.0}
    sink = {"retry_in_s": None, "last_error": None, "sent_points": 7, "rejected_points": 0}
    return Reported(
        store,
        clock,
        make_point("agent", dict(OWN), fields, 0),
        jobs={"status": {"runs": 9, "errors": 1, "late": 2, "last_duration_s": None}},
        sinks={"influxdb": sink},
    )


@pytest.fixture
def pages(reported):
    with closing(pages_of(reported)) as pages:
        yield pages


def fetch(pages, path):
    status, headers, body = answered(f"http://127.0.0.1:{pages.status()['port']}{path}")
    return status, headers, body.decode()


def metrics(pages):
    """Return families by name, and samples by (name, labels)."""
    status, headers, text = fetch(pages, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {}
    for family in families.values():
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in samples, "one series twice"
            samples[key] = sample.value
    return families, samples


def test_health_names_faults_and_dead_parts(pages, reported):
    def health(how):
        pages.serve(how)
        status, headers, text = fetch(pages, "/healthz")
        assert headers["Content-Type"] == "application/json"
        document = json.loads(text)
        faults = [(fault["name"], fault["subject"]) for fault in document["faults"]]
        return status, document["status"], document["dead"], faults, text

    assert health(LISTENING)[:4] == (200, "ok", [], [])
    reported.document["sinks"]["influxdb"].update(retry_in_s=3.0, last_error="connection refused")
    fault = ("sink_behind", "influxdb")
    *found, text = health(AGAIN)
    assert found == [503, "faulty", [], [fault]]
    assert "connection refused" in text
    labels = (("fault", fault[0]), ("severity", "warning"), ("subject", fault[1]))
    assert metrics(pages)[1]["costprobe_fault", *labels] == 1
    reported.alive["sink influxdb"] = False
    assert health(LISTENING)[:3] == (503, "dead", ["sink influxdb"])


def test_metrics_are_counters_and_newest_values_with_their_units(pages, store, clock):
    """The page in `metrics.txt`; COSTPROBE_RECORD=1 writes it again."""
    tags = {"host": "h", "device": "gpu0", "kind": "gpu", "uuid": "u", "model": 'A "B", C'}
    place, now_ns = {"host": "h", "device": "gpu0"}, clock.time_ns()
    newest = {"power_w": 200.0, "processes": 3, "energy_suspect": True, "energy_method": "counter"}
    event = {"severity": "warning", "title": "price rose", "cause": "list", "detail": "long"}
    for measurement, labels, fields, ago_s in (
        ("device", tags, {"power_w": 100.0, "temp_c": 60.0}, 30),
        ("device", tags, newest, 10),
        ("device", {**tags, "device": "gpu1"}, {"power_w": 9.0}, 901),
        # The row was written while the wall clock was wrong.
        ("device", tags, {"power_w": 999.0}, -(10**9)),
        # An alert is shown in its last state, the daemon as it is now.
        ("alert", {"rule": "r", "state": "resolved"}, {"value": 1.0}, 1),
        ("alert", {"rule": "r", "state": "firing"}, {"value": 2.0}, 2),
        ("agent", dict(OWN), {"rss_bytes": 1}, 0),
        ("event", {**place, "kind": "price"}, event, 0),
    ):
        store.append([make_point(measurement, labels, fields, now_ns - ago_s * NS_PER_S)])
    store.append(rows(now_ns))
    alert = {"state": "firing", "name": "drift", "severity": "info", "cause": "", "labels": place}
    alerts = [{**alert, "id": "1"}, {**alert, "id": "2"}, {**alert, "id": "3", "state": "pending"}]
    store.put_state("alerts", {"alerts": alerts, "silenced": ["2"]})
    pages.serve(LISTENING)
    fetch(pages, "/healthz")
    text = fetch(pages, "/metrics")[2]
    if os.environ.get("COSTPROBE_RECORD") == "1":
        PAGE.write_text(text)
    assert text == PAGE.read_text()


def test_metrics_without_a_readable_store_are_those_of_the_daemon(pages, store, reported):
    reported.row = None
    gone = store.path.rename(f"{store.path}.gone")
    pages.serve(LISTENING)
    _, samples = metrics(pages)
    assert samples[("costprobe_metrics_store_readable",)] == 0
    assert samples["costprobe_part_alive", ("part", "jobs")] == 1
    gone.rename(store.path)


def test_every_field_of_the_schema_has_a_valid_metric_name(pages, store, clock):
    values = {str: "text", bool: True, int: 2, float: 2.5}
    for name, measurement in SCHEMA.items():
        fields = {field: values[kind] for field, kind in measurement.fields.items()}
        store.append([make_point(name, dict.fromkeys(measurement.tags, "x"), fields, 10**18)])
    clock.step(1e9 - clock.time_ns() / 1e9)
    pages.serve(LISTENING)
    families, _ = metrics(pages)
    for name, measurement in SCHEMA.items():
        for field, kind in measurement.fields.items():
            is_shown = kind is not str and name != "agent"
            assert name == "agent" or (f"costprobe_{name}_{field}" in families) is is_shown
    for field, unit in (
        ("energy_per_request_j", "joules per request"),
        ("energy_per_million_tokens_out_j", "joules per million tokens"),
        ("cost_per_million_tokens_in", "currency per million tokens"),
    ):
        assert families[f"costprobe_cost_{field}"].documentation.endswith(f", in {unit}")


def test_label_names_are_valid():
    tags = {"rack.row": "1", "rack:row": "2", "0day": "3", "__name__": "4", "größe": "5"}
    names = {"rack_row": "1", "rack_row_": "2", "tag_0day": "3", "tag_name__": "4", "gr__e": "5"}
    assert labels_of(tags) == names


def test_address_in_use_is_a_fault_and_not_fatal(pages, reported, caplog):
    pages.serve(LISTENING)
    taken = HttpConfig(listen=f"127.0.0.1:{pages.status()['port']}")
    other = pages_of(reported)
    other.serve(taken)
    assert "in use" in other.status()["fault"]
    assert "HTTP is not served" in caplog.text
    pages.close()
    other.serve(taken)
    assert other.status()["fault"] is None
    other.close()


def test_listening_beyond_this_host_accepts_only_the_host_names_that_are_named():
    """What is refused is in tests/configuration/refused.txt."""

    def http(listen, more=""):
        return parse(f'[http]\nlisten = "{listen}"\n{more}', None).http

    assert Config().http.address is None
    own = {"127.0.0.1:9101": "127.0.0.1", "127.1.2.3:9101": "127.1.2.3", "[::1]:9101": "::1"}
    assert {listen: http(listen).address for listen in own} == {
        listen: (host, 9101) for listen, host in own.items()
    }
    remote = "allow_remote = true\n"
    for listen in ("0.0.0.0:9101", "[::]:9101", "10.0.0.7:9101"):
        # Remote access alone accepts no further name: a web page could reach the address by its own.
        assert (http(listen, remote).address[1], http(listen, remote).allowed_hosts) == (9101, ())
    named = http("0.0.0.0:9101", f'{remote}allowed_hosts = ["gpu-01.example.com"]')
    assert named.allowed_hosts == ("gpu-01.example.com",)


GOOD = "Bearer a-token-of-a-pipeline"
BODY = b'{"text": "deployed v42"}'


def stored(request):
    if "text" not in request:
        raise ValueError("text: is empty")
    return None if request["text"] == "early" else request


@pytest.fixture
def endpoint(tmp_path, clock):
    (tmp_path / "token").write_text(GOOD.split()[1] + "\n")
    return AnnotationEndpoint(Secret.of_file(tmp_path / "token", "token"), stored, clock)


def response(endpoint, body=BODY, authorization=GOOD):
    found = endpoint.answer(PostRequest(authorization, body, "10.0.0.9"))
    assert found.content_type == "application/json"
    return found.status, json.loads(found.body), dict(found.headers)


def test_annotations_are_passed_on_with_their_client_and_bad_requests_answered_with_an_error(
    endpoint, clock, tmp_path
):
    without = AnnotationEndpoint(None, stored, clock)
    missing = AnnotationEndpoint(Secret.of_file(tmp_path / "none", "token"), stored, clock)
    named = b'{"text": "deployed v42", "author": "ci"}'

    def check(at, body, authorization, status, words):
        found, document, _ = response(at, body, authorization)
        assert (found, words in json.dumps(document)) == (status, True), document

    check_all(
        check,
        [
            (endpoint, BODY, GOOD, 201, '"author": "10.0.0.9"'),
            (endpoint, named, GOOD, 201, '"author": "ci"'),
            (endpoint, BODY, "", 401, "Authorization: Bearer"),
            (endpoint, BODY, "Bearer wrong", 401, "Authorization: Bearer"),
            (endpoint, BODY, GOOD.replace("Bearer", "Basic"), 401, "Authorization: Bearer"),
            (endpoint, BODY, f"{GOOD}ü", 401, "Authorization: Bearer"),
            (endpoint, b"", GOOD, 400, "not valid JSON"),
            (endpoint, b"[]", GOOD, 400, "not a JSON object"),
            (endpoint, b"[" * 4500 + b"]" * 4500, GOOD, 400, "nested"),
            (endpoint, b'{"text": "\xff"}', GOOD, 400, "not UTF-8"),
            (endpoint, b"{}", GOOD, 400, "text: is empty"),
            (endpoint, b'{"text": "early"}', GOOD, 503, "starting or stopping"),
            (without, BODY, "Bearer ", 403, "http.token"),
            (missing, BODY, GOOD, 503, ""),
        ],
    )


def test_rate_is_limited_only_for_clients_with_the_token(endpoint, clock):
    for _ in range(2 * BURST):
        assert response(endpoint, authorization="Bearer wrong")[0] == 401
    assert {response(endpoint)[0] for _ in range(BURST)} == {201}
    status, _, headers = response(endpoint)
    assert (status, headers["Retry-After"]) == (429, f"{1 / PER_S:.0f}")
    clock.move(1 / PER_S)
    assert response(endpoint)[0] == 201
