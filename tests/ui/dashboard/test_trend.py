"""Changes from a baseline, groups, names of lines, and series that continue under another plan or label."""

import pytest
from costprobe.adapters.store.read import SeriesValues
from costprobe.ui.dashboard.charts import line_names, most_changed, series_names
from costprobe.ui.dashboard.parameters import TimeRange, TrendQuery
from costprobe.ui.dashboard.trend import grouped, is_mixed, thin
from costprobe.unit_costs.now import continued_series
from dashboard_samples import cost_rows, many_rows, row, served_rows

S = 10**9
HOUR_NS = 3600 * S
PATH = "/api/trend?field=cost.cost_per_inference"


def series(tags, *rows):
    made = SeriesValues(tags, [], [])
    for time_s, value in rows:
        made.add(time_s * S, value)
    return made


def test_change_has_the_same_base_in_every_range(kept_page):
    changes = {}
    for since in ("2h", "6h", "24h"):
        found = kept_page.json(f"{PATH}&basis=probe&scale=change&since={since}")
        assert (found["scale"], found["unit"]) == ("change", "")
        amounts = kept_page.json(f"{PATH}&basis=probe&since={since}")["series"]
        for one, own in zip(found["series"], amounts, strict=True):
            # Percent of the base give the amount again.
            again = [one["base"] * (1 + pct / 100) for pct in one["values"]]
            assert again == pytest.approx(own["values"])
            newest = one["tags"]["device"], one["times_ms"][-1]
            changes.setdefault(newest, set()).add(round(one["values"][-1], 9))
    # Cost rises from 1 to 1.287: the newest is 12.5 % above the median.
    wanted = pytest.approx((1.287 / 1.1435 - 1) * 100, rel=1e-6)
    assert [list(found) for found in changes.values()] == [[wanted], [wanted]]


def test_automatic_scale_is_change_only_for_different_magnitudes(page, store, clock):
    found = page.json(f"{PATH}&scale=auto")
    assert (found["scale"], found["axis"]) == ("amount", "cost per M inferences")
    amount = {"scale_samples": 1_000_000, "before": "€", "after": "", "unit": "per M inferences"}
    assert [one["amount"] for one in found["series"]] == [amount, amount]
    # Far above a probe's cost; its baseline is the ratio of sums.
    store.append(served_rows(clock.time_ns() - S))
    found = page.json(f"{PATH}&scale=auto")
    why = "Shown as change, because the amounts differ too much for one axis."
    assert (found["scale"], found["notes"]) == ("change", [why])
    models = {one["tags"].get("served_model"): one for one in found["series"]}
    assert models["base"]["base"] == pytest.approx(2e-4)
    assert models["base"]["amount"]["unit"] == "per 1,000 inferences"
    # A range in which a series has no row of the last 30 days.
    old_ns = clock.time_ns() - 40 * 24 * HOUR_NS
    own = {"device": "gpu7", "probe": "old", "basis": "probe", "currency": "EUR"}
    old = row("cost", old_ns, {"cost_per_inference": 1e-6}, **own)
    store.append([*cost_rows("gpu1", 1, old_ns)[1:], old])
    span = "since=42d&until=35d&scale=change"
    found = page.json(f"{PATH}&{span}&device=gpu1")
    assert (len(found["series"]), found["without_base"]) == (1, 0)
    found = page.json(f"{PATH}&{span}&device=gpu7")
    assert (found["series"], found["without_base"]) == ([], 1)
    assert found["none"].startswith("No change to draw")


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


def test_line_of_a_model_has_its_outliers_beside_it(page, store, clock):
    pair = page.json(f"{PATH}&basis=probe&group=model")["series"]
    assert [one["name"] for one in pair] == ["encoder (2 devices)", "gpu1 encoder, outlier"]
    store.append(many_rows(clock.time_ns()))
    found = page.json(f"{PATH}&probe=many&group=model")
    assert [one["name"] for one in found["series"]] == ["many (12 devices)", "gpu11 many, outlier"]
    found = page.json(f"{PATH}&probe=many")
    first = [one["name"] for one in found["series"] if one["is_first"]]
    assert (len(first), "gpu11 many" in first) == (8, True)
    assert found["first_note"].startswith("8 of 12 lines are shown, those that changed most")
    none = page.json(f"{PATH}&device=gpu99&basis=probe")["none"]
    assert none == "No cost of an inference, probes in {range} for gpu99."


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


def test_devices_with_several_models_are_compared_by_change(page, store, clock):
    found = page.json(f"{PATH}&group=device&scale=amount")
    names = [one["tags"]["device"] for one in found["series"]]
    assert (found["scale"], names) == ("amount", ["gpu0", "gpu1"])
    store.append(served_rows(clock.time_ns() - S))
    found = page.json(f"{PATH}&group=device&scale=amount&device=gpu0")
    why = "Shown as change, because models of a device have different costs."
    assert (found["scale"], found["notes"]) == ("change", [why])
    # Costs on two bases are not mixed; of the service there are three models.
    assert sorted(one["members"] for one in found["series"]) == [1, 3]


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


def test_change_of_plan_is_in_one_series_of_the_trend(page, store, clock):
    rows = cost_rows("gpu0", 300, clock.time_ns() - S, plan="spot")
    store.append(rows)
    found = page.json(f"{PATH}&device=gpu0&basis=probe")
    (one,) = found["series"]
    (change,) = one["changes"]
    assert (change["tag"], change["before"], change["after"]) == ("plan", "owned", "spot")
    assert change["time_ms"] == rows[1].time_ns // 10**6
    assert one["values"][-1] == rows[1].fields["cost_per_inference"]
    assert found["notes"][0].startswith("gpu0 encoder: plan owned to spot on 2026-")
