from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.series import SCHEMA
from agent.telemetry.aggregate import Aggregator
from agent.telemetry.sample import CounterReading, Sample

S = 10**9


def at(t_s, **values):
    return Sample(t_ns=int(t_s * S), **values)


def quick(t_s, **values):
    return at(t_s, is_quick=True, **values)


def test_totals_advance_from_one_whole_sample_to_the_next():
    fold = Aggregator("gpu0")
    fold.add(at(0, power_w=100.0, throttle_power_s=5.0, mem_used_bytes=1, pids=(4,)))
    fold.add(quick(1, power_w=200.0))
    cut_short = fold.close()
    assert cut_short.fields == {"power_w": 150.0, "power_max_w": 200.0, **polled(150.0)}
    fold.add(quick(2, power_w=200.0))
    fold.add(at(3, power_w=200.0, throttle_power_s=5.5, mem_used_bytes=7, pids=(4, 5)))
    fields = fold.close().fields
    assert fields["throttle_power_s"] == 0.5
    assert (fields["mem_used_bytes"], fields["processes"]) == (7, 2)
    fold.add(at(4, power_w=200.0, throttle_power_s=6.5))
    assert fold.close().fields["throttle_power_s"] == 1.0


def polled(energy_j):
    return {"energy_j": energy_j, "energy_method": "poll"}


def test_fields_are_folded_as_the_series_defines_them():
    fold = Aggregator("gpu0")
    fold.restart(CounterReading(0, 1000.0))
    common = {"mem_total_bytes": 800, "mem_util_pct": 10.0, "mem_clock_mhz": 2600.0}
    fold.add(
        at(
            0,
            power_w=100.0,
            power_instant_w=110.0,
            util_pct=0.0,
            temp_c=40.0,
            sm_clock_mhz=1000.0,
            mem_used_bytes=1,
            throttle_power_s=5.0,
            throttle_thermal_s=1.0,
            ecc_uncorrected=0,
            pids=(),
            **common,
        )
    )
    fold.add(
        at(
            1,
            power_w=200.0,
            power_instant_w=310.0,
            util_pct=100.0,
            temp_c=60.0,
            sm_clock_mhz=2000.0,
            mem_used_bytes=7,
            throttle_power_s=5.25,
            throttle_thermal_s=1.0,
            ecc_uncorrected=2,
            pids=(4, 5),
            **common,
        )
    )
    reading = fold.close(CounterReading(S, 1160.0), "counter")
    assert (reading.device, reading.start_ns, reading.end_ns) == ("gpu0", 0, S)
    assert reading.fields == {
        "power_w": 150.0,
        "power_max_w": 310.0,
        "energy_j": 160.0,
        "energy_method": "counter",
        "util_pct": 50.0,
        "mem_util_pct": 10.0,
        "mem_used_bytes": 7,
        "mem_total_bytes": 800,
        "temp_c": 60.0,
        "sm_clock_mhz": 1500.0,
        "mem_clock_mhz": 2600.0,
        "throttle_power_s": 0.25,
        "throttle_thermal_s": 0.0,
        "ecc_uncorrected": 2,
        "processes": 2,
    }
    assert reading.fields.keys() <= SCHEMA["device"].fields.keys()


def test_what_the_device_lacks_is_absent_and_never_zero():
    fold = Aggregator("gpu0")
    fold.add(at(0, temp_c=40.0))
    fold.add(at(1, temp_c=41.0))
    assert fold.close().fields == {"temp_c": 41.0}


def test_power_of_zero_is_no_energy_of_zero():
    fold = Aggregator("cpu")
    fold.restart(CounterReading(0, 5.0))
    fold.add(at(0, power_w=0.0, temp_c=1.0))
    fold.add(at(1, power_w=0.0, temp_c=1.0))
    assert "energy_j" not in fold.close(CounterReading(S, 5.0), "rapl").fields


def test_an_interval_without_a_sample_gives_no_reading():
    fold = Aggregator("gpu0")
    assert fold.close() is None
    fold.add(at(0, power_w=1.0))
    assert fold.close() is not None
    assert fold.close() is None


def test_without_a_counter_the_power_is_integrated():
    fold = Aggregator("gpu0")
    for t_s, watts in [(0, 100.0), (1, 200.0), (2, 200.0)]:
        fold.add(at(t_s, power_w=watts))
    fields = fold.close().fields
    assert (fields["energy_j"], fields["energy_method"]) == (350.0, "poll")


def test_intervals_follow_each_other_without_a_gap():
    fold = Aggregator("gpu0")
    fold.add(at(0, power_w=100.0))
    fold.add(at(1, power_w=100.0))
    first = fold.close()
    fold.add(at(2, power_w=100.0))
    second = fold.close()
    assert first.end_ns == second.start_ns == S
    assert second.fields["energy_j"] == 100.0


def test_a_counter_that_was_reset_is_replaced_by_polls_for_that_interval_alone():
    fold = Aggregator("gpu0")
    fold.restart(CounterReading(0, 9000.0))
    seen = []
    for t_s, counter_j in [(0, None), (10, 50.0), (20, 1050.0)]:
        fold.add(at(t_s, power_w=100.0))
        if counter_j is not None:
            reading = fold.close(CounterReading(t_s * S, counter_j), "counter")
            seen.append((reading.fields["energy_j"], reading.fields["energy_method"]))
    assert seen == [(1000.0, "poll"), (1000.0, "counter")]


def test_a_counter_that_could_not_be_read_does_not_count_an_interval_twice():
    fold = Aggregator("gpu0")
    fold.restart(CounterReading(0, 0.0))
    total_j = 0.0
    fold.add(at(0, power_w=100.0))
    for t_s, counter_j in [(10, 1000.0), (20, None), (30, 3000.0), (40, 4000.0)]:
        fold.add(at(t_s, power_w=100.0))
        counter = None if counter_j is None else CounterReading(t_s * S, counter_j)
        total_j += fold.close(counter, "counter").fields["energy_j"]
    assert total_j == pytest.approx(4000.0)


def test_nothing_is_counted_across_a_pause():
    fold = Aggregator("gpu0")
    fold.add(at(0, power_w=100.0, throttle_power_s=0.0, throttle_thermal_s=0.0))
    fold.close()
    fold.restart(CounterReading(1000 * S, 0.0))
    fold.add(at(1000, power_w=100.0, throttle_power_s=900.0, throttle_thermal_s=0.0))
    fold.add(at(1001, power_w=100.0, throttle_power_s=900.5, throttle_thermal_s=0.0))
    reading = fold.close()
    assert reading.start_ns == 1000 * S
    assert reading.fields["energy_j"] == 100.0
    assert reading.fields["throttle_power_s"] == 0.5


def test_energy_of_a_model_stays_a_model_when_its_counter_is_missing():
    fold = Aggregator("cpu")
    fold.add(at(0, power_w=2.0))
    fold.add(at(1, power_w=2.0))
    assert fold.close(None, "modelled").fields["energy_method"] == "modelled"


@given(
    watts=st.lists(st.floats(1, 1000), min_size=2, max_size=60),
    cuts=st.sets(st.integers(1, 59), max_size=10),
)
def test_the_energies_of_all_intervals_add_up(watts, cuts):
    fold, total_j = Aggregator("gpu0"), 0.0
    for i, power_w in enumerate(watts):
        fold.add(at(i, power_w=power_w))
        if i in cuts or i == len(watts) - 1:
            total_j += fold.close().fields.get("energy_j", 0.0)
    by_hand_j = sum((a + b) / 2 for a, b in pairwise(watts))
    assert total_j == pytest.approx(by_hand_j)
