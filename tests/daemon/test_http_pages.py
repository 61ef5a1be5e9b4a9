"""/healthz and /metrics: what they say of a store and of a daemon, without a daemon."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from fakes.clock import FakeClock
from prometheus_client.parser import text_string_to_metric_families

from agent.config import Config, HttpConfig
from agent.config_file import ConfigError, parse
from agent.daemon.http_pages import HttpPages, Sources
from agent.daemon.metrics import Newest, labels_of
from agent.model import NS_PER_S, Point
from agent.series import SCHEMA, make_point
from agent.storage.writer import Store

LOOPBACK = "127.0.0.1:0"


class Said:
    """What a daemon would say of itself; a test changes it."""

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
                "influxdb": {"retry_in_s": None, "last_error": None, "sent": 7, "rejected": 0}
            },
            "notifiers": {},
        }


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    opened = Store.open(tmp_path / "infercost.db", clock)
    yield opened
    opened.close()


@pytest.fixture
def said(store):
    return Said(store.path)


@pytest.fixture
def pages(store, said, clock):
    sources = Sources(store.path, lambda: said.parts, lambda: said.document, lambda: said.row)
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
    """Families by name, and samples by (name, labels)."""
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


def test_all_good_is_200(pages):
    pages.serve(HttpConfig(listen=LOOPBACK))
    status, headers, text = fetch(pages, "/healthz")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(text) == {"status": "ok", "dead": [], "faults": []}


def test_a_dead_part_is_503_and_named(pages, said):
    said.parts["sink influxdb"] = False
    pages.serve(HttpConfig(listen=LOOPBACK))
    status, _, text = fetch(pages, "/healthz")
    assert (status, json.loads(text)["status"]) == (503, "dead")
    assert json.loads(text)["dead"] == ["sink influxdb"]


def test_a_fault_is_503_and_named(pages, said):
    said.document["sinks"]["influxdb"].update(retry_in_s=3.0, last_error="connection refused")
    pages.serve(HttpConfig(listen=LOOPBACK))
    status, _, text = fetch(pages, "/healthz")
    document = json.loads(text)
    assert (status, document["status"], document["dead"]) == (503, "faulty", [])
    assert [(f["name"], f["subject"]) for f in document["faults"]] == [("sink_behind", "influxdb")]
    assert "connection refused" in document["faults"][0]["text"]
    assert (
        metrics(pages)[1][
            (
                "infercost_fault",
                ("fault", "sink_behind"),
                ("severity", "warning"),
                ("subject", "influxdb"),
            )
        ]
        == 1
    )


def test_the_newest_value_of_every_numeric_field(pages, store, clock):
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
        # A calendar that was wrong for a while left it.
        make_point("device", tags, {"power_w": 999.0}, now_ns + 10**9 * NS_PER_S),
    ]
    store.append(rows)
    pages.serve(HttpConfig(listen=LOOPBACK))
    families, samples = metrics(pages)
    labels = tuple(sorted(tags.items()))
    assert samples["infercost_device_power_w", *labels] == 200
    assert samples["infercost_device_temp_c", *labels] == 60
    assert samples["infercost_device_processes", *labels] == 3
    assert samples["infercost_device_energy_suspect", *labels] == 1
    assert "infercost_device_energy_method" not in families
    assert not [key for key in samples if ("device", "gpu1") in key], "too old"
    assert families["infercost_device_power_w"].type == "gauge"
    assert families["infercost_device_power_w"].documentation.endswith("in watts")
    assert families["infercost_device_energy_suspect"].documentation.endswith("1 or 0")


def test_the_daemons_own_counters_are_counters(pages):
    pages.serve(HttpConfig(listen=LOOPBACK))
    fetch(pages, "/healthz")
    families, samples = metrics(pages)
    own = (("host", "h"), ("version", "1"))
    assert samples["infercost_agent_sent_points_total", *own] == 7
    assert samples["infercost_agent_cpu_s_total", *own] == 1.5
    assert samples["infercost_agent_rss_bytes", *own] == 50_000_000
    assert families["infercost_agent_sent_points"].type == "counter"
    assert families["infercost_agent_rss_bytes"].type == "gauge"
    assert families["infercost_agent_rss_bytes"].documentation.endswith("in bytes")
    assert samples["infercost_job_errors_total", ("job", "status")] == 1
    assert samples["infercost_job_late_total", ("job", "status")] == 2
    assert samples["infercost_sink_sent_points_total", ("sink", "influxdb")] == 7
    assert samples["infercost_part_alive", ("part", "jobs")] == 1
    assert samples["infercost_build_info", ("version", "1.2.3")] == 1
    assert samples["infercost_http_answers_total", ("code", "200"), ("page", "/healthz")] == 1
    assert samples[("infercost_metrics_store_readable",)] == 1
    assert samples[("infercost_metrics_dropped_series",)] == 0


def test_the_agents_own_rows_are_not_shown_twice(pages, store, said, clock):
    store.append([Point("agent", said.row.tags, {"rss_bytes": 1}, clock.time_ns())])
    pages.serve(HttpConfig(listen=LOOPBACK))
    _, samples = metrics(pages)
    shown = [value for key, value in samples.items() if key[0] == "infercost_agent_rss_bytes"]
    assert shown == [50_000_000]


def test_every_field_of_the_schema_has_a_name_that_prometheus_takes(pages, store, clock):
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
            assert (f"infercost_{name}_{field}" in families) is (kind is not str)


def test_what_there_is_no_room_for_is_counted(pages, store, clock):
    rows = [
        make_point(
            "device", {"device": f"gpu{i:03}"}, {"power_w": 1.0, "cost": 2.0}, clock.time_ns()
        )
        for i in range(80)
    ]
    store.append(rows)
    pages.serve(HttpConfig(listen=LOOPBACK, max_series=100))
    _, samples = metrics(pages)
    shown = [key for key in samples if key[0].startswith("infercost_device_")]
    assert (len(shown), samples[("infercost_metrics_dropped_series",)]) == (100, 60)


def test_an_alert_is_shown_in_its_last_state_alone():
    newest = Newest(100)
    for time_ns, state in enumerate(["pending", "firing", "resolved"]):
        newest.take(Point("alert", {"rule": "r", "state": state}, {"value": time_ns}, time_ns))
    newest.take(Point("alert", {"rule": "other", "state": "firing"}, {"value": 5}, 9))
    ((field, found),) = newest.by_field("alert")
    assert field == "value"
    assert sorted((tags["rule"], tags["state"], value) for tags, value in found) == [
        ("other", "firing", 5),
        ("r", "resolved", 2),
    ]


def test_labels_are_such_as_prometheus_takes():
    tags = {"rack.row": "1", "rack:row": "2", "0day": "3", "__name__": "4", "größe": "5"}
    assert labels_of(tags) == {
        "rack_row": "1",
        "rack_row_": "2",
        "tag_0day": "3",
        "tag_name__": "4",
        "gr__e": "5",
    }


def test_without_a_readable_store_the_rest_is_told(pages, store, said):
    said.row = None
    pages.serve(HttpConfig(listen=LOOPBACK))
    store.path.rename(f"{store.path}.gone")
    _, samples = metrics(pages)
    assert samples[("infercost_metrics_store_readable",)] == 0
    assert samples["infercost_part_alive", ("part", "jobs")] == 1
    store.path.with_name(f"{store.path.name}.gone").rename(store.path)


def test_a_reload_moves_switches_off_and_on_and_leaves_alone(pages):
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


def test_an_address_that_is_taken_is_a_fault_and_no_end(pages, store, said, clock, caplog):
    pages.serve(HttpConfig(listen=LOOPBACK))
    taken = f"127.0.0.1:{pages.status()['port']}"
    other = HttpPages(
        Sources(store.path, lambda: said.parts, lambda: said.document, lambda: None), clock
    )
    other.serve(HttpConfig(listen=taken))
    assert "in use" in other.status()["fault"]
    assert "nothing is served over HTTP" in caplog.text
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
def test_an_address_of_this_host(listen, address):
    assert parse(f'[http]\nlisten = "{listen}"\n', None).http.address == address


def test_nobody_is_served_by_default():
    assert Config().http.address is None


@pytest.mark.parametrize("listen", ["0.0.0.0:9101", "[::]:9101", "10.0.0.7:9101"])
def test_other_hosts_are_served_only_where_that_is_said(listen):
    with pytest.raises(ConfigError, match="allow_remote"):
        parse(f'[http]\nlisten = "{listen}"\n', None)
    said = parse(f'[http]\nlisten = "{listen}"\nallow_remote = true\n', None)
    assert said.http.address[1] == 9101


@pytest.mark.parametrize(
    "listen",
    ["", "9101", ":9101", "localhost:9101", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000",
     "::1:9101", "[127.0.0.1]:9101", "127.0.0.1:-1", "[fe80::1%lo]:9101", "127.0.0.1:٩"],
)  # fmt: skip
def test_what_is_no_address_is_refused(listen):
    with pytest.raises(ConfigError, match="IP address and a port"):
        parse(f'[http]\nlisten = "{listen}"\nallow_remote = true\n', None)


def test_the_daemon_does_not_load_the_library_while_it_serves_nobody():
    program = (
        "import sys\n"
        "import agent.cli.run, agent.daemon.http_pages\n"
        "assert 'prometheus_client' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
