"""A real daemon serves its health and metrics over HTTP."""

import json
import signal
import socket
import urllib.error
import urllib.request

import pytest
from fakes.scenes import QUICK_STATUS
from fakes.servers import free_port
from prometheus_client.parser import text_string_to_metric_families

QUICK = QUICK_STATUS.replace("[telemetry]", "[telemetry]\ncpu = true")


BEARER = "Bearer a-token-of-a-pipeline"


def fetch(port, path, body=None, bearer=BEARER):
    headers = {} if body is None else {"Authorization": bearer}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own page
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def served(module_daemon_in):
    """A daemon that serves its metrics, and the port."""
    port = free_port()
    daemon = module_daemon_in()
    token = daemon.folder / "token"
    token.write_text(BEARER.split()[1])
    daemon.start(f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\ntoken = "file:{token}"\n')
    daemon.wait_for(lambda: "costprobe_device_power_w{" in fetch(port, "/metrics")[1])
    return daemon, port


def test_metrics_and_health_of_a_measuring_daemon(served):
    daemon, port = served
    families = {
        family.name: family for family in text_string_to_metric_families(fetch(port, "/metrics")[1])
    }
    (sample,) = families["costprobe_device_power_w"].samples
    assert sample.labels["device"] == "cpu"
    assert sample.value > 0
    (rss,) = families["costprobe_agent_rss_bytes"].samples
    assert 10_000_000 < rss.value < 200_000_000
    alive = {s.labels["part"]: s.value for s in families["costprobe_part_alive"].samples}
    assert set(alive.values()) == {1}
    assert {"sensors", "http", "job alerting"} <= set(alive)
    status, text = fetch(port, "/healthz")
    document = json.loads(text)
    assert document["dead"] == []
    assert (status == 200) is (document["faults"] == [])
    shown = daemon.state("status")["http"]
    assert shown == {"listen": f"127.0.0.1:{port}", "port": port, "fault": None}
    assert "/healthz and /metrics" in daemon.look("status")


def test_annotation_of_a_pipeline_is_stored_once(served):
    daemon, port = served
    body = json.dumps({"text": "deployed v42", "device": "cpu", "at": "2026-01-31T14:00:00Z"})
    for _ in range(2):
        status, text = fetch(port, "/annotations", body.encode())
        assert status == 201, text
    assert fetch(port, "/annotations", body.encode(), bearer="Bearer wrong")[0] == 401
    (row,) = [row for row in daemon.points("event") if row.tags["kind"] == "annotation"]
    assert json.loads(text)["time_ns"] == row.time_ns
    assert (row.tags["device"], row.fields["title"]) == ("cpu", "deployed v42")
    assert BEARER.split()[1] not in daemon.output.read_text()


def test_reload_opens_and_closes_the_port_and_a_stop_does_not_wait_for_clients(daemon_in):
    port, unused_port = free_port(), free_port()
    listening = f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\n'
    sink = (
        f'[[sink]]\napi = "v1"\nurl = "http://127.0.0.1:{unused_port}"\ndatabase = "d"\n'
        'flush_every = "500ms"\n'
    )
    daemon = daemon_in()
    daemon.start(listening + sink)

    def faults():
        status, text = fetch(port, "/healthz")
        return [fault["name"] for fault in json.loads(text)["faults"] if status == 503]

    # A sink that cannot be reached makes the daemon unhealthy.
    daemon.wait_for(lambda: "sink_behind" in faults())
    daemon.write(QUICK)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: daemon.state("status")["http"]["port"] is None)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()
    daemon.write(listening)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: daemon.state("status")["http"]["port"] == port)
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(b"GET")
        assert daemon.stop() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()
    assert "Traceback" not in daemon.output.read_text()
