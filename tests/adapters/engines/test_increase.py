"""The increase of counters: resets per series, restarts, and series that disappear and return."""

from costprobe.adapters.engines.scrape import CounterReading, MeasureSeries, SeriesValue
from costprobe.serving.meter import CounterHistory
from hypothesis import given
from hypothesis import strategies as st


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


def out(words="", *, restarted=False, **increases):
    """What a reading adds, whether it shows a restart, and words of its problem."""
    return increases, restarted, words


BEGAN = reading(started_s=50, a=10)
EXPLICIT = {"counts_begin_at_zero": False}
TOGETHER = {"reset_together": "process"}
GONE = "a series of requests_total disappeared"
LIVE = reading(counter="live_total", a=130)
# Readings, and what each of them after the first, which is the baseline, adds.
STEPS = (
    ([reading(a=1000), reading(a=1007)], [out(a=7)]),
    # The sum rises from 110 to 120 and hides the reset of b.
    ([reading(a=10, b=100), reading(a=90, b=30)], [out(a=80, b=30, restarted=True)]),
    # Restarted, with as many requests as before or more: a model's other counter fell.
    ([reading(a=10, b=100), reading(a=90, b=30)], [out(a=90, b=30, restarted=True)], TOGETHER),
    # A process with higher counts than the one before it.
    ([BEGAN, reading(started_s=90, a=25)], [out(a=25, restarted=True)]),
    # Its start time by another wall clock.
    ([BEGAN, reading(started_s=50.01, a=25)], [out(a=15)]),
    ([BEGAN, reading(started_s=51.0, a=25)], [out(a=15)]),
    # TorchServe's page is empty until the first request: 7 of now are not the 7 of before.
    (
        [reading(a=7, b=2), reading(), reading(a=7), reading(a=7, b=1)],
        [out(restarted=True), out(a=7), out(b=1)],
        TOGETHER,
    ),
    # A creation time after the last reading.
    (
        [reading(a=10, created={"a": 5.0}), reading(a=25, created={"a": 60.0})],
        [out(a=25, restarted=True)],
    ),
    ([reading(a=10), reading(a=11, b=4)], [out(a=1, b=4)]),
    # Without an earlier reading of the server, b may have counted for a year before.
    ([reading(a=10), reading(a=11, b=4)], [out(a=1)], EXPLICIT),
    # Every non-zero series decreased, or the start time shows it: the process restarted.
    ([BEGAN, reading(a=3, b=4)], [out(a=3, b=4, restarted=True)], EXPLICIT),
    ([BEGAN, reading(started_s=90, a=11, b=4)], [out(a=11, b=4, restarted=True)], EXPLICIT),
    ([BEGAN, reading(a=11, b=4, created={"b": 40.0})], [out(a=1, b=4)], EXPLICIT),
    # A series that disappears is kept, unless its model was loaded again meanwhile.
    (
        [reading(a=1, b=50), reading(a=2), reading(a=3, b=58), reading(a=3, b=59)],
        [out(GONE, a=1), out(f"{GONE} for a while", a=1, b=8), out(b=1)],
    ),
    ([reading(a=1, b=50), reading(a=2), reading(a=3, b=6)], [out(GONE, a=1), out(a=1, b=6)]),
    # A change of the counter is not counted twice.
    (
        [reading(counter="finished_total", a=100), LIVE, reading(counter="live_total", a=140)],
        [out("requests is counted by live_total now"), out(a=10)],
    ),
)


def test_increases_are_those_of_each_series_since_the_last_reading():
    wrong = []
    for readings, expected, *options in STEPS:
        found = steps(*readings, **dict(*options))
        assert grown(found[0]) == {}
        for step, (increases, restarted, words) in zip(found[1:], expected, strict=True):
            if (
                (grown(step), step.restarted) != (increases, restarted)
                or bool(words) != bool(step.problems)
                or words not in "".join(step.problems)
            ):
                wrong.append((increases, grown(step), step.restarted, step.problems))
    assert wrong == []


def test_process_that_restarted_at_once_after_a_reading():
    """Linux counts ticks from the boot, whose time is in whole seconds: up to a second too early."""
    for started_s, expected in ((-0.99, {"a": 25}), (-1.1, {})):
        _, step = steps(reading(started_s=-50.0, a=10), reading(started_s=started_s, a=25))
        assert (grown(step), step.restarted) == (expected, bool(expected)), started_s


def test_other_counters_of_a_reset_model_count_from_zero():
    def with_time(requests, seconds):
        one = {(("model", "a"),): SeriesValue(seconds, "a", None)}
        times = {"compute_request_s": MeasureSeries("seconds_sum", one)}
        return CounterReading({**reading(a=requests, b=5).measures, **times}, (), None)

    for group, expected in (("none", 10), ("model", 17)):
        _, step = steps(with_time(7, 2.5), with_time(17, 1.5), reset_together=group)
        increases = step.increases
        assert (increases["requests", "a"], increases["requests", "b"]) == (expected, 0), group


def test_several_processes_at_one_url_are_detected():
    _, newer, older, again, same, later = steps(
        reading(started_s=50, a=10),
        reading(started_s=90, a=5),
        reading(started_s=50, a=12),
        reading(started_s=90, a=6),
        reading(started_s=90, a=8),
        reading(started_s=450, a=3),
    )
    assert newer.restarted
    # Also while the same one answers twice.
    for step in (older, again, same):
        assert "give each replica its own url" in step.problems[0]
        assert grown(step) == {}
    assert (grown(later), later.restarted) == ({"a": 3}, True)


def test_forked_workers_are_detected_with_the_first_change():
    for one, other in (
        # Workers that were forked at nearly the same time, before the first reading.
        *(({"started_s": -50.0}, {"started_s": at_s}) for at_s in (-49.96, -49.0, -47.0)),
        # Without a start time: by the creation times of their series.
        ({"created": {"a": -50.0}}, {"created": {"a": -49.96}}),
    ):
        both = [reading(a=300, **one), reading(a=100, **other)]
        for step in steps(*both, *both)[1:]:
            assert "let the server run with one worker" in step.problems[0], other
            assert grown(step) == {}, other


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
