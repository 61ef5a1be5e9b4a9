from itertools import pairwise

import pytest
from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.messages import (
    Absent,
    Activity,
    EnergyReading,
    Reaction,
    Sample,
    SensorFault,
)
from costprobe.core.records import Device
from fakes.clock import FakeClock
from fakes.worker import WorkerBench

S = 10**9


class ScriptedGpu(Sensor):
    """A GPU of 100 W whose driver can be made to fail; it keeps when each of its calls was made."""

    def __init__(self, clock, *, has_counter=True):
        super().__init__("gpu0")
        self.call = "nvmlDeviceGetPowerUsage"
        self._clock, self._has_counter = clock, has_counter
        self.util_pct, self.power_w, self.fault, self.opens = 50.0, 100.0, None, 0
        self.full_ns, self.quick_ns, self.counter_ns, self.polled_ns = [], [], [], []

    def _read(self, times_ns):
        if self.fault is not None:
            raise self.fault
        times_ns.append(self._clock.monotonic_ns())
        return times_ns[-1]

    def discover(self):
        self.opens += 1
        self._read([])
        return Device(self.name, "gpu", "GPU-1", "Board", 80)

    def sample(self, *, quick=False):
        now_ns = self._read(self.quick_ns if quick else self.full_ns)
        metrics = {"util_pct": self.util_pct, "sm_clock_mhz": 1900.0}
        pids = None if quick else (7,)
        return Sample(now_ns, self.power_w, self.power_w, **metrics, pids=pids, is_quick=quick)

    def read_energy(self):
        now_ns = self._read(self.counter_ns)
        return EnergyReading(now_ns, now_ns / S * 100) if self._has_counter else None

    def util_by_pid_pct(self, since_ns):
        return {7: 100.0} if self._read([]) and since_ns else None

    def read_power_w(self):
        self._read(self.polled_ns)
        return self.power_w


class Bench(WorkerBench):
    """A worker on a clock that the test moves."""

    def __init__(self, *, has_counter=True, **options):
        self.clock = FakeClock()
        self.sensor = ScriptedGpu(self.clock, has_counter=has_counter)
        super().__init__(self, self.sensor, selftest_s=0.0, **options)

    def watch_for(self, seconds):
        self.windows.watch("gpu0", self.clock.monotonic_ns() + seconds * S)

    def energy(self, start_ns, end_ns, lead_ns=S):
        return self.windows.energy("gpu0", start_ns, end_ns, start_ns - lead_ns, end_ns + lead_ns)


def test_device_has_a_row_every_interval_with_few_readings_of_what_changes_slowly():
    bench = Bench()
    bench.run(30)
    assert len(bench.of("device")) == 1
    readings = bench.of("reading")
    assert [(r["end_ns"] - r["start_ns"]) / S for r in readings] == [10, 10, 10]
    assert [r["fields"]["energy_j"] for r in readings] == [1000, 1000, 1000]
    assert bench.sensor.full_ns == [(5000 + t) * S for t in (0, 10, 20, 30)]
    assert len({*bench.sensor.full_ns, *bench.sensor.quick_ns}) == 31
    assert len(bench.sensor.counter_ns) == 4


