"""A device's conditions in a window, from the driver's library to the daemon's side."""

import os
import time

import pytest

from agent.clock import SystemClock
from agent.telemetry.supervisor import CHILD_COMMAND, SensorSupervisor
from agent.telemetry.wire import SensorSettings

S = 10**9
EVERY_S = 0.15
OWN_PID = 4321


@pytest.fixture
def supervisor(fake_nvml, request):
    """A supervisor over the real child, with the script of its GPU."""
    fake = fake_nvml()
    fake.gpus[0].set_processes([OWN_PID])
    variables = {**fake.env(), "PYTHONPATH": os.fspath(request.config.rootpath)}
    command = ["env", *(f"{name}={value}" for name, value in variables.items()), *CHILD_COMMAND]
    settings = SensorSettings(sample_every_s=EVERY_S, cpu=False)
    events = []
    watched = SensorSupervisor(command, settings, lambda _: None, events.append, SystemClock())
    watched.start()
    watched.wait_for_devices(10)
    yield watched, fake.gpus[0]
    watched.stop()
    assert events == []


def conditions(watched, length_s, lead_s=3 * EVERY_S):
    """What is answered about a window that begins a while after the script was set."""
    watched.watch("gpu0", time.monotonic_ns() + 60 * S)
    time.sleep(lead_s)
    start_ns = time.monotonic_ns()
    time.sleep(length_s)
    return watched.activity("gpu0", start_ns, time.monotonic_ns(), [OWN_PID])


@pytest.mark.parametrize("length_s", [4 * EVERY_S, EVERY_S / 10])
def test_a_throttled_window_differs_from_a_quiet_one(supervisor, length_s):
    watched, gpu = supervisor
    gpu.set(temp_c=61, mem_used_bytes=20 << 30)
    quiet = conditions(watched, length_s)
    assert quiet.fields() == {
        "contended": False,
        "throttled_pct": 0.0,
        "throttled_power_pct": 0.0,
        "throttled_thermal_pct": 0.0,
        "sm_clock_mhz": pytest.approx(1980),
        "temp_max_c": 61.0,
        "mem_used_pct": pytest.approx(25),
        "ecc_uncorrected": 0,
    }

    gpu.throttle(power_share=0.1, thermal_share=0.4)
    gpu.set(sm_clock_mhz=1815, temp_c=87, mem_used_bytes=60 << 30, ecc_uncorrected=2)
    gpu.set_processes([OWN_PID, 99])
    held_back = conditions(watched, length_s)
    assert held_back.fields() == {
        "contended": True,
        "throttled_pct": pytest.approx(50, rel=0.3),
        "throttled_power_pct": pytest.approx(10, rel=0.3),
        "throttled_thermal_pct": pytest.approx(40, rel=0.3),
        "sm_clock_mhz": pytest.approx(1815),
        "temp_max_c": 87.0,
        "mem_used_pct": pytest.approx(75),
        "ecc_uncorrected": 2,
    }

    gpu.throttle()
    gpu.set(sm_clock_mhz=1980, temp_c=61, mem_used_bytes=20 << 30)
    gpu.set_processes([OWN_PID])
    again = conditions(watched, length_s)
    assert (again.throttled_pct, again.contended) == (0.0, False)
    assert (again.sm_clock_mhz, again.temp_max_c) == (pytest.approx(1980), 61.0)


def test_a_clock_that_falls_within_the_window_is_a_mean(supervisor):
    watched, gpu = supervisor
    start_ns = time.monotonic_ns()
    time.sleep(0.5)
    gpu.set(sm_clock_mhz=990)
    fell_ns = time.monotonic_ns()
    time.sleep(0.5)
    end_ns = time.monotonic_ns()
    activity = watched.activity("gpu0", start_ns, end_ns, [OWN_PID])
    share = (end_ns - fell_ns) / (end_ns - start_ns)
    # The fall is placed within one interval between two samples.
    truth_mhz = 1980 - share * 990
    assert activity.sm_clock_mhz == pytest.approx(truth_mhz, abs=0.25 * 990)
