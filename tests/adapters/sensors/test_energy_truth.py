"""Measured energy against the scripted truth, with the errors of real sensors.

Everything but the board is real: pynvml, the sensor, the worker that reads edges and polls, and the
estimate. Time is simulated, so that hundreds of windows pass in seconds.
"""

import random

import pytest
from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
from costprobe.adapters.sensors.child.nvml import open_driver
from costprobe.core.records import Device
from costprobe.devices.use import with_sampling_error
from fakes.nvml import FakeNvml
from fakes.runs import probe_run
from fakes.worker import WorkerBench

S = 10**9
MS = 10**6
NOON_NS = 1_780_000_000 * S
RUNS_EACH = 20
NOT_SUPPORTED = 3

# 25 of 100 ms: A100 and H100. Average: Hopper's field of one second. Counter: steps of 100 ms.
PART_TIME = {"power_period_ns": 100 * MS, "power_window_ns": 25 * MS}
BOARDS = {
    "part-time power alone": (PART_TIME, "no counter", "poll"),
    "average of a second": ({"average_period_ns": 100 * MS, **PART_TIME}, "no counter", "poll"),
    "buffered samples": (PART_TIME, "no counter", "samples"),
    "counter in steps": (PART_TIME, "counter", "counter"),
    "counter that lies when read fast": (
        {"counter_gap_ns": 150 * MS, "counter_loss": 0.5, **PART_TIME},
        "counter",
        "counter",
    ),
}


H100 = Device("gpu0", "gpu", "GPU-1", "NVIDIA H100 80GB HBM3")


def result_of(pass_ms, cv=0.0, **more):
    """A probe's result in a window of five seconds, of passes of one item."""
    return probe_run(
        **{
            "batch": 1,
            "latency_ms": {"p50": pass_ms, "mean": pass_ms, "cv": cv},
            "window_end_ns": 5 * S,
            "inferences": 5000 / pass_ms,
            **more,
        }
    )


class Board:
    """A fake GPU of one kind, with the agent's own worker on it."""

    def __init__(self, folder, name, gain):
        sensors, counter, self.method = BOARDS[name]
        self.fake = FakeNvml(folder, simulated_utc_ns=NOON_NS)
        self.clock = self.fake.clock
        self.gpu = self.fake.gpus[0]
        self.gpu.set(gain=gain, **sensors)
        if counter == "no counter":
            self.fake.fail("nvmlDeviceGetTotalEnergyConsumption", NOT_SUPPORTED)
        if self.method == "samples":
            self.gpu.buffer_samples()
        if "average_period_ns" not in sensors:
            self.fake.fail("field:185", NOT_SUPPORTED)
            self.fake.fail("field:186", NOT_SUPPORTED)

    def open(self):
        open_driver()
        sensor = NvidiaSensor(0, self.clock, lambda *_: None)
        self.bench = WorkerBench(self.fake, sensor)
        self.until = self.bench.until

    def energy(self, rng, region_s, periodic_ms=None):
        """One window: what the worker answers, and the truth.

        `periodic_ms` is the length of passes that draw much in their first half and little in
        their second, and all last equally long; None for passes of all lengths that differ little.
        """
        watts = rng.uniform(120, 700)
        steady_start_ns = self.clock.monotonic_ns() + int(rng.uniform(1, 12) * S)
        self.until(steady_start_ns)
        start_ns = steady_start_ns + int(0.5 * S)
        end_ns = start_ns + int(region_s * S) + rng.randrange(20 * MS)
        steady_end_ns = end_ns + int(rng.uniform(0.3, 0.35) * S)
        if periodic_ms is None:
            self.script_load(rng, watts, steady_start_ns, steady_end_ns)
        else:
            self.script_passes(watts, periodic_ms, steady_start_ns, steady_end_ns)
        for edge_ns in (start_ns, end_ns):
            self.until(edge_ns + rng.randrange(1 * MS, 30 * MS))
            self.bench.mark_edge()
        # A sample after the window ends what the daemon waits for.
        self.until(steady_end_ns + S)
        answer = self.bench.windows.energy("gpu0", start_ns, end_ns, steady_start_ns, steady_end_ns)
        return answer, self.gpu.energy_j(start_ns, end_ns)

    def script_load(self, rng, watts, start_ns, end_ns):
        """Power that rises within 60 ms, and then differs from pass to pass and within each."""
        for i in range(3):
            self.gpu.set_power(60 + (watts - 60) * (i + 1) / 4, at_ns=start_ns + i * 20 * MS)
        at_ns, pass_ms = start_ns + 60 * MS, rng.uniform(15, 45)
        swing = rng.uniform(0, 0.06)
        while at_ns < end_ns:
            for sign in (1, -1):
                level = watts * (1 + sign * swing + rng.gauss(0, 0.01))
                self.gpu.set_power(level, at_ns=at_ns)
                at_ns += int(pass_ms / 2 * rng.uniform(0.9, 1.1) * MS)
        self.gpu.set_power(60.0, at_ns=at_ns)

    def script_passes(self, watts, pass_ms, start_ns, end_ns):
        """Passes of one length, whose halves draw 1.5 times and half of the mean."""
        half_ns = int(pass_ms / 2 * MS)
        for i, at_ns in enumerate(range(start_ns, end_ns, half_ns)):
            self.gpu.set_power(watts * (0.5 if i % 2 else 1.5), at_ns=at_ns)
        self.gpu.set_power(60.0, at_ns=end_ns)


def windows(folder, name, region_s, seed, periodic_ms=None):
    """Twenty windows on boards that are each wrong by up to 5 %: answers, truths and gains."""
    rng = random.Random(f"{name} {region_s} {seed}")
    for i in range(RUNS_EACH):
        place = folder / f"{region_s}-{periodic_ms}-{i}"
        place.mkdir()
        gain = rng.uniform(0.95, 1.05)
        board = Board(place, name, gain)
        with board.fake.in_this_process():
            board.open()
            answer, truth_j = board.energy(rng, region_s, periodic_ms)
        yield board, answer, truth_j, gain


@pytest.mark.parametrize("name", BOARDS)
def test_energy_is_within_its_stated_uncertainty(tmp_path, name):
    within = 0
    for region_s, allowed in ((5, 0.02), (10, 0.01)):
        for board, answer, truth_j, gain in windows(tmp_path, name, region_s, seed=1):
            assert answer.method == board.method
            assert abs(answer.energy_j / gain / truth_j - 1) <= allowed
            within += abs(answer.energy_j / truth_j - 1) <= answer.rel_err
            assert answer.rel_err < 0.15
    assert within >= 0.95 * 2 * RUNS_EACH


def test_periodic_passes_on_a_part_time_board_have_a_larger_uncertainty(tmp_path):
    """The load begins at a random phase of the sensor, as that of a probe does."""
    within, naive, count = 0, 0, 0
    for pass_ms in (100, 50, 200):
        for _, answer, truth_j, _ in windows(tmp_path, "part-time power alone", 5, 2, pass_ms):
            stated = with_sampling_error(answer, H100, result_of(pass_ms))
            error = abs(answer.energy_j / truth_j - 1)
            within += error <= stated.rel_err
            naive += error <= answer.rel_err
            count += 1
    assert within >= 0.95 * count
    assert naive < 0.5 * count
