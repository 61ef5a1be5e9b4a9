"""A daemon that serves its health and its metrics, from its start to its end."""

import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fakes.servers import free_port
from prometheus_client.parser import text_string_to_metric_families

QUICK = '[telemetry]\nevery = "100ms"\naggregate = "500ms"\ncpu = true\n'


def fetch(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_serves_what_it_measures_until_it_ends(daemon_in):
    port = free_port()
    daemon = daemon_in()
    daemon.start(f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\n')
    daemon.wait_for(lambda: daemon.points("device"))
    daemon.wait_for(lambda: "infercost_device_power_w{" in fetch(port, "/metrics")[1])
    families = {
        family.name: family for family in text_string_to_metric_families(fetch(port, "/metrics")[1])
    }
    (sample,) = families["infercost_device_power_w"].samples
    assert sample.labels["device"] == "cpu"
    assert sample.value > 0
    (rss,) = families["infercost_agent_rss_bytes"].samples
    assert 10_000_000 < rss.value < 200_000_000
    alive = {s.labels["part"]: s.value for s in families["infercost_part_alive"].samples}
    assert set(alive.values()) == {1}
    assert {"sensors", "http", "job alerting"} <= set(alive)
    status, text = fetch(port, "/healthz")
    document = json.loads(text)
    assert document["dead"] == []
    assert (status == 200) is (document["faults"] == [])
    assert daemon.state("status")["http"] == {
        "listen": f"127.0.0.1:{port}",
        "port": port,
        "fault": None,
    }
    assert "/healthz and /metrics" in daemon.run("status")
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(b"GET")
        assert daemon.stop() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()
    assert "Traceback" not in daemon.output.read_text()


def test_a_sink_that_takes_nothing_makes_it_unhealthy(daemon_in):
    port, nobody = free_port(), free_port()
    daemon = daemon_in()
    daemon.start(
        f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\n'
        f'[[sink]]\napi = "v1"\nurl = "http://127.0.0.1:{nobody}"\ndatabase = "d"\n'
        'flush_every = "500ms"\n'
    )

    def faults():
        status, text = fetch(port, "/healthz")
        return [fault["name"] for fault in json.loads(text)["faults"] if status == 503]

    daemon.wait_for(lambda: "sink_behind" in faults())


def test_a_reload_switches_it_on_and_off(daemon_in):
    port = free_port()
    daemon = daemon_in()
    daemon.start(QUICK)
    assert daemon.state("status")["http"]["listen"] is None
    daemon.write(f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\n')
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: (daemon.state("status")["http"] or {}).get("port") == port)
    assert fetch(port, "/healthz")[0] in {200, 503}
    daemon.write(QUICK)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: daemon.state("status")["http"]["port"] is None)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()


def test_its_threads_and_files_do_not_grow_with_those_who_ask(daemon_in):
    port = free_port()
    daemon = daemon_in()
    daemon.start(f'{QUICK}[http]\nlisten = "127.0.0.1:{port}"\n')
    daemon.wait_for(lambda: fetch(port, "/metrics")[0] == 200)

    def counted():
        process = Path("/proc") / str(daemon.pid)
        return len([*(process / "task").iterdir()]), len([*(process / "fd").iterdir()])

    before = counted()
    idle = []
    try:
        for _ in range(100):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
            idle.append(client)
        threads, files = counted()
    finally:
        for client in idle:
            client.close()
    assert threads <= before[0] + 18
    assert files <= before[1] + 40
