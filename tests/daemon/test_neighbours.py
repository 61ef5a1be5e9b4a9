"""A real daemon on a shared device, on MIG devices, and probing a server."""

import re

import pytest
from fakes.inference_server import InferenceServer, generating
from fakes.scenes import OWNED, QUICK_STATUS, WORKER


def probe(**keys):
    lines = "".join(f"{name} = {value}\n" for name, value in keys.items())
    return (
        f'[probing]\nduty = 1\n[[probe]]\nname = "steady"\nbatch = 4\npython = "{WORKER}"\n{lines}'
    )


def test_probe_is_skipped_or_deferred_while_the_device_is_busy(daemon_in, gpus):
    gpus.gpus[0].set(util_pct=85)
    gpus.gpus[0].set_processes([4321])
    daemon = daemon_in(**gpus.env())
    patient = (
        f'[[probe]]\nname = "patient"\nbatch = 4\npython = "{WORKER}"\nevery = "6s"\n'
        'devices = ["gpu0"]\nenergy = false\n'
    )
    daemon.start(QUICK_STATUS + probe(every='"2s"', energy="false", when_busy='"skip"') + patient)

    def states():
        return {(p["probe"], p["device"]): p for p in daemon.state("status")["probes"]}

    # After the maximum deferral it runs alongside the other process.
    row, *_ = daemon.wait_for(lambda: daemon.points("probe", probe="patient"))
    # The fake driver does not list the fake worker's own process.
    assert row.fields.get("contended") in (None, True)
    daemon.wait_for(lambda: states()["patient", "gpu0"]["deferred"])
    waited = states()["patient", "gpu0"]
    assert (waited["deferred"] > 0, waited["skipped_for_neighbour"]) == (True, 0)

    daemon.wait_for(lambda: len(daemon.points("probe", device="gpu1")) >= 2)
    assert daemon.points("probe", device="gpu0", probe="steady") == []
    daemon.wait_for(lambda: states()["steady", "gpu0"]["skipped_for_neighbour"])
    assert states()["steady", "gpu1"]["skipped_for_neighbour"] == 0
    assert re.search(r"[1-9]\d* runs? skipped", daemon.look("status"))
    gpus.gpus[0].set(util_pct=0)
    daemon.wait_for(lambda: daemon.points("probe", device="gpu0", probe="steady"))


def test_model_never_runs_on_an_exclusive_gpu_that_another_process_has(daemon_in, gpus, tmp_path):
    for gpu in gpus.gpus:
        gpu.set(compute_mode=3)
    # Idle, but open.
    gpus.gpus[0].set_processes([4321])
    daemon = daemon_in(**gpus.env(), CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    daemon.start(QUICK_STATUS + probe(every='"1s"', energy="false", when_busy='"run"'))
    daemon.wait_for(lambda: daemon.points("probe", device="gpu1"))

    def fault():
        return {p["device"]: p["fault"] for p in daemon.state("status")["probes"]}["gpu0"]

    daemon.wait_for(fault)
    assert "gpu0 is in compute mode EXCLUSIVE_PROCESS, and another process has it" in str(fault())
    assert "or run nvidia-smi -i GPU-00000000" in daemon.look("status")
    assert daemon.points("probe", device="gpu0") == []
    # MPS runs: the processes share the GPU.
    (tmp_path / "control").touch()
    daemon.wait_for(lambda: daemon.points("probe", device="gpu0"))


def test_mig_devices_are_probed_each_and_their_board_is_not(daemon_in, gpus):
    gpus.gpus[1].split(3, 2)
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK_STATUS + probe(every='"1h"') + OWNED)
    names = {"gpu0", "gpu1.mig0", "gpu1.mig1"}
    daemon.wait_for(lambda: {row.tags["device"] for row in daemon.points("cost")} == names)
    by_device = {row.tags["device"]: row for row in daemon.points("probe")}
    assert by_device["gpu1.mig0"].fields["energy_scope"] == "parent"
    assert "energy_scope" not in by_device["gpu0"].fields
    costs = {row.tags["device"]: row.fields for row in daemon.points("cost")}
    # 300 W of the board for 5 s: the MIG device pays for three of its seven slices.
    energy_j = by_device["gpu1.mig0"].fields["energy_per_inference_j"]
    assert costs["gpu1.mig0"]["cost_energy"] == pytest.approx(energy_j * 1e-7 * 3 / 7)

    def priced():
        rows = [row for row in daemon.points("device") if "price_rate_per_h" in row.fields]
        rates = {row.tags["device"]: row.fields["price_rate_per_h"] for row in rows}
        return rates if {*names, "gpu1"} <= set(rates) else None

    rates = daemon.wait_for(priced)
    board = rates["gpu1"] + rates["gpu1.mig0"] + rates["gpu1.mig1"]
    assert board == pytest.approx(rates["gpu0"]) == pytest.approx(0.5)


def test_server_is_probed_with_the_energy_of_all_its_devices(daemon_in, gpus, tmp_path):
    (tmp_path / "token").write_text("sesame-open\n")
    with InferenceServer(generating(pause_s=0.01)) as server:
        daemon = daemon_in(**gpus.env())
        daemon.start(
            QUICK_STATUS
            + OWNED
            + "[probing]\nduty = 1\n"
            + '[[probe]]\nname = "chat"\nkind = "openai"\nmodel = "m"\nevery = "1h"\n'
            + f'url = "{server.url}"\nrequests = 5\nconcurrency = 2\nmax_tokens = 4\n'
            + f'token = "file:{tmp_path}/token"\n'
            + '[[probe]]\nname = "away"\nkind = "kserve"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
            + 'inputs = [{ name = "x", datatype = "FP32", shape = [1, 4] }]\nevery = "1h"\n'
        )
        (cost,) = daemon.wait_for(lambda: daemon.points("cost"))
        (row,) = daemon.points("probe")
        assert {call.headers["Authorization"] for call in server.calls} == {"Bearer sesame-open"}
    assert row.tags["device"] == cost.tags["device"] == "gpu0+gpu1"
    assert row.tags["concurrency"] == "2"
    assert "batch" not in row.tags
    fields = row.fields
    assert (fields["tokens_in"], fields["tokens_out"], fields["errors"]) == (7, 4, 0)
    assert "contended" not in fields
    # Two boards of 300 W, by their counters.
    watts = fields["energy_per_inference_j"] * fields["throughput_per_s"]
    assert watts == pytest.approx(600, rel=0.03)
    assert fields["energy_method"] == "counter"
    assert cost.fields["cost_hardware"] == pytest.approx(1 / 3600 / fields["throughput_per_s"])
    # The run is logged after it is stored.
    daemon.wait_for(lambda: "gpu0+gpu1 chat  concurrency 2" in daemon.output.read_text())
    lines = daemon.output.read_text()
    assert "per million tokens out" in lines
    assert "sesame" not in lines + daemon.look("status") + daemon.look("status", "--json")
    # An unreachable server is a fault of its probe, with the server's name.
    (event, *_) = daemon.wait_for(lambda: daemon.points("event", kind="fault", probe="away"))
    assert "127.0.0.1:9" in event.fields["title"]
