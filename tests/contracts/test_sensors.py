"""The contract of sensors (docs/contributing/kinds.md), on every sensor and a device of its own."""

import itertools
import math
import re
from pathlib import Path

import costprobe
import pytest
from contracts.sensor_stages import POWER_W, STAGES
from costprobe.adapters.sensors.child.device_thread import DeviceWorker
from costprobe.adapters.sensors.child.kinds import SENSORS
from costprobe.adapters.sensors.messages import Sample
from costprobe.core.records import DEVICE_KINDS
from fakes.sensing import sensor_settings

PACKAGE = Path(costprobe.__file__).parent
ADVANCE_S = 5.0
TOTALS = ("throttle_power_s", "throttle_thermal_s", "ecc_uncorrected", "dram_j")


@pytest.fixture(params=sorted(STAGES))
def stage(request, tmp_path):
    with STAGES[request.param](tmp_path) as opened:
        yield opened


def test_every_vendor_of_the_table_has_a_stage():
    assert {vendor for vendor in SENSORS if not any(s.startswith(vendor) for s in STAGES)} == set()


def test_device_has_the_sensors_name_and_a_known_kind(stage):
    device = stage.sensor.discover()
    assert device.name == stage.sensor.name
    assert device.kind in DEVICE_KINDS
    assert device.uuid
    assert device.model
    if device.is_slice:
        assert device.name.startswith(f"{device.parent}.")
        assert 0 < device.slices <= device.slices_of
    assert stage.sensor.discover() == device


def test_samples_have_increasing_times_and_finite_values_in_range(stage):
    stage.sensor.discover()
    samples = []
    for _ in range(3):
        before_ns = stage.clock.monotonic_ns()
        samples.append(stage.sensor.sample())
        assert before_ns <= samples[-1].t_ns <= stage.clock.monotonic_ns()
        stage.advance(ADVANCE_S)
    for sample in samples:
        assert not sample.is_quick
        assert any(value is not None for value in sample[1:-1])
        values = {name: v for name, v in sample._asdict().items() if isinstance(v, int | float)}
        wrong = {name: v for name, v in values.items() if not (math.isfinite(v) and v >= 0)}
        assert wrong == {}
        assert max(sample.util_pct or 0, sample.mem_util_pct or 0) <= 100
    for name in TOTALS:
        values = [getattr(sample, name) for sample in samples]
        assert None in values or values == sorted(values)


def test_quick_sample_reads_fast_changing_metrics_or_all(stage):
    stage.sensor.discover()
    stage.sensor.sample()
    stage.advance(ADVANCE_S)
    quick = stage.sensor.sample(quick=True)
    stage.advance(ADVANCE_S)
    full = stage.sensor.sample()
    for name in ("power_w", "power_instant_w", "util_pct", "mem_util_pct", "sm_clock_mhz"):
        assert (getattr(quick, name) is None) == (getattr(full, name) is None)
    if not quick.is_quick:
        assert [v is None for v in quick] == [v is None for v in full]


def test_difference_of_two_energy_readings_is_the_energy_between_them(stage):
    stage.sensor.discover()
    readings = []
    for _ in range(3):
        before_ns = stage.clock.monotonic_ns()
        readings.append(stage.sensor.read_energy())
        assert before_ns <= readings[-1].t_ns <= stage.clock.monotonic_ns()
        stage.advance(ADVANCE_S)
    assert {reading.method for reading in readings} <= {"counter", "rapl", "modelled"}
    for before, after in itertools.pairwise(readings):
        used_j = after.energy_j - before.energy_j
        assert used_j > 0
        if after.method != "modelled":
            assert used_j == pytest.approx(POWER_W * ADVANCE_S, rel=0.05)


def test_failing_device_raises_names_its_call_and_works_again_after_discovery(stage):
    device = stage.sensor.discover()
    for _ in range(2):
        stage.damage()
        for method in (stage.sensor.discover, stage.sensor.sample, stage.sensor.read_energy):
            with pytest.raises(Exception):  # noqa: B017, PT011 - every kind quarantines the device
                method()
            assert stage.sensor.call
            stage.repair()
            assert stage.sensor.discover() == device
            stage.damage()
        stage.repair()
        assert stage.sensor.discover() == device
        stage.advance(ADVANCE_S)
        assert isinstance(stage.sensor.sample(), Sample)


def test_optional_methods_answer_for_every_device(stage):
    stage.sensor.discover()
    assert stage.sensor.slices() in ((), [])
    power_w = stage.sensor.read_power_w()
    assert power_w is None or power_w > 0
    assert isinstance(stage.sensor.read_power_samples(), list | None)
    assert isinstance(stage.sensor.util_by_pid_pct(stage.clock.monotonic_ns()), dict | None)


def test_worker_makes_rows_of_the_sensors_samples(stage):
    messages, clock = [], stage.clock
    worker = DeviceWorker(
        stage.sensor, sensor_settings(selftest_s=0.0), clock, messages.append, clock.monotonic_ns()
    )
    for _ in range(31):
        worker.work()
        stage.advance(1.0)
    assert [m for m in messages if m["type"] == "fault"] == []
    readings = [m for m in messages if m["type"] == "reading"]
    assert [(m["end_ns"] - m["start_ns"]) // 10**9 for m in readings] == [10, 10, 10]
    device = stage.sensor.discover()
    for reading in readings:
        assert reading["device"] == device.name
        assert ("energy_j" in reading["fields"]) is not device.is_slice


def test_only_one_table_compares_kinds_of_device():
    """Code above the sensor child uses the properties of a kind and never compares its name."""
    literal = re.compile(
        r"""kind\w*\)?\s*(?:==|!=|in|not in)\s*[({\[]?\s*["'](?:gpu|mig|cpu)["']"""
    )
    offenders = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "sensors/child" not in path.as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if literal.search(line)
    ]
    assert offenders == []
