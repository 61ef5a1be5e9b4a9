"""Processes of a GPU, and what the driver reports of them that is true."""

import pytest
from costprobe.adapters.sensors.child.device_thread import MAX_PROCESSES, busy_by_pid_s
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.child.nvml import RECORD_BYTES
from costprobe.adapters.sensors.messages import (
    Shares,
    decode,
    encode,
    parse_reading,
)
from fakes.worker import context_of, worker_of

S = 10**9
NOON_NS = 1_780_000_000 * S


def opened(fake):
    sensor, _ = nvidia_sensors(context_of(fake))
    sensor.discover()
    return sensor


@pytest.mark.parametrize("record_bytes", RECORD_BYTES)
def test_processes_are_read_whatever_the_size_of_the_drivers_records(simulated, record_bytes):
    simulated.set_process_record(record_bytes)
    sensor = opened(simulated)
    for count in (0, 1, 2, 7, 31):
        simulated.gpus[0].set_processes(range(100, 100 + count), mps_pids=[5])
        assert sensor.sample().pids == (5, *range(100, 100 + count))


def test_rows_of_utilization_that_the_driver_never_filled_are_discarded(simulated):
    gpu = simulated.gpus[0]
    gpu.keep_busy({10: 90, 11: 7})
    gpu.set(unfilled_count=96)
    assert opened(simulated).util_by_pid_pct(0) == {10: 90.0, 11: 7.0}
    gpu.keep_busy({10: 90})
    assert opened(simulated).util_by_pid_pct(0) == {10: 90.0}


def test_ended_process_and_graphics_process_are_identified(simulated):
    gpu, sensor = simulated.gpus[0], opened(simulated)
    gpu.set_processes([10, 11])
    sensor.sample()
    gpu.set_processes([10], busy_pids=[10, 11, 12])
    gpu.set_graphics([12])
    simulated.clock.move(5)
    assert sensor.util_by_pid_pct(0) == {10: 50.0, 11: 50.0, 12: 50.0}
    simulated.clock.move(601)
    sensor.sample()
    assert sensor.util_by_pid_pct(0) == {10: 50.0, 12: 50.0}


def test_shares_of_time_are_summed_to_seconds():
    shares = [Shares(10 * S, 11 * S, [(7, 50.0)]), Shares(11 * S, 13 * S, [(7, 25.0), (8, 100.0)])]
    assert busy_by_pid_s(shares) == pytest.approx({7: 1.0, 8: 2.0})
    assert busy_by_pid_s([]) == {}
    # One sample without shares, or too many processes, make the interval unknown.
    assert busy_by_pid_s([*shares, Shares(13 * S, 14 * S, None)]) is None
    many = [(pid, 1.0) for pid in range(MAX_PROCESSES + 1)]
    assert busy_by_pid_s([Shares(0, S, many)]) is None


@pytest.mark.parametrize("is_configured", [True, False])
def test_rows_have_the_time_of_processes_only_if_configured(simulated, is_configured):
    simulated.gpus[0].keep_busy({7: 30, 8: 10})
    bench = worker_of(simulated, aggregate_s=5.0, selftest_s=0.0, processes=is_configured)
    bench.run(13)
    readings = [parse_reading(decode(encode(message))) for message in bench.of("reading")]
    assert len(readings) >= 2
    calls = simulated.calls("nvmlDeviceGetProcessUtilization")
    assert (calls > 0) is is_configured
    for reading in readings:
        length_s = (reading.end_ns - reading.start_ns) / S
        expected = {7: pytest.approx(0.3 * length_s), 8: pytest.approx(0.1 * length_s)}
        assert reading.busy_by_pid_s == (expected if is_configured else None)
