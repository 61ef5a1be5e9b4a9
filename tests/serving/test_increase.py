"""How much counters grew: resets by series, restarts, and series that come and go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.serving.increase import CounterHistory
from agent.serving.reading import Counted, Reading, Value


def reading(started_s=None, counter="requests_total", created=(), **values):
    """Series by the name of their model."""
    series = {
        (("model", model),): Value(float(value), model, dict(created).get(model))
        for model, value in values.items()
    }
    return Reading({"requests": Counted(counter, series)}, (), started_s)


def steps(*readings, counts_begin_at_zero=True):
    history = CounterHistory(counts_begin_at_zero=counts_begin_at_zero)
    return [history.take(one, utc_s=100.0 * i) for i, one in enumerate(readings)]


def grown(step):
    return {model: value for (_, model), value in step.increases.items() if value}


def test_the_first_reading_is_what_the_next_is_held_against():
    first, second = steps(reading(a=1000), reading(a=1007))
    assert grown(first) == {}
    assert grown(second) == {"a": 7}
    assert not second.problems
    assert not second.restarted


def test_a_reset_is_seen_by_series_before_anything_is_summed():
    # The sum rises from 110 to 120 and hides that b began anew.
    _, step = steps(reading(a=10, b=100), reading(a=90, b=30))
    assert grown(step) == {"a": 80, "b": 30}
    assert step.restarted
    assert not step.problems


def test_a_process_that_began_anew_and_overtook_the_old_counts_from_zero():
    _, step = steps(reading(started_s=50, a=10), reading(started_s=90, a=25))
    assert grown(step) == {"a": 25}
    assert step.restarted


def test_a_start_time_that_was_corrected_is_no_restart():
    _, step = steps(reading(started_s=50.0, a=10), reading(started_s=50.4, a=25))
    assert grown(step) == {"a": 15}
    assert not step.restarted


def test_a_series_that_says_it_was_created_anew_counts_from_zero():
    before, after = reading(a=10, created={"a": 5.0}), reading(a=25, created={"a": 60.0})
    assert grown(steps(before, after)[1]) == {"a": 25}


def test_a_series_that_comes_with_its_first_count():
    readings = (reading(a=10), reading(a=11, b=4))
    assert grown(steps(*readings)[1]) == {"a": 1, "b": 4}
    # Of a server that nothing is known of, b may have counted for a year behind another name.
    assert grown(steps(*readings, counts_begin_at_zero=False)[1]) == {"a": 1}


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        # Every series that had counted fell: the process began anew.
        (reading(a=3, b=4), {"a": 3, "b": 4}),
        # It says so.
        (reading(started_s=90, a=11, b=4), {"a": 11, "b": 4}),
        # b says that it is younger than the last reading, at 0 s.
        (reading(a=11, b=4, created={"b": 40.0}), {"a": 1, "b": 4}),
    ],
)
def test_a_new_series_counts_from_zero_where_something_says_so(second, expected):
    first = reading(started_s=50, a=10)
    assert grown(steps(first, second, counts_begin_at_zero=False)[1]) == expected


def test_a_series_that_is_gone_is_told_and_remembered():
    _, gone, back, _ = steps(
        reading(a=1, b=50), reading(a=2), reading(a=3, b=58), reading(a=3, b=59)
    )
    assert gone.problems == ("a series of requests_total is gone",)
    assert grown(back) == {"a": 1, "b": 8}
    assert back.problems == ("a series of requests_total was away for a while",)


def test_a_model_that_was_loaded_again_counts_from_zero():
    _, _, back = steps(reading(a=1, b=50), reading(a=2), reading(a=3, b=6))
    assert grown(back) == {"a": 1, "b": 6}
    assert not back.problems


def test_a_measure_that_is_read_from_another_counter_is_not_counted_twice():
    _, changed, after = steps(
        reading(counter="finished_total", a=100),
        reading(counter="live_total", a=130),
        reading(counter="live_total", a=140),
    )
    assert grown(changed) == {}
    assert "requests is counted by live_total now" in changed.problems
    assert grown(after) == {"a": 10}
    assert not after.problems


def test_several_processes_behind_one_address_are_found_out_each_time():
    _, newer, older, again, same, later = steps(
        reading(started_s=50, a=10),
        reading(started_s=90, a=5),
        reading(started_s=50, a=12),
        reading(started_s=90, a=6),
        reading(started_s=90, a=8),
        reading(started_s=120, a=3),
    )
    assert newer.restarted
    for step in (older, again):
        assert "give each replica its own address" in step.problems[0]
        assert grown(step) == {}
    assert (grown(same), same.problems) == ({"a": 2}, ())
    assert (grown(later), later.restarted) == ({"a": 3}, True)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=6), max_size=6
    )
)
def test_what_was_read_is_never_more_than_what_was_served(lives):
    """Over any lives of a process, read at any time, in which it tells when it began."""
    history = CounterHistory(counts_begin_at_zero=True)
    served, counted = 0, 0.0
    history.take(reading(started_s=1.0), 0.0)
    for life, work in enumerate(lives, start=1):
        counters = {}
        for model, count in work:
            counters[model] = counters.get(model, 0) + count
            served += count
            step = history.take(reading(started_s=100.0 * life, **counters), 0.0)
            counted += sum(step.increases.values())
    # It was read after each request: nothing is lost either.
    assert counted == served
