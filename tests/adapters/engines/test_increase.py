"""The increase of counters: resets per series, restarts, and series that disappear and return."""

import json

from costprobe.adapters.engines.scrape import CounterReading, MeasureSeries, SeriesValue
from costprobe.serving.meter import CounterHistory
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes


def reading(started_s=None, counter="requests_total", created=(), **values):
    """Return series by model name."""
    series = {
        (("model", model),): SeriesValue(float(value), model, dict(created).get(model))
        for model, value in values.items()
    }
    return CounterReading({"requests": MeasureSeries(counter, series)}, (), started_s)


def steps(*readings, counts_begin_at_zero=True, reset_together="none"):
    history = CounterHistory(
        counts_begin_at_zero=counts_begin_at_zero, reset_together=reset_together
    )
    # A hundred in the 100 s between two readings were seen before.
    history._fastest["requests"] = 1.0  # noqa: SLF001 - in place of those readings
    return [history.take(one, utc_s=100.0 * i) for i, one in enumerate(readings)]


def grown(step):
    return {model: value for (_, model), value in step.increases.items() if value}


def test_increases_are_those_of_each_series_since_the_last_reading():
    """The record has what each reading adds, whether it shows a restart, and its problems."""

    def added(text):
        case = json.loads(text)
        case.pop("case")
        readings = [reading(**values) for values in case.pop("readings")]
        return [[grown(step), step.restarted, step.problems] for step in steps(*readings, **case)]

    check_outcomes("counter_steps.json", added)


def test_other_counters_of_a_reset_model_count_from_zero():
    def with_time(requests, seconds):
        one = {(("model", "a"),): SeriesValue(seconds, "a", None)}
        times = {"compute_request_s": MeasureSeries("seconds_sum", one)}
        return CounterReading({**reading(a=requests, b=5).measures, **times}, (), None)

    for group, expected in (("none", 10), ("model", 17)):
        _, step = steps(with_time(7, 2.5), with_time(17, 1.5), reset_together=group)
        increases = step.increases
        assert (increases["requests", "a"], increases["requests", "b"]) == (expected, 0), group


def test_processes_that_no_longer_alternate_are_read_again():
    both = [reading(started_s=-50, a=300), reading(started_s=-47, a=100)]
    alone = [reading(started_s=-47, a=100 + n) for n in range(1, 40)]
    found = steps(*both, *alone)
    assert sum(bool(step.problems) for step in found) == 20
    assert not found[-1].problems
    assert grown(found[-1]) == {"a": 1}


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=6), max_size=6
    )
)
def test_increase_is_never_more_than_what_was_served(lives):
    """For any restarts and reading times of a process that exposes its start time."""
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


def test_worker_with_nearly_as_many_requests_is_another_one():
    """Not a restart: it shows no fewer requests than a reading before the last one."""
    history = CounterHistory(counts_begin_at_zero=True)
    found = [history.take(reading(a=a), utc_s=15.0 * i) for i, a in enumerate((100, 200, 150, 300))]
    assert grown(found[1]) == {"a": 100}
    assert [step.is_doubtful for step in found] == [False, False, True, True]
    assert grown(found[2]) == grown(found[3]) == {}
