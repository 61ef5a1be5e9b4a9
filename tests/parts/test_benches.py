"""The benchmarks that replace parts of the product work with its current interfaces."""

import importlib
from pathlib import Path

import pytest
from costprobe.core.records import Device, Reading

S = 10**9
DEVICES = [Device(f"gpu{gpu}", "gpu", f"GPU-{gpu}", "NVIDIA H100") for gpu in range(2)]


@pytest.fixture
def bench(monkeypatch):
    """Imports a benchmark module; restores sys.path at the end."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    return importlib.import_module


def test_simulated_fleet_uses_the_delivery_worker_of_the_product(bench):
    found = bench("fleet_arrivals").table(50, 0.93)
    assert set(found) == {
        (case, with_schedule)
        for case in ("rollout", "outage", "outage, first 10 s")
        for with_schedule in (False, True)
    }
    assert all(value > 0 for value in found.values())
    assert found["rollout", True] < found["rollout", False]


def test_ticks_accept_the_readings_of_the_supervisor(bench):
    ticks = bench("committing").Ticks()
    for second in range(1, 201):
        ticks.take([(Reading(device.name, 0, second * S, {}), device) for device in DEVICES])
    ((late, *_),) = ticks.lateness_ms([(0, 201 * S)])
    assert late == pytest.approx(0, abs=1e-6)
    assert len(ticks.receive_delays_ms(0, 201 * S)) == 400


def test_plain_table_baseline_runs(bench, tmp_path):
    assert bench("committing").rate(bench("committing").plain, tmp_path, 10_000, 2500) > 0
