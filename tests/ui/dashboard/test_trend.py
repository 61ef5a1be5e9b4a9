"""Groups, names of lines, and series that continue under another plan or label."""

from costprobe.adapters.store.read import SeriesValues
from costprobe.ui.dashboard.charts import line_names, most_changed, series_names
from costprobe.ui.dashboard.parameters import TimeRange, TrendQuery
from costprobe.ui.dashboard.trend import grouped, is_mixed, thin
from costprobe.unit_costs.now import continued_series

S = 10**9


def series(tags, *rows):
    made = SeriesValues(tags, [], [])
    for time_s, value in rows:
        made.add(time_s * S, value)
    return made


def test_group_is_the_median_of_its_series_with_their_extremes():
    query = TrendQuery("cost", "cost_per_inference", TimeRange(0, 100 * S), 10, group="model")
    tags = {"probe": "p", "currency": "EUR"}
    # Each interval has 10 s. The second series has no sample in the third one: its last value counts.
    members = [
        series({**tags, "device": "gpu0"}, (5, 1.0), (15, 1.0), (25, 1.0), (35, 1.0)),
        series({**tags, "device": "gpu1"}, (6, 2.0), (16, 2.0), (36, 4.0)),
        series({**tags, "device": "gpu2"}, (7, 9.0), (17, 9.0), (27, 9.0)),
        series({**tags, "probe": "q", "device": "gpu2"}, (8, 70.0)),
    ]
    p, q = grouped([thin(one, query) for one in members], query)
    assert (p.tags, p.members, q.members) == (tags, 3, 1)
    assert p.times_ns == [7 * S, 17 * S, 27 * S, 36 * S]
    assert (p.values, p.lows, p.highs) == ([2.0, 2.0, 2.0, 4.0], [1.0] * 4, [9.0] * 4)
    assert line_names([p, q], "model") == ["p (3 devices)", "gpu2 q"]
    assert not is_mixed([p, q], query)


def test_names_of_lines_are_short_and_distinct():
    own = {"device": "gpu0", "probe": "p", "plan": "owned", "currency": "EUR"}
    cases = [
        ([own], ["gpu0 p"]),
        ([own, {**own, "batch": "8"}], ["gpu0 p", "gpu0 p batch 8"]),
        ([own, {**own, "currency": "USD"}], ["gpu0 p EUR", "gpu0 p USD"]),
        ([own, {**own, "team": "a"}], ["gpu0 p", "gpu0 p team=a"]),
        ([{"model": "H200"}], ["all"]),
    ]
    assert [series_names(tags) for tags, _ in cases] == [names for _, names in cases]
    lines = [[1.0] * 20 + [1.0 + number / 100] * 20 for number in range(12)]
    assert most_changed(lines) == set(range(4, 12))


def test_series_continue_under_another_plan_or_label():
    tags = {"device": "gpu0", "probe": "p", "basis": "probe", "currency": "EUR"}
    on_demand = series({**tags, "plan": "on_demand"}, (1, 1.0), (2, 1.1))
    reserved = series({**tags, "plan": "reserved", "team": "search"}, (3, 0.6), (4, 0.7))
    (one,) = continued_series([reserved, on_demand])
    assert one.series.times_ns == [S, 2 * S, 3 * S, 4 * S]
    assert one.series.values == [1.0, 1.1, 0.6, 0.7]
    assert one.series.tags["plan"] == "reserved"
    at_ns = 3 * S
    assert one.changes == [(at_ns, "plan", "on_demand", "reserved"), (at_ns, "team", "", "search")]
    # Another currency or batch is not the same, and alternating rows are of two things.
    other = series({**tags, "plan": "spot", "currency": "USD"}, (5, 1.0))
    assert len(continued_series([reserved, on_demand, other])) == 2
    teams = [
        series({**tags, "team": team}, *((2 * number + start, 1.0) for number in range(9)))
        for start, team in enumerate(("a", "b"))
    ]
    assert len(continued_series(teams)) == 2
