"""Changes from a baseline, groups, and series that continue under another plan or label."""

import pytest
from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.schema import make_point
from costprobe.ui.dashboard.parameters import TimeRange, TrendQuery
from costprobe.ui.dashboard.trend import grouped, is_mixed, thin
from costprobe.unit_costs.now import continued_series
from dashboard_samples import cost_rows, served_rows

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
        assert found["scale"] == "change"
        amounts = kept_page.json(f"{PATH}&basis=probe&since={since}")["series"]
        for one, own in zip(found["series"], amounts, strict=True):
            # Percent of the base give the amount again.
            assert [one["base"] * (1 + pct / 100) for pct in one["values"]] == pytest.approx(
                own["values"]
            )
            key = one["tags"]["device"]
            changes.setdefault(key, {}).setdefault(one["times_ms"][-1], set()).add(
                round(one["values"][-1], 9)
            )
    # Cost rises from 1 to 1.287: the newest is 12.5 % above the median.
    for of_device in changes.values():
        ((change,),) = of_device.values()
        assert change == pytest.approx((1.287 / 1.1435 - 1) * 100, rel=1e-6)


def test_automatic_scale_is_change_only_for_different_magnitudes(page, store, clock):
    assert page.json(f"{PATH}&scale=auto")["scale"] == "amount"
    # Far above a probe's cost; its baseline is the ratio of sums.
    store.append(served_rows(clock.time_ns() - S))
    found = page.json(f"{PATH}&scale=auto")
    assert found["scale"] == "change"
    bases = {one["tags"].get("served_model"): one["base"] for one in found["series"]}
    assert bases["base"] == pytest.approx(2e-4)
    # A range in which a series has no row of the last 30 days.
    old_ns = clock.time_ns() - 40 * 24 * HOUR_NS
    store.append(cost_rows("gpu1", 1, old_ns)[1:])
    span = "since=42d&until=35d&scale=change"
    found = page.json(f"{PATH}&{span}&device=gpu1")
    assert (len(found["series"]), found["without_base"]) == (1, 0)
    tags = {"device": "gpu7", "probe": "old", "basis": "probe", "currency": "EUR"}
    store.append([make_point("cost", tags, {"cost_per_inference": 1e-6}, old_ns)])
    found = page.json(f"{PATH}&{span}&device=gpu7")
    assert (found["series"], found["without_base"]) == ([], 1)


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
    assert (q.values, is_mixed([p, q], query)) == ([70.0], False)


def test_device_of_several_models_is_a_change(kept_page, page, store, clock):
    found = kept_page.json(f"{PATH}&group=device&scale=amount")
    assert (found["scale"], [one["tags"]["device"] for one in found["series"]]) == (
        "amount",
        ["gpu0", "gpu1"],
    )
    store.append(served_rows(clock.time_ns() - S))
    found = page.json(f"{PATH}&group=device&scale=amount&device=gpu0")
    assert found["scale"] == "change"
    # Costs on two bases are not mixed; of the service there are three models.
    assert sorted(one["members"] for one in found["series"]) == [1, 3]


def test_series_continue_under_another_plan_or_label():
    tags = {"device": "gpu0", "probe": "p", "basis": "probe", "currency": "EUR"}
    on_demand = series({**tags, "plan": "on_demand"}, (1, 1.0), (2, 1.1))
    reserved = series({**tags, "plan": "reserved", "team": "search"}, (3, 0.6), (4, 0.7))
    (one,) = continued_series([reserved, on_demand])
    assert (one.series.times_ns, one.series.values) == (
        [S, 2 * S, 3 * S, 4 * S],
        [1.0, 1.1, 0.6, 0.7],
    )
    assert one.series.tags["plan"] == "reserved"
    assert one.changes == [
        (3 * S, "plan", "on_demand", "reserved"),
        (3 * S, "team", "", "search"),
    ]
    # Another currency or batch is not the same, and alternating rows are of two things.
    other = series({**tags, "plan": "spot", "currency": "USD"}, (5, 1.0))
    assert len(continued_series([reserved, on_demand, other])) == 2
    teams = [
        series({**tags, "team": team}, *((2 * number + start, 1.0) for number in range(9)))
        for start, team in enumerate(("a", "b"))
    ]
    assert len(continued_series(teams)) == 2


def test_change_of_plan_is_in_one_series_of_the_trend(page, store, clock):
    probe, cost = cost_rows("gpu0", 300, clock.time_ns() - S)
    row = make_point("cost", {**cost.tags, "plan": "spot"}, dict(cost.fields), cost.time_ns)
    store.append([probe, row])
    (one,) = page.json(f"{PATH}&device=gpu0&basis=probe")["series"]
    (change,) = one["changes"]
    assert (change["tag"], change["before"], change["after"]) == ("plan", "owned", "spot")
    assert (change["time_ms"], one["values"][-1]) == (
        cost.time_ns // 10**6,
        row.fields["cost_per_inference"],
    )


def test_a_year_of_twelve_series_is_bounded(page, store, clock):
    now_ns = clock.time_ns()
    tags = {"probe": "p", "basis": "probe", "currency": "EUR"}
    for number in range(12):
        of = {**tags, "device": f"gpu{number}"}
        store.append(
            make_point("cost", of, {"cost_per_inference": 1e-6}, now_ns - hour * HOUR_NS)
            for hour in range(365 * 24, 0, -5)
        )
    store.settle(now_ns, limit=10**6)
    found = page.json(f"{PATH}&since=365d&probe=p&scale=change&rows=1000")
    assert (len(found["series"]), found["hourly"]) == (12, True)
    assert all(
        one["times_ms"][-1] - one["times_ms"][0] > 364 * 86_400_000 for one in found["series"]
    )
    reader = StoreReader.open(store.path)
    assert len(reader.series("cost", {"probe": "p"})) == 12
    reader.close()


def test_invalid_choices_are_rejected_with_the_valid_ones(kept_page):
    for name, choices in (
        ("group", "series, model, device"),
        ("scale", "amount, change, auto"),
    ):
        assert f"{name}: 'x' is not one of {choices}" in kept_page.error(f"{PATH}&{name}=x")
        assert "given twice" in kept_page.error(f"{PATH}&{name}=x&{name}=y")