def test_rows_of_a_late_device_end_on_the_common_grid():
    for late_s, first_s in ((0.4, 9), (3.2, 6), (8.9, 1), (9.5, 10)):
        bench = Bench(late_s=late_s)
        bench.run(30)
        rows = bench.of("reading")
        ends_s = [row["end_ns"] / S - 5000 + late_s for row in rows]
        grid_s = [late_s // 10 * 10 + end for end in (10, 20, 30)]
        assert ends_s == pytest.approx(grid_s[-len(rows) :])
        # Never one sample alone, between which and itself nothing could be counted.
        assert (rows[0]["end_ns"] - rows[0]["start_ns"]) / S == pytest.approx(first_s), late_s


def test_watched_device_is_read_fully_at_once_and_at_every_sample():
    bench = Bench()
    bench.run(2.5)
    bench.watch_for(4)
    assert bench.sensor.full_ns[-1] == bench.clock.monotonic_ns()
    bench.run(5)
    assert [(t_ns / S) % 100 for t_ns in bench.sensor.full_ns] == [0, 2.5, 3, 4, 5, 6]
    # The reading between two ticks is for the conditions: it weighs in no mean, and moves no tick.
    assert [(t_ns / S) % 100 for t_ns in bench.sensor.quick_ns] == [1, 2, 7]
    bench.watch_for(60)
    # Watching a watched device reads nothing extra.
    bench.watch_for(90)
    bench.watch_for(0)
    bench.run(1)
    assert [(t_ns / S) % 100 for t_ns in bench.sensor.full_ns[-2:]] == [6, 7.5]


def test_late_sample_is_skipped_and_later_ones_keep_the_grid():
    bench = Bench()
    bench.run(3.5)
    start_ns = 5000 * S
    bench.clock.move(3.8)
    bench.worker.step()
    assert bench.worker.next_wake_ns() == start_ns + 8 * S


def test_marks_in_quick_succession_do_not_read_the_counter_faster_than_once_a_second():
    bench = Bench()
    bench.run(2.5)
    before = len(bench.sensor.counter_ns)
    for _ in range(50):
        bench.mark("gpu0")
        bench.run(0.1)
    times_ns = bench.sensor.counter_ns[before:]
    assert len(times_ns) == 6
    assert all(b - a >= S for a, b in pairwise(times_ns))


def test_power_without_a_counter_is_polled_while_the_device_is_watched():
    bench = Bench(has_counter=False)
    bench.run(2.5)
    start_ns = bench.clock.monotonic_ns()
    bench.mark_edge()
    bench.run(5)
    end_ns = bench.clock.monotonic_ns()
    assert 49 <= len(bench.sensor.polled_ns) <= 51
    bench.watch_for(1)
    bench.run(3)
    energy = bench.energy(start_ns, end_ns)
    assert (energy.method, energy.energy_j) == ("poll", pytest.approx(500))
    polls = len(bench.sensor.polled_ns)
    assert polls <= 62
    bench.run(10)
    assert len(bench.sensor.polled_ns) == polls
    # For two minutes at most.
    bench.mark_edge()
    bench.run(300)
    assert 1195 <= len(bench.sensor.polled_ns) - polls <= 1205


def test_window_of_a_rarely_sampled_device_needs_no_sample_on_its_grid():
    known = Activity(sm_clock_mhz=1900.0, util_pct=50.0, contended=False, is_open=False)
    for has_counter in (True, False):
        bench = Bench(has_counter=has_counter, every_s=30.0)
        bench.run(31)
        start_ns = bench.clock.monotonic_ns()
        bench.mark_edge()
        bench.run(6)
        end_ns = bench.clock.monotonic_ns()
        bench.mark_edge()
        bench.run(0.1)
        assert bench.energy(start_ns, end_ns, lead_ns=S // 2).energy_j == pytest.approx(600)
        assert bench.windows.activity("gpu0", start_ns, end_ns, [7]) == known
    # Nor does the load of the last seconds need a watch before.
    bench = Bench()
    bench.run(10.4)
    now_ns = bench.clock.monotonic_ns()
    assert bench.windows.activity("gpu0", now_ns - 2 * S, now_ns, [7]) == known


def test_window_does_not_span_two_children():
    bench = Bench()
    bench.mark_edge()
    bench.run(10)
    start_ns, end_ns = 5001 * S, 5009 * S
    assert bench.energy(start_ns, end_ns).energy_j == pytest.approx(800)
    bench.windows.take({**bench.of("samples")[-1], "is_first": True})
    assert isinstance(bench.energy(start_ns, end_ns), Absent)


def test_energy_has_the_idle_power_once_the_device_was_idle():
    bench = Bench(has_counter=False)
    bench.watch_for(60)
    bench.run(30.5)
    now_ns = bench.clock.monotonic_ns()
    assert bench.energy(now_ns - 8 * S, now_ns - 2 * S).idle_power_w is None
    bench.sensor.util_pct, bench.sensor.power_w = 0.0, 47.0
    bench.run(15)
    bench.sensor.util_pct, bench.sensor.power_w = 90.0, 300.0
    bench.watch_for(60)
    bench.run(20.5)
    now_ns = bench.clock.monotonic_ns()
    energy = bench.energy(now_ns - 8 * S, now_ns - 2 * S)
    assert (energy.energy_j, energy.idle_power_w) == (pytest.approx(1800), 47.0)


def test_lost_gpu_is_retried_with_backoff_and_nothing_is_counted_across_its_absence():
    bench = Bench()
    bench.run(5)
    bench.sensor.fault = SensorFault("nvmlX", "GPU_IS_LOST", Reaction.QUARANTINE, "gone")
    bench.run(3 * 3600)
    waits = [fault["retry_after_s"] for fault in bench.of("fault")]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert {fault["code"] for fault in bench.of("fault")} == {"GPU_IS_LOST"}
    assert (len(bench.of("device")), bench.worker.opened) == (1, False)
    bench.sensor.fault = None
    bench.run(3600)
    assert len(bench.of("device")) == 2
    # What it had of its interval was handed over.
    first, second, *_ = bench.of("reading")
    assert (first["end_ns"] - first["start_ns"]) / S == 5
    assert second["start_ns"] > first["end_ns"] + 3600 * S
    assert second["fields"]["energy_j"] <= 1000


def test_quarantined_gpu_is_not_accessed_at_first():
    bench = Bench(retry_after_s=30.0)
    assert bench.worker.settled
    opens = []
    for seconds in (29, 2):
        bench.run(seconds)
        opens.append(bench.sensor.opens)
    assert opens == [0, 1]
