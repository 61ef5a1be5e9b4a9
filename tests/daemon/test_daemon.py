"""A real daemon with real children: what is measured arrives, and no fault stops the others."""

import json
import os
import re
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from fakes.nvml import FakeNvml, require_gcc
from fakes.processes import children_of
from fakes.scenes import GPU_PROBE, OWNED, QUICK, WORKER


@pytest.fixture
def gpus(tmp_path):
    require_gcc()
    fake = FakeNvml(tmp_path, gpus=2)
    for gpu in fake.gpus:
        gpu.set_power(300.0)
    return fake


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_a_probe_on_a_gpu_becomes_energy_and_money(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE + OWNED)
    daemon.wait_for(lambda: len(daemon.points("cost")) == 2)
    for name in ("gpu0", "gpu1"):
        (probe,) = daemon.points("probe", device=name)
        (cost,) = daemon.points("cost", device=name)
        # 300 W for 5 s over 1,000 inferences, whatever the counter's steps.
        assert probe.fields["energy_method"] == "counter"
        assert probe.fields["energy_per_inference_j"] == pytest.approx(1.5, rel=0.02)
        assert probe.fields["energy_rel_err"] >= 0.02
        # 1 an hour of the host over two devices; 0.36 a kWh is 1e-7 a joule.
        throughput = probe.fields["throughput_per_s"]
        assert cost.fields["cost_hardware"] == pytest.approx(0.5 / 3600 / throughput)
        energy_j = probe.fields["energy_per_inference_j"]
        assert cost.fields["cost_energy"] == pytest.approx(energy_j * 1e-7)
        total = cost.fields["cost_hardware"] + cost.fields["cost_energy"]
        assert cost.fields["cost_per_inference"] == pytest.approx(total)
        assert cost.tags["plan"] == "owned"
    lines = daemon.output.read_text()
    assert re.search(r"gpu0 steady  batch 4  p50 2\.000 ms .* J/inf \(counter ±\d+%\) ", lines)


def test_devices_are_read_and_the_daemon_loads_neither_torch_nor_nvml(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE)
    daemon.wait_for(lambda: daemon.points("probe") and len(daemon.points("device")) > 8)
    maps = Path(f"/proc/{daemon.pid}/maps").read_text()
    assert "libnvidia-ml" not in maps
    assert "torch" not in maps
    assert "numpy" not in maps
    row = daemon.points("device", device="gpu0")[-1]
    assert row.fields["power_w"] == pytest.approx(300.0, rel=0.01)
    assert row.fields["price_rate_per_h"] > 0
    assert {"uuid", "kind", "model", "host"} <= set(row.tags)


def test_a_gpu_that_torch_cannot_use_is_a_fault_and_telemetry_goes_on(daemon_in, gpus):
    daemon = daemon_in(**gpus.env(), CUDA_VISIBLE_DEVICES="")
    daemon.start(QUICK + '[[probe]]\nname = "cnn"\nkind = "cnn"\n')
    event = daemon.wait_for(lambda: daemon.points("event", kind="fault", device="gpu0"))[0]
    assert event.tags["probe"] == "cnn"
    assert event.fields["cause"] == "device"
    before = len(daemon.points("device"))
    daemon.wait_for(lambda: len(daemon.points("device")) > before + 4)
    daemon.wait_for(lambda: daemon.state("status")["probes"][0]["fault"])
    assert "FAULT" in daemon.run("status")


def test_a_killed_sensor_child_is_replaced_and_counted(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    # With rules that are evaluated rarely the status is kept by a job of its own.
    daemon.start(QUICK + '[alerting]\nevaluate_every = "10m"\n')
    daemon.wait_for(lambda: daemon.points("device"))
    (child,) = children_of(daemon.pid)
    assert b"agent.telemetry.child" in command_line(child)
    os.kill(child, signal.SIGKILL)
    daemon.wait_for(lambda: children_of(daemon.pid) not in ([], [child]))
    before = len(daemon.points("device"))
    daemon.wait_for(lambda: len(daemon.points("device")) > before)
    assert daemon.points("event", kind="fault")
    daemon.wait_for(lambda: daemon.state("status")["sensor"]["restarts"] == 1)
    assert {"alerting", "status"} <= daemon.state("status")["jobs"].keys()


def test_a_killed_probe_child_is_a_fault_and_the_next_run_starts_clean(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE.replace('"1h"', '"10s"'))

    def workers():
        return [pid for pid in children_of(daemon.pid) if str(WORKER).encode() in command_line(pid)]

    os.kill(daemon.wait_for(workers)[0], signal.SIGKILL)
    (event, *_) = daemon.wait_for(lambda: daemon.points("event", kind="fault"))
    assert "SIGKILL" in event.fields["title"]
    daemon.wait_for(lambda: len(daemon.points("probe", device=event.tags["device"])) > 0)


def test_a_killed_daemon_leaves_a_whole_store_and_no_child_and_goes_on(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE)
    for _ in range(3):
        daemon.wait_for(lambda: len(daemon.points("device")) > 3 and children_of(daemon.pid))
        children = children_of(daemon.pid)
        before = len(daemon.points("device"))
        daemon.kill()
        for _ in range(200):
            if not any(Path(f"/proc/{pid}/exe").exists() for pid in children):
                break
            time.sleep(0.05)
        assert not any(Path(f"/proc/{pid}/exe").exists() for pid in children)
        with sqlite3.connect(daemon.store) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        assert len(daemon.points("device")) >= before
        daemon.output.write_text("")
        daemon.start()
        daemon.wait_for(lambda seen=before: len(daemon.points("device")) > seen)


def test_ctrl_c_in_the_middle_of_a_probe_stops_it_cleanly(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE)
    daemon.wait_for(lambda: len(children_of(daemon.pid)) >= 2)
    children = children_of(daemon.pid)
    assert daemon.stop() == 0
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in children)
    assert daemon.state("status")["state"] == "stopped"
    assert "Traceback" not in daemon.output.read_text()
    assert "NOT RUNNING" in daemon.run("status", code=3)


