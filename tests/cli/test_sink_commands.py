"""`infercost sink`, on a store and beside a real daemon whose database comes back."""

import json
import subprocess
import sys

import pytest
from fakes.clock import FakeClock
from fakes.command import called
from fakes.servers import Scripted

from agent.model import Point
from agent.storage.outbox import RejectedLine
from agent.storage.writer import Store


@pytest.fixture
def infercost(tmp_path):
    config = tmp_path / "infercost.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/infercost.db"\n')

    def run(*arguments, code=0):
        return called(config, "sink", *arguments, code=code).output

    return run


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "infercost.db", FakeClock())
    opened.append([Point("device", {"device": "gpu0"}, {"power_w": 1.0}, i) for i in range(10)])
    yield opened
    opened.close()


def test_what_was_sent_waits_and_was_refused(infercost, store, tmp_path):
    store.register_sink("influxdb")
    store.register_sink("other")
    store.advance("influxdb", 7, 6, [RejectedLine("device,x=1 power_w=2 3", "field type conflict")])
    said = infercost("status")
    assert "influxdb: unknown, 6 sent, 3 wait, 1 refused, 0 dropped" in said
    assert "other: unknown, 0 sent, 10 wait" in said
    (first, second) = json.loads(infercost("status", "--json"))
    assert (first["sink"], first["rejected_points"], second["waiting_points"]) == (
        "influxdb",
        1,
        10,
    )
    listed = infercost("rejected")
    assert "influxdb  field type conflict" in listed
    assert "device,x=1 power_w=2 3" in listed
    assert json.loads(infercost("rejected", "other", "--json")) == []
    file = tmp_path / "refused.lp"
    assert "1 lines" in infercost("rejected", "influxdb", "--export", str(file))
    assert file.read_text() == "device,x=1 power_w=2 3\n"
    assert "name another file" in infercost("rejected", "--export", str(file), code=2)
    assert "there are influxdb, other" in infercost("rejected", "odd", code=2)


def test_without_sinks_that_is_said(infercost, store):
    assert "no sink" in infercost("status")
    assert "nothing was refused" in infercost("rejected")


def test_without_a_daemon_nothing_can_be_tried_again(infercost, store):
    assert "no daemon answers" in infercost("retry", code=1)


def test_a_retry_ends_a_long_back_off(tmp_path):
    is_back = []

    def answer(method, path, headers, body):
        if path.startswith("/write") and not is_back:
            return 503, {"Retry-After": "3600"}, b"maintenance"
        return 204, {}, b""

    with Scripted(answer) as server:
        retried(tmp_path, server, is_back)


def retried(tmp_path, server, is_back):
    """A daemon that was told to wait an hour, and is told that it need not."""
    config = tmp_path / "infercost.toml"
    config.write_text(
        f'[store]\npath = "{tmp_path}/infercost.db"\n'
        '[telemetry]\nevery = "100ms"\naggregate = "500ms"\n'
        f'[[sink]]\napi = "v1"\nurl = "{server.url}"\ndatabase = "d"\nflush_every = "500ms"\n'
    )
    command = [sys.executable, "-m", "agent", "--config", str(config)]
    with (tmp_path / "output").open("wb") as output:
        daemon = subprocess.Popen([*command, "run"], stdout=output, stderr=output)
    try:

        def sink():
            done = called(config, "sink", "status", "--json", code=None)
            found = json.loads(done.stdout) if done.exit_code == 0 else []
            return found[0] if found else {}

        wait_for(lambda: (sink().get("retry_in_s") or 0) > 3000)
        is_back.append(True)
        done = subprocess.run(
            [*command, "sink", "retry"], capture_output=True, text=True, check=True
        )
        assert done.stdout == "tried again: influxdb\n"
        wait_for(lambda: sink()["sent_points"] > 0)
    finally:
        daemon.terminate()
        daemon.wait(30)


def wait_for(condition, timeout_s=60.0):
    import time

    ends_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends_s, "it never came"
        time.sleep(0.2)
