"""/healthz and /metrics for a store and a daemon status, without a daemon."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from costprobe.adapters.http.settings import HttpConfig
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config, parse
from costprobe.core.config.load import ConfigError
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import SCHEMA, make_point
from costprobe.daemon.metrics import Newest, labels_of
from costprobe.daemon.pages import HttpPages, Sources
from fakes.clock import FakeClock
from prometheus_client.parser import text_string_to_metric_families

LOOPBACK = "127.0.0.1:0"


class ReportedStatus:
    """The status that a daemon would report; a test modifies it."""

    def __init__(self, path):
        self.parts = {"sensors": True, "jobs": True}
        self.row = make_point(
            "agent",
            {"host": "h", "version": "1"},
            {"rss_bytes": 50_000_000, "cpu_s": 1.5, "sent_points": 7, "outbox_lag_s": 2.0},
            0,
        )
        self.document = {
            "version": "1.2.3",
            "config_fault": None,
            "sensor": {"state": "running", "last_fault": "", "devices": {}},
            "store": {"path": str(path), "fault": None},
            "probes": [],
            "jobs": {
                "status": {"runs": 9, "errors": 1, "late": 2, "last_duration_s": None},
            },
            "sinks": {
                "influxdb": {
                    "retry_in_s": None,
                    "last_error": None,
                    "sent_points": 7,
                    "rejected_points": 0,
                }
            },
            "notifiers": {},
        }


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    opened = Store.open(tmp_path / "costprobe.db", clock)
    yield opened
    opened.close()


@pytest.fixture
def reported(store):
    return ReportedStatus(store.path)


@pytest.fixture
def pages(store, reported, clock):
    sources = Sources(
        store.path,
        lambda: reported.parts,
        lambda: reported.document,
        lambda: reported.row,
        lambda request: request,
    )
    made = HttpPages(sources, clock)
    yield made
    made.close()


def fetch(pages, path):
    url = f"http://127.0.0.1:{pages.status()['port']}{path}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


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


def test_health_is_200_without_faults(pages):
    pages.serve(HttpConfig(listen=LOOPBACK))
    status, headers, text = fetch(pages, "/healthz")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(text) == {"status": "ok", "dead": [], "faults": []}


def test_health_is_503_and_names_a_dead_part(pages, reported):
    reported.parts["sink influxdb"] = False
    pages.serve(HttpConfig(listen=LOOPBACK))
    status, _, text = fetch(pages, "/healthz")
    assert (status, json.loads(text)["status"]) == (503, "dead")
    assert json.loads(text)["dead"] == ["sink influxdb"]


def test_health_is_503_and_names_a_fault(pages, reported):
    reported.document["sinks"]["influxdb"].update(retry_in_s=3.0, last_error="connection refused")
    pages.serve(HttpConfig(listen=LOOPBACK))
    status, _, text = fetch(pages, "/healthz")
    document = json.loads(text)
    assert (status, document["status"], document["dead"]) == (503, "faulty", [])
    assert [(f["name"], f["subject"]) for f in document["faults"]] == [("sink_behind", "influxdb")]
    assert "connection refused" in document["faults"][0]["text"]
    assert (
        metrics(pages)[1][
            (
                "costprobe_fault",
                ("fault", "sink_behind"),
                ("severity", "warning"),
                ("subject", "influxdb"),
            )
        ]
        == 1
    )


def test_metrics_hold_the_newest_value_of_every_numeric_field(pages, store, clock):
    tags = {"host": "h", "device": "gpu0", "kind": "gpu", "uuid": "u", "model": 'A "B", C'}
    now_ns = clock.time_ns()
    rows = [
        make_point("device", tags, {"power_w": 100.0, "temp_c": 60.0}, now_ns - 30 * NS_PER_S),
        make_point(
            "device",
            tags,
            {"power_w": 200.0, "processes": 3, "energy_suspect": True, "energy_method": "counter"},
            now_ns - 10 * NS_PER_S,
        ),
        make_point("device", {**tags, "device": "gpu1"}, {"power_w": 9.0}, now_ns - 901 * NS_PER_S),
        # The row was written while the wall clock was wrong.
        make_point("device", tags, {"power_w": 999.0}, now_ns + 10**9 * NS_PER_S),
    ]
    store.append(rows)
    pages.serve(HttpConfig(listen=LOOPBACK))
    families, samples = metrics(pages)
    labels = tuple(sorted(tags.items()))
    assert samples["costprobe_device_power_w", *labels] == 200
    assert samples["costprobe_device_temp_c", *labels] == 60
    assert samples["costprobe_device_processes", *labels] == 3
    assert samples["costprobe_device_energy_suspect", *labels] == 1
    assert "costprobe_device_energy_method" not in families
    assert not [key for key in samples if ("device", "gpu1") in key], "too old"
    assert families["costprobe_device_power_w"].type == "gauge"
    assert families["costprobe_device_power_w"].documentation.endswith("in watts")
    assert families["costprobe_device_energy_suspect"].documentation.endswith("1 or 0")


def test_counters_of_the_daemon_have_type_counter(pages):
    pages.serve(HttpConfig(listen=LOOPBACK))
    fetch(pages, "/healthz")
    families, samples = metrics(pages)
    own = (("host", "h"), ("version", "1"))
    assert samples["costprobe_agent_sent_points_total", *own] == 7
    assert samples["costprobe_agent_cpu_s_total", *own] == 1.5
    assert samples["costprobe_agent_rss_bytes", *own] == 50_000_000
    assert families["costprobe_agent_sent_points"].type == "counter"
    assert families["costprobe_agent_rss_bytes"].type == "gauge"
    assert families["costprobe_agent_rss_bytes"].documentation.endswith("in bytes")
    assert samples["costprobe_job_errors_total", ("job", "status")] == 1
    assert samples["costprobe_job_late_total", ("job", "status")] == 2
    assert samples["costprobe_sink_sent_points_total", ("sink", "influxdb")] == 7
    assert samples["costprobe_part_alive", ("part", "jobs")] == 1
    assert samples["costprobe_build_info", ("version", "1.2.3")] == 1
    assert samples["costprobe_http_answers_total", ("code", "200"), ("page", "/healthz")] == 1
    assert samples[("costprobe_metrics_store_readable",)] == 1
    assert samples[("costprobe_metrics_dropped_series",)] == 0


def test_agent_rows_are_not_exported_twice(pages, store, reported, clock):
    store.append([Point("agent", reported.row.tags, {"rss_bytes": 1}, clock.time_ns())])
    pages.serve(HttpConfig(listen=LOOPBACK))
    _, samples = metrics(pages)
    shown = [value for key, value in samples.items() if key[0] == "costprobe_agent_rss_bytes"]
    assert shown == [50_000_000]


def test_every_field_of_the_schema_has_a_valid_metric_name(pages, store, clock):
    rows = [
        make_point(
            name,
            dict.fromkeys(measurement.tags, "x"),
            {
                field: {str: "text", bool: True, int: 2, float: 2.5}[kind]
                for field, kind in measurement.fields.items()
            },
            clock.time_ns(),
        )
        for name, measurement in SCHEMA.items()
    ]
    store.append(rows)
    pages.serve(HttpConfig(listen=LOOPBACK))
    families, _ = metrics(pages)
    for name, measurement in SCHEMA.items():
        if name == "agent":
            continue
        for field, kind in measurement.fields.items():
            assert (f"costprobe_{name}_{field}" in families) is (kind is not str)
    for field, unit in (
        ("energy_per_request_j", "joules per request"),
        ("energy_per_million_tokens_out_j", "joules per million tokens"),
        ("cost_per_million_tokens_in", "currency per million tokens"),
    ):
        assert families[f"costprobe_cost_{field}"].documentation.endswith(f", in {unit}")


def test_series_above_the_limit_are_counted(pages, store, clock):
    rows = [
        make_point(
            "device", {"device": f"gpu{i:03}"}, {"power_w": 1.0, "cost": 2.0}, clock.time_ns()
        )
        for i in range(80)
    ]
    store.append(rows)
    pages.serve(HttpConfig(listen=LOOPBACK, max_series=100))
    _, samples = metrics(pages)
    shown = [key for key in samples if key[0].startswith("costprobe_device_")]
    assert (len(shown), samples[("costprobe_metrics_dropped_series",)]) == (100, 60)


def test_events_and_firing_incidents_have_their_texts_as_labels(pages, store, clock):
    fields = {"severity": "warning", "title": "price rose", "cause": "list", "detail": "long"}
    place = {"host": "h", "device": "gpu0"}
    store.append([make_point("event", place | {"kind": "price"}, fields, clock.time_ns())])
    alert = {"state": "firing", "name": "drift", "severity": "info", "cause": "", "labels": place}
    alerts = [
        {**alert, "id": "1"},
        {**alert, "id": "2", "name": "silenced"},
        {**alert, "id": "3", "state": "pending"},
    ]
    store.put_state("alerts", {"alerts": alerts, "silenced": ["2"]})
    pages.serve(HttpConfig(listen=LOOPBACK))
    found = {key: value for key, value in metrics(pages)[1].items() if "_event_" in key[0]}
    labels = {**place, "kind": "price", "severity": "warning", "title": "price rose"}
    event = ("costprobe_event_time_s", *sorted({**labels, "cause": "list"}.items()))
    assert found == {event: pytest.approx(clock.time_ns() / NS_PER_S)}
    found = [key for key in metrics(pages)[1] if key[0] == "costprobe_alert_firing"]
    labels = {**place, "rule": "drift", "severity": "info"}
    assert found == [("costprobe_alert_firing", *sorted(labels.items()))]


def test_alert_is_exported_in_its_last_state_only():
    newest = Newest(100)
    for time_ns, state in enumerate(["pending", "firing", "resolved"]):
        newest.take(Point("alert", {"rule": "r", "state": state}, {"value": time_ns}, time_ns))
    newest.take(Point("alert", {"rule": "other", "state": "firing"}, {"value": 5}, 9))
    fields = dict(newest.by_field("alert"))
    assert fields.keys() == {"value", "time_s"}
    assert sorted((tags["rule"], tags["state"], value) for tags, value in fields["value"]) == [
        ("other", "firing", 5),
        ("r", "resolved", 2),
    ]


def test_label_names_are_valid():
    tags = {"rack.row": "1", "rack:row": "2", "0day": "3", "__name__": "4", "größe": "5"}
    assert labels_of(tags) == {
        "rack_row": "1",
        "rack_row_": "2",
        "tag_0day": "3",
        "tag_name__": "4",
        "gr__e": "5",
    }


def test_metrics_without_a_readable_store_show_the_rest(pages, store, reported):
    reported.row = None
    pages.serve(HttpConfig(listen=LOOPBACK))
    store.path.rename(f"{store.path}.gone")
    _, samples = metrics(pages)
    assert samples[("costprobe_metrics_store_readable",)] == 0
    assert samples["costprobe_part_alive", ("part", "jobs")] == 1
    store.path.with_name(f"{store.path.name}.gone").rename(store.path)


def test_reload_moves_stops_and_starts_the_server(pages):
    pages.serve(HttpConfig())
    assert pages.status() == {"listen": None, "port": None, "fault": None}
    pages.serve(HttpConfig(listen=LOOPBACK))
    first = pages.status()["port"]
    pages.serve(HttpConfig(listen=LOOPBACK))
    assert pages.status()["port"] == first
    pages.serve(HttpConfig(listen=LOOPBACK, max_series=200))
    assert fetch(pages, "/healthz")[0] == 200
    pages.serve(HttpConfig())
    assert pages.status()["port"] is None
    assert pages.is_alive()


def test_address_in_use_is_a_fault_and_not_fatal(pages, store, reported, clock, caplog):
    pages.serve(HttpConfig(listen=LOOPBACK))
    taken = f"127.0.0.1:{pages.status()['port']}"
    other = HttpPages(
        Sources(store.path, lambda: reported.parts, lambda: reported.document, lambda: None, dict),
        clock,
    )
    other.serve(HttpConfig(listen=taken))
    assert "in use" in other.status()["fault"]
    assert "HTTP is not served" in caplog.text
    pages.close()
    other.serve(HttpConfig(listen=taken))
    assert other.status()["fault"] is None
    other.close()


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:9101", ("127.0.0.1", 9101)),
        ("127.1.2.3:0", ("127.1.2.3", 0)),
        ("[::1]:9101", ("::1", 9101)),
    ],
)
def test_address_of_this_host(listen, address):
    assert parse(f'[http]\nlisten = "{listen}"\n', None).http.address == address


def test_http_is_off_by_default():
    assert Config().http.address is None


@pytest.mark.parametrize("listen", ["0.0.0.0:9101", "[::]:9101", "10.0.0.7:9101"])
def test_other_hosts_are_served_only_with_allow_remote(listen):
    with pytest.raises(ConfigError, match="allow_remote"):
        parse(f'[http]\nlisten = "{listen}"\n', None)
    config = parse(f'[http]\nlisten = "{listen}"\nallow_remote = true\n', None)
    assert config.http.address[1] == 9101


def test_names_of_the_host_header_are_a_list():
    remote = '[http]\nlisten = "0.0.0.0:9101"\nallow_remote = true\n'
    # Remote access alone accepts no further name: a web page could reach the address by its own.
    assert parse(remote, None).http.allowed_hosts == ()
    named = parse(remote + 'allowed_hosts = ["gpu-01.example.com"]\n', None)
    assert named.http.allowed_hosts == ("gpu-01.example.com",)
    for wrong in ("*", "", "gpu-01:9101", "http://gpu-01", "a..b", ".a", "a" * 300):
        with pytest.raises(ConfigError, match="host name"):
            parse(remote + f"allowed_hosts = [{json.dumps(wrong)}]\n", None)


@pytest.mark.parametrize(
    "listen",
    ["", "9101", ":9101", "localhost:9101", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000",
     "::1:9101", "[127.0.0.1]:9101", "127.0.0.1:-1", "[fe80::1%lo]:9101", "127.0.0.1:٩"],
)  # fmt: skip
def test_invalid_address_is_rejected(listen):
    with pytest.raises(ConfigError, match="IP address and a port"):
        parse(f'[http]\nlisten = "{listen}"\nallow_remote = true\n', None)


def test_daemon_imports_prometheus_client_only_if_http_is_on():
    program = (
        "import sys\n"
        "import costprobe.ui.cli.run, costprobe.daemon.pages\n"
        "assert 'prometheus_client' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
