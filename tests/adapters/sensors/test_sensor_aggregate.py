import pytest
from costprobe.adapters.sensors.child.device_thread import Aggregator
from costprobe.adapters.sensors.messages import EnergyReading, Sample
from costprobe.core.schema import SCHEMA
from hypothesis import given
from hypothesis import strategies as st

S = 10**9


def at(t_s, **values):
    return Sample(t_ns=int(t_s * S), **values)


def quick(t_s, **values):
    return at(t_s, is_quick=True, **values)


def test_totals_advance_between_full_samples():
    aggregator = Aggregator("gpu0")
    aggregator.add(at(0, power_w=100.0, throttle_power_s=5.0, mem_used_bytes=1, pids=(4,)))
    aggregator.add(quick(1, power_w=200.0))
    cut_short = aggregator.close()
    assert cut_short.fields == {"power_w": 150.0, "power_max_w": 200.0, **polled(150.0)}
    aggregator.add(quick(2, power_w=200.0))
    aggregator.add(at(3, power_w=200.0, throttle_power_s=5.5, mem_used_bytes=7, pids=(4, 5)))
    fields = aggregator.close().fields
    assert fields["throttle_power_s"] == 0.5
    assert (fields["mem_used_bytes"], fields["processes"]) == (7, 2)
    aggregator.add(at(4, power_w=200.0, throttle_power_s=6.5))
    assert aggregator.close().fields["throttle_power_s"] == 1.0


def polled(energy_j):
    return {"energy_j": energy_j, "energy_method": "poll"}


def test_fields_are_aggregated_as_the_series_defines_them():
    # Of each field its values in two samples, and what the row has; None: another field.
    table = {
        "power_w": (100.0, 200.0, 150.0),
        "power_instant_w": (110.0, 310.0, None),
        "util_pct": (0.0, 100.0, 50.0),
        "mem_util_pct": (10.0, 10.0, 10.0),
        "mem_used_bytes": (1, 7, 7),
        "mem_total_bytes": (800, 800, 800),
        "temp_c": (60.0, 40.0, 60.0),
        "sm_clock_mhz": (1000.0, 2000.0, 1500.0),
        "mem_clock_mhz": (2600.0, 2600.0, 2600.0),
        "power_limit_w": (700.0, 500.0, 500.0),
        "throttle_power_s": (5.0, 5.25, 0.25),
        "throttle_thermal_s": (1.0, 1.0, 0.0),
        "ecc_uncorrected": (0, 2, 2),
        "pids": ((), (4, 5), None),
    }
    aggregator = Aggregator("gpu0")
    aggregator.restart(EnergyReading(0, 1000.0))
    for t_s in (0, 1):
        aggregator.add(at(t_s, **{name: values[t_s] for name, values in table.items()}))
    reading = aggregator.close(EnergyReading(S, 1160.0))
    expected = {name: row for name, (_, _, row) in table.items() if row is not None}
    counted = {"energy_j": 160.0, "energy_method": "counter"}
    assert reading.fields == {**expected, **counted, "power_max_w": 310.0, "processes": 2}
    assert (reading.device, reading.start_ns, reading.end_ns) == ("gpu0", 0, S)
    assert reading.fields.keys() <= SCHEMA["device"].fields.keys()
    assert aggregator.close() is None


def test_what_is_not_known_is_absent_and_never_zero():
    aggregator = Aggregator("cpu")
    aggregator.restart(EnergyReading(0, 5.0, "rapl"))
    aggregator.add(at(0, temp_c=40.0), at(1, temp_c=41.0, power_w=0.0))
    fields = aggregator.close(EnergyReading(S, 5.0, "rapl")).fields
    assert fields == {"temp_c": 41.0, "power_w": 0.0, "power_max_w": 0.0}
    # Polled power of a modelled counter is modelled.
    aggregator.restart(EnergyReading(0, 0.0, "modelled"))
    aggregator.add(at(0, power_w=2.0), at(1, power_w=2.0))
    assert aggregator.close().fields["energy_method"] == "modelled"


POWER_W, STEP_S = 300.0, 0.1


def stepped(t_s):
    """A reading of a counter of 300 W that advances every 0.1 s."""
    return EnergyReading(round(t_s * S), int(t_s / STEP_S + 1e-6) * STEP_S * POWER_W)


def sampled_rows(aggregator, rows, start_s=0.0):
    """The readings of rows, each given as sample times and the time of its counter reading."""
    aggregator.restart(stepped(start_s))
    for times_s, counter_s in rows:
        aggregator.add(*(at(t_s, power_w=POWER_W) for t_s in times_s))
        yield aggregator.close(None if counter_s is None else stepped(counter_s))


def test_row_of_a_counter_that_was_read_late_or_early_is_that_of_its_samples():
    for rows, energies_j in (
        ([([0, 10], 20), ([21], 21)], [3000, 3300]),
        ([([0.2, 10], 9.8), ([20], 20)], [2940, 3000]),
    ):
        readings = sampled_rows(Aggregator("gpu0"), rows)
        assert [each.fields["energy_j"] for each in readings] == pytest.approx(energies_j)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.02, 0.05, 0.25, 1.0, 10.0]), min_size=1, max_size=4),
            # Of the counter: not read, read before the last sample, or after a stall.
            st.one_of(st.none(), st.floats(-0.2, 0.0), st.floats(0.0, 12.0)),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_instant_is_counted_once(intervals):
    t_s, rows = 5.0, [([5.0], 5.0)]
    for steps_s, lag_s in intervals:
        times_s = []
        for step_s in steps_s:
            t_s += step_s
            times_s.append(t_s)
        rows.append((times_s, None if lag_s is None else max(rows[-1][1] or 5.0, t_s + lag_s)))
        t_s += max(0.0, lag_s or 0.0)
    readings = list(sampled_rows(Aggregator("gpu0"), rows, start_s=5.0))
    energies_j = [reading.fields.get("energy_j", 0.0) for reading in readings]
    true_j = POWER_W * (rows[-1][0][-1] - 5.0)
    # The counter lags by at most one step, and is read up to 10 ms from a sample, at each end.
    assert sum(energies_j) == pytest.approx(true_j, abs=POWER_W * (STEP_S + 0.02))
    assert all(energy_j >= 0 for energy_j in energies_j)
