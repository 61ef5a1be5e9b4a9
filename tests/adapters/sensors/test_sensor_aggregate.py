import json

import pytest
from costprobe.adapters.sensors.child.device_thread import Aggregator
from costprobe.adapters.sensors.messages import EnergyReading, Sample
from costprobe.core.schema import SCHEMA
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes

S = 10**9


def at(t_s, **values):
    return Sample(t_ns=int(t_s * S), **values)


def test_samples_become_rows_as_the_series_defines_them():
    """Of readings of a counter that begin and end rows, and samples; see `record_files`."""

    def rows(text):
        aggregator, found = Aggregator("gpu0"), []
        for step, *values in json.loads(text)[1:]:
            if step == "add":
                (sample,) = values
                if "pids" in sample:
                    sample["pids"] = tuple(sample["pids"])
                aggregator.add(at(sample.pop("t_s"), **sample))
                continue
            counter = EnergyReading(values[0] * S, *values[1:]) if values else None
            if step == "restart":
                aggregator.restart(counter)
            else:
                row = aggregator.close(counter)
                found.append(row and [row.device, row.start_ns, row.end_ns, row.fields])
                assert not row or row.fields.keys() <= SCHEMA["device"].fields.keys()
        return found

    check_outcomes("aggregated_samples.json", rows)


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
