"""The counter against the power: on the pure comparison, and on a scripted board."""

import random

import pytest
from costprobe.adapters.sensors.child.energy import SelfTest, compare
from costprobe.adapters.sensors.messages import EnergyReading
from fakes.worker import worker_of
from hypothesis import given
from hypothesis import strategies as st

S = 10**9


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


def test_power_is_polled_during_the_selftest_only(simulated):
    for averages in (True, False):
        if not averages:
            simulated.fail("field:185", 3)
        bench, before = worker_of(simulated), simulated.calls("nvmlDeviceGetFieldValues")
        bench.run(25)
        polls = simulated.calls("nvmlDeviceGetFieldValues")
        bench.run(20)
        (verdict,) = bench.of("selftest")
        assert (verdict["device"], verdict["suspect"]) == ("gpu0", False)
        assert verdict["ratio"] == pytest.approx(1, abs=0.02)
        assert 25 + 90 <= polls - before <= 25 + 105
        assert simulated.calls("nvmlDeviceGetFieldValues") - polls <= 21
        suspects = [row["fields"].get("energy_suspect") for row in bench.of("reading")]
        assert suspects[-2:] == [False] * 2


def test_counter_that_misses_energy_makes_the_device_suspect(simulated):
    # The power reads 20 % less than the counter counts: which of them is right is unknown.
    gpu = simulated.gpus[0]
    simulated.fail("field:185", 3)
    simulated.fail("field:186", 3)
    gpu.set(power_period_ns=S // 10, power_window_ns=S // 40)
    watts_ns = simulated.clock.monotonic_ns()
    for i in range(900):  # what falls between the sensor's looks draws twice as much
        gpu.set_power(200.0, at_ns=watts_ns + i * S // 10)
        gpu.set_power(100.0, at_ns=watts_ns + i * S // 10 + 74 * S // 1000)
    bench = worker_of(simulated)
    bench.run(25)
    (verdict,) = bench.of("selftest")
    assert verdict["suspect"] is True
    assert verdict["ratio"] == pytest.approx(1.74, abs=0.05)
    assert bench.of("reading")[-1]["fields"]["energy_suspect"] is True


def test_load_during_the_selftest_postpones_it_by_minutes(simulated):
    simulated.gpus[0].set_power(500.0, at_ns=simulated.clock.monotonic_ns() + 6 * S)
    bench = worker_of(simulated)
    bench.run(30)
    assert bench.of("selftest") == []
    bench.run(300)
    (verdict,) = bench.of("selftest")
    assert verdict["suspect"] is False