def test_a_bad_new_file_is_refused_and_a_good_one_taken(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK)
    daemon.wait_for(lambda: daemon.points("device"))
    daemon.write(QUICK + '[host]\nname = "new"\nnmae = "x"\n')
    daemon.signal(signal.SIGHUP)
    (event, *_) = daemon.wait_for(lambda: daemon.points("event", kind="fault"))
    assert 'host.nmae: unknown key; did you mean "name"?' in event.fields["detail"]
    daemon.wait_for(lambda: daemon.state("status")["config_fault"])
    assert daemon.points("device", host="new") == []
    daemon.write(QUICK + '[host]\nname = "new"\nlabels = { rack = "a1" }\n')
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: daemon.points("device", host="new", rack="a1"))
    daemon.wait_for(lambda: daemon.state("status")["config_fault"] is None)


def test_a_gpu_that_vanishes_does_not_stop_the_other(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK)
    daemon.wait_for(lambda: daemon.points("device", device="gpu1"))
    gpus.gpus[1].vanish()
    daemon.wait_for(lambda: daemon.points("event", kind="fault", device="gpu1"))
    before = len(daemon.points("device", device="gpu0"))
    daemon.wait_for(lambda: len(daemon.points("device", device="gpu0")) > before + 3)
    daemon.wait_for(lambda: daemon.state("status")["sensor"]["devices"]["gpu1"]["state"] != "good")
    assert "gpu1 is set aside" in daemon.run("status")


def test_without_a_gpu_the_cpu_is_measured_for_real(daemon_in):
    daemon = daemon_in()
    daemon.start(
        QUICK
        + '[probing]\nduty = 1\n[[probe]]\nname = "cnn"\nkind = "cnn"\nbatch = 1\nevery = "1h"\nthreads = 1\nsample_cap = "1s"\nwhen_busy = "run"\n'
    )
    (cost,) = daemon.wait_for(lambda: daemon.points("cost"))
    (probe,) = daemon.points("probe")
    assert probe.tags["device"] == "cpu"
    assert probe.fields["energy_method"] in {"rapl", "modelled"}
    assert probe.fields["threads"] == 1
    assert cost.tags["plan"] == "assumed"
    # What was noticed before the parts were there is kept, too.
    told = any("modelled" in e.fields["title"] for e in daemon.points("event", device="cpu"))
    assert told == (probe.fields["energy_method"] == "modelled")
    status = json.loads(daemon.run("status", "--json"))
    assert status["running"]
    assert status["probes"][0]["last"]["fingerprint"] == probe.fields["fingerprint"]


def test_a_board_that_was_replaced_is_told(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE)
    daemon.wait_for(lambda: len(daemon.points("probe")) == 2)
    daemon.stop()
    gpus.gpus[0].set(uuid=b"GPU-00009999-fake-4000-8000-000000000000")
    daemon.start(QUICK + GPU_PROBE)
    (event,) = daemon.wait_for(lambda: daemon.points("event", kind="software"))
    assert event.tags["device"] == "gpu0"
    assert event.fields["title"].endswith("on gpu0 runs on another board")
    assert event.fields["after"] == "board GPU-00009999-fake-4000-8000-000000000000"


def test_a_damaged_store_is_set_aside_and_measuring_goes_on(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.store.write_bytes(b"this was a database " * 500)
    daemon.start(QUICK)
    (event, *_) = daemon.wait_for(lambda: daemon.points("event", kind="fault"))
    assert event.fields["title"] == "the store was damaged: a new one was begun"
    (aside,) = daemon.folder.glob("infercost.db.damaged-*")
    assert str(aside) in event.fields["detail"]
    assert aside.read_bytes().startswith(b"this was a database")
    daemon.wait_for(lambda: daemon.points("device"))
