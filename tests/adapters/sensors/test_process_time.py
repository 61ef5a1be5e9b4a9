"""Seconds by process, from the driver's shares to the reading on the wire."""

from dataclasses import asdict

import pytest
from costprobe.adapters.sensors.child.device_thread import (
    MAX_PROCESSES,
    DeviceWorker,
    busy_by_pid_s,
)
from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
from costprobe.adapters.sensors.child.nvml import open_driver
from costprobe.adapters.sensors.messages import (
    Shares,
    decode,
    encode,
    parse_reading,
)
from costprobe.core.records import NS_PER_S, Reading
from fakes.nvml import FakeNvml, require_gcc
from fakes.sensing import sensor_settings

S = NS_PER_S
START_NS = 1_780_000_000 * S


def test_shares_of_time_are_summed_to_seconds():
    shares = [Shares(10 * S, 11 * S, [(7, 50.0)]), Shares(11 * S, 13 * S, [(7, 25.0), (8, 100.0)])]
    assert busy_by_pid_s(shares) == pytest.approx({7: 1.0, 8: 2.0})
    assert busy_by_pid_s([]) == {}
    # One sample without shares, or too many processes, make the interval unknown.
    assert busy_by_pid_s([*shares, Shares(13 * S, 14 * S, None)]) is None
    many = [(pid, 1.0) for pid in range(MAX_PROCESSES + 1)]
    assert busy_by_pid_s([Shares(0, S, many)]) is None


@pytest.mark.parametrize("busy", [None, {}, {7: 1.5, 4_000_000: 0.25}])
def test_busy_time_round_trips(busy):
    reading = Reading("gpu0", 1, 2, {"util_pct": 5.0}, busy)
    message = {"type": "reading", **asdict(reading)}
    assert parse_reading(decode(encode(message))) == reading


@pytest.mark.parametrize("is_configured", [True, False])
def test_worker_reads_process_time_only_if_configured(tmp_path, is_configured):
    require_gcc()
    fake = FakeNvml(tmp_path, simulated_utc_ns=START_NS)
    messages = []
    with fake.in_this_process():
        open_driver()
        sensor = NvidiaSensor(0, fake.clock, lambda *_: None)
        settings = sensor_settings(aggregate_s=5.0, selftest_s=0.0, processes=is_configured)
        now_ns = fake.clock.monotonic_ns()
        worker = DeviceWorker(sensor, settings, fake.clock, messages.append, now_ns)
        fake.gpus[0].keep_busy({7: 30, 8: 10})
        for _ in range(13):
            worker.step()
            fake.clock.move(1.0)
    readings = [parse_reading(m) for m in messages if m["type"] == "reading"]
    assert len(readings) >= 2
    calls = fake.calls("nvmlDeviceGetProcessUtilization")
    if not is_configured:
        assert [reading.busy_by_pid_s for reading in readings] == [None] * len(readings)
        assert calls == 0
        return
    assert calls > 0
    for reading in readings:
        length_s = (reading.end_ns - reading.start_ns) / S
        assert reading.busy_by_pid_s == pytest.approx({7: 0.3 * length_s, 8: 0.1 * length_s})
