"""A real daemon serves its health and metrics over HTTP."""

import json
import signal
import socket

import pytest
from fakes.scenes import QUICK_STATUS
from fakes.servers import Scripted, answered, free_port
from prometheus_client.parser import text_string_to_metric_families

QUICK = QUICK_STATUS.replace("[telemetry]", "[telemetry]\ncpu = true")


@pytest.fixture
def accepting():
    """A database that accepts all points."""
    with Scripted(lambda *_: (204, {}, b"")) as server:
        yield server


BEARER = "Bearer a-token-of-a-pipeline"


def fetch(port, path, body=None, bearer=BEARER):
    status, _, text = answered(f"http://127.0.0.1:{port}{path}", body, Authorization=bearer)
    return status, text.decode()


def test_health_metrics_and_annotations_are_served_and_the_port_follows_reloads(
    daemon_in, accepting
):
    port, unused_port = free_port(), free_port()
    daemon = daemon_in()
    token = daemon.folder / "token"
    token.write_text(BEARER.split()[1])
    listening = f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\ntoken = "file:{token}"\n'
    sinks = "".join(
        f'[[sink]]\nname = "{name}"\napi = "v1"\nurl = "{url}"\ndatabase = "d"\nflush_every = "500ms"\n'
        for name, url in (("dead", f"http://127.0.0.1:{unused_port}"), ("other", accepting.url))
    )
    daemon.start(listening + sinks)

    def faults():
        status, text = fetch(port, "/healthz")
        document = json.loads(text)
        assert document["dead"] == []
        return [fault["name"] for fault in document["faults"] if status == 503]

    # A sink that cannot be reached makes the daemon unhealthy.
    daemon.wait_for(lambda: "sink_behind" in faults())
    # The other sink continues.
    sent = len(accepting.requests)
    daemon.wait_for(lambda: len(accepting.requests) > sent + 1)
    assert daemon.status()["sinks"]["other"]["last_error"] is None
    daemon.wait_for(lambda: "costprobe_device_power_w{" in fetch(port, "/metrics")[1])
    families = {
        family.name: family for family in text_string_to_metric_families(fetch(port, "/metrics")[1])
    }
    (sample,) = families["costprobe_device_power_w"].samples
    assert (sample.labels["device"], sample.value > 0) == ("cpu", True)
    alive = {s.labels["part"]: s.value for s in families["costprobe_part_alive"].samples}
    assert set(alive.values()) == {1}
    assert {"sensors", "http", "job alerting"} <= set(alive)
    assert "/healthz and /metrics" in daemon.look("status")

    body = json.dumps({"text": "deployed v42", "device": "cpu", "at": "2026-01-31T14:00:00Z"})
    for _ in range(2):
        status, text = fetch(port, "/annotations", body.encode())
        assert status == 201, text
    assert fetch(port, "/annotations", body.encode(), bearer="Bearer wrong")[0] == 401
    (row,) = [row for row in daemon.points("event") if row.tags["kind"] == "annotation"]
    assert json.loads(text)["time_ns"] == row.time_ns
    assert (row.tags["device"], row.fields["title"]) == ("cpu", "deployed v42")

    for config, listens_on in ((QUICK, None), (listening, port)):
        daemon.write(config)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(lambda on=listens_on: daemon.state("status")["http"]["port"] == on)
        if listens_on is None:
            assert_refused(port)
    # A stop does not wait for a client that is idle.
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(b"GET")
        assert daemon.stop() == 0
    assert_refused(port)
    output = daemon.output.read_text()
    assert [word for word in ("Traceback", BEARER.split()[1]) if word in output] == []


def assert_refused(port):
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()
