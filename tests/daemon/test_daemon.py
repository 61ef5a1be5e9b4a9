"""A real daemon with real children: measurements arrive, and no fault stops the other parts."""

import os
import re
import signal
from pathlib import Path

import pytest
from costprobe.daemon.main import open_store
from fakes.clock import FakeClock
from fakes.processes import children_of, is_alive
from fakes.scenes import GPU_PROBE, OWNED, QUICK, WORKER

LATENCY_PROBE = GPU_PROBE + "energy = false\n"


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def children_with(daemon, argument):
    return [pid for pid in children_of(daemon.pid) if argument in command_line(pid)]


def sensors(daemon):
    return children_with(daemon, b"costprobe.adapters.sensors.child.main")


def probes(daemon):
    return children_with(daemon, str(WORKER).encode())


def wait_for_more_rows(daemon, device):
    before = len(daemon.points("device", device=device))
    daemon.wait_for(lambda: len(daemon.points("device", device=device)) > before + 1)


def test_gpu_probe_has_energy_and_cost_in_a_daemon_without_torch_and_driver(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE + OWNED)
    daemon.wait_for(lambda: len(daemon.points("cost")) == 2)
    for name in ("gpu0", "gpu1"):
        (probe,) = daemon.points("probe", device=name)
        (cost,) = daemon.points("cost", device=name)
        # 300 W for 5 s over 1,000 inferences, within the uncertainty that the row states.
        rel_err = probe.fields["energy_rel_err"]
        assert (probe.fields["energy_method"], 0.02 <= rel_err < 0.2) == ("counter", True)
        energy_j = probe.fields["energy_per_inference_j"]
        assert energy_j == pytest.approx(1.5, rel=rel_err)
        # 1 an hour of the host over two devices; 0.36 a kWh is 1e-7 a joule.
        hardware, energy = cost.fields["cost_hardware"], cost.fields["cost_energy"]
        assert hardware == pytest.approx(0.5 / 3600 / probe.fields["throughput_per_s"])
        assert energy == pytest.approx(energy_j * 1e-7)
        assert cost.fields["cost_per_inference"] == pytest.approx(hardware + energy)
        assert cost.tags["plan"] == "owned"
    lines = daemon.output.read_text()
    assert re.search(r"gpu0 steady  batch 4  p50 2\.000 ms .* J/inf \(counter ±\d+ %\) ", lines)
    row = daemon.points("device", device="gpu0")[-1]
    assert row.fields["power_w"] == pytest.approx(300.0, rel=0.01)
    assert row.fields["price_rate_per_h"] > 0
    assert {"uuid", "kind", "model", "host"} <= set(row.tags)
    maps = Path(f"/proc/{daemon.pid}/maps").read_text()
    assert [name for name in ("libnvidia-ml", "torch", "numpy") if name in maps] == []


def test_killed_children_and_a_lost_gpu_do_not_stop_measuring(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    # Rules are evaluated rarely, so that the status is written by a job of its own.
    rarely = '[alerting]\nevaluate_every = "10m"\n'
    daemon.start(QUICK + LATENCY_PROBE.replace('"1h"', '"2s"') + rarely)

    def kill_probes():
        for pid in probes(daemon):
            os.kill(pid, signal.SIGKILL)
        return daemon.points("event", kind="fault")

    (event, *_) = daemon.wait_for(kill_probes)
    assert "SIGKILL" in event.fields["title"]
    daemon.wait_for(lambda: daemon.points("probe", device=event.tags["device"]))

    (child,) = sensors(daemon)
    os.kill(child, signal.SIGKILL)
    daemon.wait_for(lambda: sensors(daemon) not in ([], [child]))
    wait_for_more_rows(daemon, "gpu1")
    assert any("sensor" in row.fields["title"] for row in daemon.points("event", kind="fault"))
    daemon.wait_for(lambda: daemon.status()["sensor"]["child_restarts"] == 1)
    assert {"alerting", "status"} <= daemon.status()["jobs"].keys()

    gpus.gpus[1].vanish()
    daemon.wait_for(lambda: daemon.status()["sensor"]["devices"]["gpu1"]["state"] != "good")
    wait_for_more_rows(daemon, "gpu0")
    assert "gpu1 does not respond and is quarantined" in daemon.look("status")
    # A run whose readings do not come any more is not stored in a closed store.
    assert daemon.stop() == 0
    assert "cannot write" not in daemon.output.read_text()


def test_gpu_that_torch_cannot_use_is_a_fault_of_the_probe(daemon_in, gpus):
    gpus.remove(1)
    daemon = daemon_in(**gpus.env(), CUDA_VISIBLE_DEVICES="")
    daemon.start(QUICK + '[[probe]]\nname = "cnn"\nkind = "cnn"\n')
    event = daemon.wait_for(lambda: daemon.points("event", kind="fault", device="gpu0"))[0]
    assert event.tags["probe"] == "cnn"
    assert event.fields["cause"] == "device"
    assert "CUDA" in event.fields["title"]
    wait_for_more_rows(daemon, "gpu0")
    daemon.wait_for(lambda: daemon.status()["probes"][0]["fault"])
    assert "FAULT" in daemon.look("status")


def test_kill_9_leaves_no_child(daemon_in, gpus, wait_until):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + LATENCY_PROBE)
    daemon.wait_for(lambda: probes(daemon) and sensors(daemon))
    children = children_of(daemon.pid)
    daemon.kill()
    wait_until(lambda: not any(map(is_alive, children)))


def test_reload_refuses_an_invalid_file_and_ctrl_c_stops_in_the_middle_of_a_probe(daemon_in, gpus):
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK)
    daemon.wait_for(lambda: daemon.points("device"))
    daemon.write(QUICK + '[host]\nname = "new"\nnmae = "x"\n')
    daemon.signal(signal.SIGHUP)
    (event, *_) = daemon.wait_for(lambda: daemon.points("event", kind="fault"))
    assert 'host.nmae: unknown key; did you mean "name"?' in event.fields["detail"]
    daemon.wait_for(lambda: daemon.status()["config_fault"])
    assert daemon.points("device", host="new") == []
    daemon.config.write_text(f'{QUICK}[store]\npath = "{daemon.folder}/other.db"\n')
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: "needs a restart" in (daemon.status()["config_fault"] or ""))

    daemon.write(QUICK + '[host]\nname = "new"\nlabels = { rack = "a1" }\n' + GPU_PROBE)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: daemon.points("device", host="new", rack="a1"))
    daemon.wait_for(lambda: daemon.status()["config_fault"] is None)

    daemon.wait_for(lambda: probes(daemon))
    children = children_of(daemon.pid)
    assert daemon.stop() == 0
    assert not any(map(is_alive, children))
    assert daemon.state("status")["state"] == "stopped"
    assert "Traceback" not in daemon.output.read_text()
    assert "NOT RUNNING" in daemon.look("status", code=3)


def test_damaged_store_is_renamed_and_a_new_one_created(tmp_path):
    path = tmp_path / "costprobe.db"
    path.write_bytes(b"this was a database " * 500)
    store, event = open_store(path, FakeClock())
    store.close()
    assert event.title == "the store was damaged: a new one was created"
    (renamed,) = tmp_path.glob("costprobe.db.damaged-*")
    assert str(renamed) in event.detail
    assert renamed.read_bytes().startswith(b"this was a database")
    store, event = open_store(path, FakeClock())
    store.close()
    assert event is None
