"""Readings that cannot be: discarded, replaced by the next method, marked, and reported once."""

import pytest
from costprobe.adapters.sensors.child.bounds import Bounds
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.messages import Sample
from fakes.worker import context_of, worker_of

S = 10**9
NOON_NS = 1_780_000_000 * S
RAPL = "sys/class/powercap/intel-rapl:0"


def bench_of(fake, **settings):
    """The worker of the first GPU, after a row."""
    worker = worker_of(fake, selftest_s=0.0, **settings)
    worker.run(10.5)
    return worker


def rows_after(worker, seconds, count=2):
    """The fields of the next rows."""
    before = len(worker.of("reading"))
    worker.run(seconds)
    return [reading["fields"] for reading in worker.of("reading")[before:]][:count]


def faults_of(worker):
    return [(fault["call"], fault["code"]) for fault in worker.of("fault")]


def test_impossible_power_is_in_no_row_and_reported_once_with_value_and_limit(simulated):
    worker, gpu = bench_of(simulated), simulated.gpus[0]
    gpu.set(gain=4e6 / 60, power_limit_max_mw=700_000, average_window_ns=0)
    # The counter of a board has its own sensor.
    gpu.set(counter_step_ns=10**15)
    worker.run(2)
    gpu.set(gain=1.0, counter_step_ns=100_000_000)
    row, after = rows_after(worker, 20)
    assert (row["power_w"], row["power_max_w"]) == (60.0, 60.0)
    assert row["energy_j"] < 700
    assert (row["energy_suspect"], after.get("energy_suspect")) == (True, None)
    (fault,) = [fault for fault in worker.of("fault") if fault["call"] == "power_w"]
    assert fault["code"] == "IMPOSSIBLE"
    assert "4,000,000 W" in fault["detail"]
    assert "2,100 W" in fault["detail"]


def test_energy_counter_that_jumps_is_replaced_by_power_in_rows_and_windows(simulated):
    worker, gpu = bench_of(simulated), simulated.gpus[0]
    gpu.count_more(energy_j=4.8e6)
    row, after = rows_after(worker, 20)
    assert (row["energy_method"], row["energy_suspect"]) == ("poll", True)
    assert (after["energy_method"], after.get("energy_suspect")) == ("counter", None)
    assert row["energy_j"] == pytest.approx(600, rel=0.02)
    assert after["energy_j"] == pytest.approx(600, rel=0.02)
    gpu.set_power(300.0)
    worker.run(2)
    start_ns = simulated.clock.monotonic_ns()
    worker.mark_edge()
    worker.run(3)
    gpu.count_more(energy_j=4.8e6)
    answer = worker.energy_of_a_window(6, start_ns=start_ns)
    assert (answer["method"], answer["suspect"]) == ("poll", True)
    assert answer["energy_j"] == pytest.approx(300 * 9, rel=0.02)
    assert faults_of(worker) == [("energy_j", "IMPOSSIBLE")]


def test_violation_counter_is_bounded_by_the_time_that_passed(simulated):
    worker, gpu = bench_of(simulated), simulated.gpus[0]
    gpu.throttle(power_share=1.05)
    _, late = rows_after(worker, 20)
    assert late["throttle_power_s"] == 10.0
    gpu.count_more(throttled_s=10_013)
    gpu.set(event_reasons=0x04)
    *rows, after = rows_after(worker, 30, count=3)
    assert [row.get("throttle_power_s") for row in rows] == [None, None]
    # The throttle reasons are the next method.
    assert (after["throttle_power_s"], after["throttle_thermal_s"]) == (pytest.approx(10), 0.0)
    assert {call for call, _ in faults_of(worker)} == {"throttle_power_s", "throttle_thermal_s"}


def test_counter_that_decreases_begins_anew_and_is_no_fault(simulated):
    worker, gpu = bench_of(simulated), simulated.gpus[0]
    gpu.reset_counter()
    gpu.set_power(300.0)
    # Read at an edge, long before the row ends.
    worker.command({"cmd": "mark"})
    row, after = rows_after(worker, 20)
    assert (row["energy_method"], after["energy_method"]) == ("poll", "counter")
    assert after["energy_j"] == pytest.approx(3000, rel=0.02)
    assert worker.of("fault") == []


def test_counter_that_stands_still_is_left_until_it_advances(simulated):
    worker, gpu = bench_of(simulated), simulated.gpus[0]
    gpu.set(counter_step_ns=10**18)
    row, *more = rows_after(worker, 80, count=8)
    assert {fields["energy_method"] for fields in more} == {"poll"}
    (fault,) = worker.of("fault")
    assert (fault["call"], fault["code"]) == ("energy_j", "STANDS_STILL")
    gpu.set(counter_step_ns=100_000_000)
    rows_after(worker, 10)
    row, *_ = rows_after(worker, 10)
    assert row["energy_method"] == "counter"
    assert row["energy_j"] == pytest.approx(600, rel=0.02)


def test_impossible_values_of_a_gpu_are_absent(simulated):
    sensor, *_ = nvidia_sensors(context_of(simulated))
    sensor.discover()
    gpu = simulated.gpus[0]
    names = ("util_pct", "mem_util_pct", "temp_c", "sm_clock_mhz", "mem_clock_mhz")
    none = 2**32 - 1
    # The driver's signs for "no value", then values that no board has, which are reported once.
    for values, others, codes in (
        (
            (none, none, -1, none, none),
            {"mem_used_bytes": 2**64 - 1, "power_limit_mw": none, "ecc_uncorrected": 2**64 - 1},
            set(),
        ),
        (
            (130, 101, 999, 90_000, 200_000),
            {"mem_used_bytes": 81 << 30, "mem_reserved_bytes": 0, "power_limit_mw": 9_000_000},
            {"IMPOSSIBLE"},
        ),
        ((130, 101, 999, 90_000, 200_000), {}, set()),
    ):
        gpu.set(**dict(zip(names, values, strict=True)), **others)
        sample = sensor.bounds.sample(sensor.sample())
        unknown = (*names, "mem_used_bytes", "power_limit_w")
        assert {getattr(sample, name) for name in unknown} == {None}
        assert (sample.ecc_uncorrected, sample.power_w) == (None, 60.0)
        assert {fault.code for fault in sensor.bounds.take_faults()} == codes
    assert sample.mem_total_bytes == 80 << 30


def test_board_without_a_known_limit_has_two_kilowatts():
    bounds = Bounds()
    powers_w = [(0, 1999.0), (1, 2001.0), (2, float("nan")), (3, -1.0)]
    assert bounds.powers(powers_w) == [(0, 1999.0)]
    assert list(bounds.suspect_ns) == [1, 2, 3]


def test_range_of_each_field_includes_its_ends():
    bounds = Bounds()
    ends = Sample(
        0, power_w=2000.0, util_pct=100.0, mem_used_bytes=8, mem_total_bytes=8, temp_c=150
    )
    assert bounds.sample(ends) == ends
