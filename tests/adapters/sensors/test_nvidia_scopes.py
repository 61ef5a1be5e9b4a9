"""Power and energy of modules, whose CPU and memory draw from the same supply as the GPU."""

import pytest
from fakes.worker import worker_of

NOON_NS = 1_780_000_000 * 10**9
GPU_W, MORE_W = 300.0, 150.0
MODULE = {"module_extra_w": MORE_W, "counter_extra_w": MORE_W}
# What the driver offers, and the scope that power and energy must have.
BOARDS = {
    "no module": ({}, "device"),
    "no module, and a driver that ignores the scope": ({"ignores_scope": 1}, "device"),
    "GH200: the counter is the module's": (MODULE, "module"),
    "module without power of the GPU": ({**MODULE, "has_no_gpu_power": 1}, "module"),
    "a counter of each scope": ({**MODULE, "counts_by_scope": 1}, "device"),
    "module whose counter is the GPU's": ({"module_extra_w": MORE_W}, "device"),
}


@pytest.fixture
def fake(simulated):
    simulated.gpus[0].set_power(GPU_W)
    simulated.clock.move(20)
    return simulated


@pytest.mark.parametrize("board", BOARDS)
def test_power_and_energy_of_a_board_have_one_scope(fake, board):
    values, scope = BOARDS[board]
    fake.gpus[0].set(**values)
    bench = worker_of(fake)
    bench.run(40)
    # Whatever was assumed first, no result of the self-test calls the board suspect.
    assert [message["suspect"] for message in bench.of("selftest")] == [False]
    watts = GPU_W + (MORE_W if scope == "module" else 0)
    last = bench.of("reading")[-1]
    assert last["fields"]["power_w"] == pytest.approx(watts)
    spanned_s = (last["end_ns"] - last["start_ns"]) / 1e9
    assert last["fields"]["energy_j"] == pytest.approx(watts * spanned_s, rel=0.02)
    assert last["fields"].get("energy_scope", "device") == scope
    energy = bench.energy_of_a_window(6)
    assert (energy["method"], energy["scope"]) == ("counter", scope)
    assert energy["energy_j"] == pytest.approx(watts * 6, rel=0.02)


def test_energy_of_every_instant_is_counted_once_while_the_scope_is_corrected(fake):
    fake.gpus[0].set(module_extra_w=MORE_W)
    bench = worker_of(fake)
    bench.run(60)
    readings = bench.of("reading")
    # One sample interval passes between the two scopes.
    spanned_s = (readings[-1]["end_ns"] - readings[0]["start_ns"]) / 1e9
    counted_j = sum(reading["fields"]["energy_j"] for reading in readings)
    assert counted_j == pytest.approx(GPU_W * spanned_s, abs=1.1 * GPU_W)


def test_power_without_a_counter_is_that_of_the_module(fake):
    fake.gpus[0].set(**MODULE)
    fake.fail("nvmlDeviceGetTotalEnergyConsumption", 3)
    fake.gpus[0].buffer_samples()
    bench = worker_of(fake)
    bench.run(30)
    energy = bench.energy_of_a_window(6)
    assert (energy["method"], energy["scope"]) == ("samples", "module")
    assert energy["energy_j"] == pytest.approx((GPU_W + MORE_W) * 6, rel=0.02)
