"""Energy and busy time between two instants, part-time sensors, and GPUs that share a module."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from costprobe.adapters.sensors.messages import Absent
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S, Device, Energy, Reading
from costprobe.core.schema import make_point
from costprobe.devices.use import (
    DeviceLog,
    DeviceWindows,
    sampling_error,
    shared_modules,
    with_sampling_error,
)
from fakes.runs import probe_run
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes

S = NS_PER_S


def reading(start_s, end_s, device="gpu0", by_pid=None, **fields):
    return Reading(device, int(start_s * S), int(end_s * S), fields, by_pid)


def log_of(*readings):
    log = DeviceLog(300)
    for each in readings:
        log.record(each)
    return log


@given(
    st.lists(st.floats(1, 20), min_size=1, max_size=20),
    st.lists(st.floats(0, 1), max_size=6),
)
def test_contiguous_windows_sum_to_the_whole(lengths_s, cuts):
    log, t_ns = DeviceLog(1000), 10 * S
    for i, length_s in enumerate(lengths_s):
        end_ns = t_ns + int(length_s * S)
        log.record(Reading("gpu0", t_ns, end_ns, {"energy_j": 10.0 * (i + 1)}))
        t_ns = end_ns
    edges = sorted({10 * S, t_ns, *(10 * S + int(cut * (t_ns - 10 * S)) for cut in cuts)})
    parts = [log.energy_j("gpu0", a, b) for a, b in pairwise(edges)]
    assert sum(parts) == pytest.approx(log.energy_j("gpu0", 10 * S, t_ns))
    assert sum(parts) == pytest.approx(sum(10.0 * (i + 1) for i in range(len(lengths_s))))


def test_readings_are_summed_between_two_instants():
    """Over short gaps and no others; a value missing in one is unknown; see `record_files`."""

    def answers(text):
        case = json.loads(text)
        log = DeviceLog(300)
        for one in case["readings"]:
            by_pid = {int(pid): busy_s for pid, busy_s in one.pop("by_pid", {}).items()}
            log.record(reading(**one, by_pid=by_pid or None))
        return [
            getattr(log, name)("gpu0", start_s * S, end_s * S)
            for name, start_s, end_s in case["queries"]
        ]

    check_outcomes("device_logs.json", answers)


def test_old_readings_are_dropped_and_none_counts_twice():
    log = DeviceLog(10)
    for start_s in range(0, 5000, 10):
        log.record(reading(start_s, start_s + 10, energy_j=100.0))
    log.record(reading(4990, 5000, energy_j=100.0))
    assert log.energy_j("gpu0", 0, 10 * S) is None
    assert log.energy_j("gpu0", 4900 * S, 5000 * S) == pytest.approx(1000.0)


def test_idle_power_is_estimated_from_idle_readings():
    log = log_of(*(reading(t, t + 10, util_pct=0.0, power_w=60.0) for t in range(0, 90, 10)))
    assert log.idle_power_w("gpu0") is None
    log.record(reading(90, 100, util_pct=80.0, power_w=400.0))
    assert log.idle_power_w("gpu0") is None
    log.record(reading(100, 110, util_pct=0.0, power_w=60.0))
    assert log.idle_power_w("gpu0") == 60.0


ENERGY = Energy(1000.0, "counter", 0.07)
RESULT = probe_run(
    batch=4,
    latency_ms={"p50": 100.0, "mean": 100.0, "cv": 0.0},
    window_end_ns=5_000_000_000,
    inferences=200,
)
PART_TIME = ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB")
# The A10 and the L4 are seen all the time, and so is any other board that the paper measured.
WHOLE_TIME = ("NVIDIA A10", "NVIDIA RTX A3000", "NVIDIA L4", "NVIDIA GeForce RTX 3090")


def gpu(model):
    return Device("gpu0", "gpu", "GPU-1", model)


def test_only_part_time_boards_under_periodic_passes_become_less_certain():
    for model in PART_TIME:
        assert with_sampling_error(ENERGY, gpu(model), RESULT).rel_err == pytest.approx(0.82), model
    for model in WHOLE_TIME:
        assert with_sampling_error(ENERGY, gpu(model), RESULT) == ENERGY, model
    h100 = gpu(PART_TIME[1])
    assert with_sampling_error(ENERGY, Device("cpu", "cpu", "c", "H100"), RESULT) == ENERGY
    # Several clients of a server are not in step; one client is.
    for concurrency, rel_err in (("1", 0.82), ("4", 0.07)):
        served = replace(RESULT, batch=1, inferences=50.0, tags={"concurrency": concurrency})
        assert with_sampling_error(ENERGY, h100, served).rel_err == pytest.approx(rel_err), (
            concurrency
        )


def test_unseen_share_follows_the_ratio_of_pass_and_period():
    for pass_ms, unseen in (
        (0.1, 0),
        (25, 0),
        (100 / 3, 0.25),
        (50, 0.5),
        (90, 0),
        (100, 0.75),
        (100.5, 0.75),
        (103, 0),
        (200, 0.75 / 2**0.5),
    ):
        assert sampling_error(pass_ms / 1000, 5.0, 0.0) == pytest.approx(unseen, abs=1e-9), pass_ms
    # A longer window sees more of passes that nearly have the period; passes that vary move on.
    assert sampling_error(0.102, 10.0, 0.0) < sampling_error(0.102, 5.0, 0.0)
    assert sampling_error(0.1, 5.0, 0.1) == 0


def rows(device, watts, *, scope="module", count=180, late_j=0.0):
    """Half an hour of rows; late_j is what the first row lacks and the last one has more."""
    found = []
    for i in range(count):
        energy_j = watts(i) * 10 + (late_j if i == count - 1 else 0) - (late_j if i == 0 else 0)
        fields = {"energy_j": float(energy_j), "energy_scope": None if scope == "device" else scope}
        found.append(make_point("device", {"device": device}, fields, i * 10 * S))
    return found


def busy(i):
    return 900 + i % 7 * 50


def test_equal_energies_of_a_module_are_found_in_spite_of_lag():
    one, other = rows("gpu0", busy), rows("gpu1", busy, late_j=90.0)
    apart = rows("gpu2", lambda i: busy(i) + 1)
    assert shared_modules([*other, *apart, *one]) == [("gpu0", "gpu1")]


def test_devices_without_a_module_and_short_times_are_not_compared():
    assert shared_modules(rows("gpu0", busy, scope="device") + rows("gpu1", busy)) == []
    short = [rows(device, busy, count=30) for device in ("gpu0", "gpu1")]
    assert shared_modules([*short[0], *short[1]]) == []


class EndingSensors:
    """Sensors that end while a window waits for their readings."""

    looks = 0

    def stream_to(self, _):
        pass

    def watch(self, *_):
        return True

    def is_available(self, _):
        self.looks += 1
        return self.looks < 6


def test_wait_for_readings_ends_with_the_sensors():
    windows = DeviceWindows(EndingSensors(), SystemClock())
    found = windows.energy("gpu0", 0, 6 * S, 0, 6 * S, timeout_s=3600.0)
    assert found == Absent("power was polled 0 times in the window")
