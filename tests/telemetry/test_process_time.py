"""Seconds by process, from the driver's shares to the reading on the wire."""

import pytest
from fakes.nvml import FakeNvml, require_gcc

from agent.model import NS_PER_S, Reading
from agent.telemetry.gpu import GpuSensor
from agent.telemetry.nvml import Library
from agent.telemetry.process_time import MAX_PROCESSES, ProcessTime
from agent.telemetry.wire import SensorSettings, decode, encode, parse_reading, reading_message
from agent.telemetry.worker import DeviceWorker

S = NS_PER_S
START_NS = 1_780_000_000 * S


def test_shares_of_time_become_seconds():
    time = ProcessTime()
    time.restart(10 * S)
    time.add(11 * S, {7: 50.0})
    time.add(13 * S, {7: 25.0, 8: 100.0})
    assert time.close() == pytest.approx({7: 1.0, 8: 2.0})
    time.add(14 * S, {})
    assert time.close() == {}


def test_what_one_sample_does_not_tell_is_not_known_of_its_interval_alone():
    time = ProcessTime()
    time.restart(0)
    time.add(S, {7: 50.0})
    time.add(2 * S, None)
    assert time.close() is None
    time.add(3 * S, {7: 50.0})
    assert time.close() == {7: 0.5}


def test_more_processes_than_can_be_kept_are_not_half_known():
    time = ProcessTime()
    time.restart(0)
    time.add(S, dict.fromkeys(range(MAX_PROCESSES + 1), 1.0))
    assert time.close() is None


@pytest.mark.parametrize("busy", [None, {}, {7: 1.5, 4_000_000: 0.25}])
def test_it_survives_the_wire(busy):
    reading = Reading("gpu0", 1, 2, {"util_pct": 5.0}, busy)
    assert parse_reading(decode(encode(reading_message(reading)))) == reading


@pytest.mark.parametrize("asked", [True, False])
def test_a_worker_asks_the_driver_where_services_want_it(tmp_path, asked):
    require_gcc()
    fake = FakeNvml(tmp_path, simulated_utc_ns=START_NS)
    messages = []
    with fake.in_this_process():
        library = Library()
        library.open()
        sensor = GpuSensor(0, library, fake.clock, messages.append)
        settings = SensorSettings(aggregate_every_s=5.0, selftest_s=0.0, processes=asked)
        now_ns = fake.clock.monotonic_ns()
        worker = DeviceWorker(sensor, settings, fake.clock, messages.append, now_ns)
        fake.gpus[0].keep_busy({7: 30, 8: 10})
        for _ in range(13):
            worker.step()
            fake.clock.move(1.0)
    readings = [parse_reading(m) for m in messages if m["type"] == "reading"]
    assert len(readings) >= 2
    calls = fake.calls("nvmlDeviceGetProcessUtilization")
    if not asked:
        assert [reading.busy_by_pid_s for reading in readings] == [None] * len(readings)
        assert calls == 0
        return
    assert calls > 0
    for reading in readings:
        length_s = (reading.end_ns - reading.start_ns) / S
        assert reading.busy_by_pid_s == pytest.approx({7: 0.3 * length_s, 8: 0.1 * length_s})
