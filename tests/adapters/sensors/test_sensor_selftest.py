"""The counter against the power: on the pure comparison, and on a scripted board."""

import random

import pytest
from costprobe.adapters.sensors.child.energy import SelfTest, compare
from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
from costprobe.adapters.sensors.child.nvml import open_driver
from costprobe.adapters.sensors.messages import EnergyReading
from fakes.nvml import FakeNvml
from fakes.worker import WorkerBench
from hypothesis import given
from hypothesis import strategies as st

S = 10**9
NOON_NS = 1_780_000_000 * S


def comparison(ratio, watts=lambda _: 300.0, length_s=10):
    powers = [(100 * S + i * S // 10, watts(i / 10)) for i in range(length_s * 10 + 1)]
    counted_j = ratio * sum(w for _, w in powers) / len(powers) * length_s
    first = EnergyReading(100 * S, 5000.0)
    last = EnergyReading((100 + length_s) * S, 5000.0 + counted_j)
    return compare(first, last, powers)


def test_counter_is_compared_with_steady_power_alone():
    for ratio in (1.0, 0.92, 1.08, 0.8, 1.25):
        assert comparison(ratio) == pytest.approx(ratio, rel=0.01)
    rng = random.Random(3)
    first, last = EnergyReading(0, 0.0), EnergyReading(10 * S, 3000.0)
    steady = [(i * S // 10, 300.0) for i in range(101)]
    not_compared = {
        "step": comparison(1.0, lambda t_s: 60.0 if t_s < 6 else 400.0),
        "noise": comparison(1.0, lambda _: rng.choice((60.0, 700.0))),
        "no power": compare(first, last, []),
        "few powers": compare(first, last, steady[::10]),
        "zeros": compare(first, last, [(t_ns, 0.0) for t_ns, _ in steady]),
        "reset": compare(EnergyReading(0, 900.0), EnergyReading(10 * S, 5.0), steady),
    }
    assert not_compared == dict.fromkeys(not_compared)


@given(st.integers(0, 10**15))
def test_selftest_is_repeated_with_backoff_up_to_an_hour(now_ns):
    test = SelfTest(now_ns, 10.0)
    waits_s = []
    for _ in range(10):
        test.take_counter(now_ns, None)
        waits_s.append((test.due_ns - now_ns) / S)
        now_ns = test.due_ns
    assert waits_s[:3] == [300, 600, 1200]
    assert waits_s[-1] == 3600


class Board:
    """A fake GPU under the agent's own worker, in simulated time."""

    def __init__(self, folder, **sensors):
        self.fake = FakeNvml(folder, simulated_utc_ns=NOON_NS)
        self.clock, self.gpu = self.fake.clock, self.fake.gpus[0]
        self.gpu.set(**sensors)

    def start(self, **settings):
        open_driver()
        sensor = NvidiaSensor(0, self.clock, lambda *_: None)
        bench = WorkerBench(self.fake, sensor, **settings)
        self.run, self.of = bench.run, bench.of


@pytest.mark.parametrize("averages", [True, False])
def test_power_is_polled_during_the_selftest_only(tmp_path, averages):
    board = Board(tmp_path)
    with board.fake.in_this_process():
        if not averages:
            board.fake.fail("field:185", 3)
        board.start()
        board.run(25)
        polls = board.fake.calls("nvmlDeviceGetFieldValues")
        board.run(20)
    (verdict,) = board.of("selftest")
    assert (verdict["device"], verdict["suspect"]) == ("gpu0", False)
    assert verdict["ratio"] == pytest.approx(1, abs=0.02)
    assert 25 + 90 <= polls <= 25 + 105
    assert board.fake.calls("nvmlDeviceGetFieldValues") - polls <= 21
    assert [r["fields"].get("energy_suspect") for r in board.of("reading")][-2:] == [False] * 2


def test_counter_that_misses_energy_makes_the_device_suspect(tmp_path):
    # The power reads 20 % less than the counter counts: which of them is right is unknown.
    board = Board(tmp_path)
    with board.fake.in_this_process():
        board.fake.fail("field:185", 3)
        board.fake.fail("field:186", 3)
        board.gpu.set(power_period_ns=S // 10, power_window_ns=S // 40)
        watts_ns = board.clock.monotonic_ns()
        for i in range(900):  # what falls between the sensor's looks draws twice as much
            board.gpu.set_power(200.0, at_ns=watts_ns + i * S // 10)
            board.gpu.set_power(100.0, at_ns=watts_ns + i * S // 10 + 74 * S // 1000)
        board.start()
        board.run(25)
        (verdict,) = board.of("selftest")
        assert verdict["suspect"] is True
        assert verdict["ratio"] == pytest.approx(1.74, abs=0.05)
        assert board.of("reading")[-1]["fields"]["energy_suspect"] is True


def test_load_during_the_selftest_postpones_it_by_minutes(tmp_path):
    board = Board(tmp_path)
    with board.fake.in_this_process():
        board.gpu.set_power(500.0, at_ns=board.clock.monotonic_ns() + 6 * S)
        board.start()
        board.run(30)
        assert board.of("selftest") == []
        board.run(300)
        (verdict,) = board.of("selftest")
    assert verdict["suspect"] is False
