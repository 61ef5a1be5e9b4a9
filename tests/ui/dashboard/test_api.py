"""The dashboard's JSON API returns the stored numbers and rejects invalid requests."""

import json
from datetime import UTC, datetime

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import make_point
from dashboard_samples import (
    BUDGETS,
    DEVICES,
    LOADS,
    cost_rows,
    labelled_rows,
    planned,
    served_rows,
    tenant_rows,
)
from fakes.command import called
from fakes.number_names import is_vocabulary, numbers_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ALWAYS = (-(2**63), 2**63 - 1)


def rows_of(store, measurement):
    reader = StoreReader.open(store.path)
    try:
        return list(reader.points(measurement, *ALWAYS))
    finally:
        reader.close()


def test_now_returns_the_newest_row_of_each_series(kept_page, kept_store):
    found = kept_page.json("/api/now")
    for measurement, name in (("cost", "costs"), ("device", "devices"), ("probe", "probes")):
        newest = {}
        for row in rows_of(kept_store, measurement):
            newest[row.tags["device"]] = row
        shown = {entry["tags"]["device"]: entry for entry in found[name]}
        assert shown.keys() == set(DEVICES)
        for device, row in newest.items():
            assert shown[device]["fields"] == dict(row.fields)
            assert shown[device]["time_ms"] == row.time_ns // 10**6
    (alert,) = found["alerts"]
    assert (alert["name"], alert["cause"]) == ("drift", "thermal throttling")
    assert alert["symptoms"] == ["latency +8 %", "cost +8.5 %"]
    assert found["daemon"]["running"] is True
    assert [fault["name"] for fault in found["faults"]] == ["sink_behind"]


def test_service_and_each_of_its_models_have_their_own_newest_row(page, store, clock):
    store.append(served_rows(clock.time_ns() - 10**9))
    shown = {
        entry["tags"].get("served_model"): entry["fields"]["cost_per_inference"]
        for entry in page.json("/api/now")["costs"]
        if entry["tags"].get("service") == "chat"
    }
    assert shown == {None: 3e-4, "base": 2e-4, "tuned": 9e-4}


def test_trend_is_downsampled_with_its_minima_and_maxima(kept_page, kept_store):
    found = kept_page.json("/api/trend?field=device.power_w&since=24h&points=100")
    stored = {
        device: [
            r.fields["power_w"] for r in rows_of(kept_store, "device") if r.tags["device"] == device
        ]
        for device in DEVICES
    }
    for series in found["series"]:
        own = stored[series["tags"]["device"]]
        assert len(series["values"]) <= 100
        assert series["samples"] == len(own)
        assert (min(series["lows"]), max(series["highs"])) == (min(own), max(own))
        assert series["times_ms"] == sorted(series["times_ms"])
        for low, value, high in zip(series["lows"], series["values"], series["highs"], strict=True):
            assert low <= value <= high


def test_downsampled_cost_of_a_service_is_a_ratio_of_sums(page, store, clock):
    now_ns = clock.time_ns()
    tags = {"device": "gpu0", "service": "s", "basis": "serving", "currency": "EUR"}
    # A busy window, one with few inferences, and an idle one, in turn.
    counts = [(1000.0, 10.0, 0.0)[i % 3] for i in range(600)]
    rows = []
    for i, inferences in enumerate(counts):
        fields = {"cost_total": 5.0, "inferences": inferences}
        if inferences:
            fields["cost_per_inference"] = 5.0 / inferences
        rows.append(make_point("cost", tags, fields, now_ns - (600 - i) * 60 * 10**9))
    store.append(rows)
    found = page.json("/api/trend?field=cost.cost_per_inference&since=10h&points=20&service=s")
    (series,) = found["series"]
    assert len(series["values"]) == 20
    # Thirty windows each: ten of each kind.
    assert series["values"][3:-3] == pytest.approx([15.0 / 1010] * 14, rel=0.1)
    assert (min(series["lows"]), max(series["highs"])) == (0.005, 0.5)


def test_trend_above_the_row_limit_is_by_the_hour(page, store, clock):
    now_ns = clock.time_ns()
    times_ns = range(now_ns - 86_400 * NS_PER_S, now_ns, 60 * NS_PER_S)
    store.append(Point("device", {"device": "gpu7"}, {"power_w": 9.0}, at) for at in times_ns)
    store.settle(now_ns, limit=10**4)
    path = "/api/trend?field=device.power_w&since=24h&device=gpu7"
    assert page.json(f"{path}&rows=5000")["hourly"] is False
    found = page.json(f"{path}&rows=300")
    assert found["hourly"] is True
    (series,) = found["series"]
    # Hours, and the minutes of those that have not settled.
    assert 21 + 120 <= len(series["values"]) <= 22 + 180
    assert set(series["values"]) == {9.0}


def test_short_trend_is_complete_and_filtered_by_tag(kept_page, kept_store):
    path = "/api/trend?field=cost.cost_per_inference&since=2h&device=gpu1"
    (series,) = kept_page.json(path)["series"]
    own = [row for row in rows_of(kept_store, "cost") if row.tags["device"] == "gpu1"]
    assert (
        series["values"]
        == [row.fields["cost_per_inference"] for row in own][-len(series["values"]) :]
    )
    assert 20 <= len(series["values"]) <= 24


def test_numbers_have_the_names_of_the_series(kept_page):
    paths = (
        "now",
        "trend?field=device.power_w&since=2h",
        "marks?since=24h",
        "incidents?since=24h",
        "sweeps",
        "overview",
        "spend",
        "budgets",
    )
    offenders = {
        f"/api/{path}: {'.'.join(names)}"
        for path in paths
        for names in numbers_of(kept_page.json(f"/api/{path}"))
        if not is_vocabulary(names)
    }
    assert "\n".join(sorted(offenders)) == ""


def test_marks_incidents_and_sweeps_are_returned(kept_page):
    marks = kept_page.json("/api/marks?since=24h")["marks"]
    assert [mark["tags"]["kind"] for mark in marks] == ["drift", "price"]
    (incident,) = kept_page.json("/api/incidents?since=24h")["incidents"]
    assert (incident["name"], incident["cause"]) == ("drift", "driver")
    assert incident["resolved_ms"] - incident["fired_ms"] == 3600 * 1000
    # It fired five hours ago and was resolved an hour later.
    for since, count in (("270m", 1), ("3h", 0)):
        assert len(kept_page.json(f"/api/incidents?since={since}")["incidents"]) == count, since
    sweeps = kept_page.json("/api/sweeps")
    (curve,) = sweeps["curves"]
    assert [point["batch"] for point in curve["points"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [point["batch"] for point in curve["points"] if point["cheapest"]] == [32]
    (load,) = sweeps["loads"]
    assert (load["unit"], load["slo"], load["tags"]["probe"]) == ("token", "tpot_p50 25 ms", "chat")
    names = ("load", "speed_per_s", "work_per_s", "cost", "cheapest", "front", "meets_slo")
    shown = [tuple(point[name] for name in names) for point in load["points"]]
    assert shown == [
        (f"{flying} in flight", speed, work, cost, flying == 8, flying != 32, is_within)
        for flying, speed, work, cost, is_within in LOADS
    ]


def test_overview_has_the_spend_of_the_month_once_budgets_are_known(page):
    first = page.json("/api/overview")
    assert [one["month"] for one in first["spending"]] == [None]
    budget, _ = page.json("/api/budgets")["budgets"]
    (spent,) = page.json("/api/overview")["spending"]
    assert (spent["month"]["amount"], spent["currency"]) == (1.0, "EUR")
    assert spent["month"]["spent"] == budget["spent"]
    # A minute of each device costs 0.04.
    assert spent["cost_per_h"] == pytest.approx(2 * 0.04 * 60)
    assert spent["idle_share"] == pytest.approx(0.25 + 0.75 * 0.05, abs=0.02)
    assert first["change"]["title"] == "cost per inference of encoder on gpu0: +8.5 %"
    (unit,) = first["units"]
    assert [one["tags"]["device"] for one in unit["members"]] == list(DEVICES)


def test_spend_is_the_sum_of_costs_by_use_and_device(page, store, clock):
    (before,) = page.json("/api/spend")["allocations"]
    assert [(part["kind"], part["cost"]) for part in before["parts"]] == [
        ("remainder", before["cost"])
    ]
    store.append(labelled_rows(clock.time_ns() - 10**9))
    found = page.json("/api/spend")
    (allocation,) = found["allocations"]
    own = [
        row.fields["cost"]
        for row in rows_of(store, "device")
        if row.time_ns // 10**6 > found["since_ms"]
    ]
    assert allocation["cost"] == pytest.approx(sum(own), rel=1e-3)
    assert sum(one["cost"] for one in allocation["devices"]) == pytest.approx(allocation["cost"])
    parts = {(part["kind"], part["name"]): part["cost"] for part in allocation["parts"]}
    assert parts["service", "rank"] == 0.5
    assert parts["idle", ""] == 0.25
    assert sum(parts.values()) == pytest.approx(allocation["cost"])
    assert found["tenants"] == []


def test_tenants_and_the_cost_without_one_add_up_to_the_devices(page, store, clock):
    # The window of each tenant costs a cent more than the one before; 20 are named.
    costs = {f"team-{number:02}": 0.01 * (number + 1) for number in range(23)}
    store.append(tenant_rows(clock.time_ns() - 10**9, {**costs, "unattributed": 0.5}))
    (tenants,) = page.json("/api/spend")["tenants"]
    parts = {(part["rest"], part["name"]): part["cost"] for part in tenants["parts"]}
    named = {name: cost for (rest, name), cost in parts.items() if rest is None}
    assert list(named) == sorted(costs, reverse=True)[:20]
    assert named["team-22"] == pytest.approx(0.23)
    assert (tenants["left_out"], parts["others", ""]) == (3, pytest.approx(0.06))
    assert parts["unattributed", "unattributed"] == pytest.approx(0.5)
    assert sum(parts.values()) == pytest.approx(tenants["cost"])


def test_labels_divide_the_cost_and_filter_the_trend(page, store, clock):
    spend = page.json("/api/spend")
    assert spend["labels"] == []
    total = spend["allocations"][0]["cost"]
    store.append(labelled_rows(clock.time_ns() - 10**9))
    labels = page.json("/api/spend")["labels"]
    assert [(one["label"], one["value"], one["currency"]) for one in labels] == [
        ("team", "search", "EUR"),
        ("team", None, "EUR"),
    ]
    assert [one["cost"] for one in labels] == pytest.approx([0.75, total - 0.75], rel=1e-3)
    assert page.json("/api/now")["labels"] == {"team": ["search"]}
    path = "/api/trend?field=cost.cost_per_inference&label=team"
    (series,) = page.json(f"{path}=search")["series"]
    assert series["tags"]["service"] == "rank"
    assert page.json(f"{path}=other")["series"] == []
    assert "NAME=VALUE" in page.error(path)


def test_costs_equal_those_of_the_export_command(kept_page, kept_store, tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{kept_store.path}"\n')
    words = ("--format", "csv", "--measurement", "cost", "--since", "2000-01-01")
    done = called(config, "export", *words, "--until", "2100-01-01")
    exported = [
        float(line.rsplit(",", 1)[1])
        for line in done.stdout.splitlines()
        if "device=gpu0" in line and ",cost_per_inference," in line
    ]
    shown = {entry["tags"]["device"]: entry for entry in kept_page.json("/api/now")["costs"]}
    assert shown["gpu0"]["fields"]["cost_per_inference"] == exported[-1]


def test_spent_budget_is_the_cost_of_its_rows(kept_page, kept_store, clock):
    both, one = kept_page.json("/api/budgets")["budgets"]
    now = datetime.fromtimestamp(clock.time_ns() / 1e9, UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    rows = [
        row for row in rows_of(kept_store, "device") if row.time_ns / 1e9 > midnight.timestamp()
    ]
    own = [row.fields["cost"] for row in rows if row.tags["device"] == "gpu1"]
    # A row that spans midnight counts for both days.
    assert one["spent"] == pytest.approx(sum(own), abs=0.05)
    assert one["period_start_ms"] == midnight.timestamp() * 1000
    assert (one["scope"], one["verdict"], one["coverage"]) == ("gpu1", "", pytest.approx(1, 0.02))
    assert one["forecast_low"] <= one["forecast"] <= one["forecast_high"]
    assert (both["verdict"], both["currency"]) == ("exceeded", "EUR")


def test_budgets_are_cached_and_follow_the_configuration(page, store, clock):
    first = page.json("/api/budgets")
    planned(store, clock, BUDGETS.replace("amount = 100", "amount = 7"))
    assert page.json("/api/budgets") == first
    clock.move(61)
    assert [one["amount"] for one in page.json("/api/budgets")["budgets"]] == [1.0, 7.0]
    # An invalid file leaves the previous budgets in force.
    planned(store, clock, "[[budget]]\nname = 7")
    clock.move(61)
    assert [one["amount"] for one in page.json("/api/budgets")["budgets"]] == [1.0, 7.0]


def test_there_are_no_budgets_by_default(page_on, store, clock):
    assert page_on(store.path, clock).json("/api/budgets")["budgets"] == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/now?x=1", "no such parameter"),
        ("/api/trend?field=nothing.x", "field"),
        ("/api/trend?field=cost.nothing", "field"),
        ("/api/trend?field=device.power_w&points=0", "points"),
        ("/api/trend?field=device.power_w&points=100000", "points"),
        ("/api/trend?field=device.power_w&rows=10", "rows"),
        ("/api/trend?field=device.power_w&rows=1000000", "rows"),
        ("/api/trend?field=device.power_w&since=9999d", "since"),
        ("/api/trend?field=device.power_w&since=never", "since"),
        ("/api/trend?field=device.power_w&field=device.temp_c", "twice"),
        ("/api/trend?field=device.power_w&device=" + "x" * 300, "longer than"),
        ("/api/marks?until=1e400", "until"),
    ],
)
def test_invalid_parameters_are_rejected_with_an_error(kept_page, path, words):
    assert words in kept_page.error(path)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.sampled_from(
        ["now", "overview", "trend", "marks", "incidents", "sweeps", "spend", "budgets"]
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["field", "since", "until", "points", "device", "group", "scale", "x"]),
            st.one_of(
                st.sampled_from(
                    [
                        "device.power_w",
                        "cost.plan",
                        "24h",
                        "1h",
                        "100",
                        "gpu0",
                        "0s",
                        "model",
                        "auto",
                    ]
                ),
                st.text(max_size=20),
            ),
        ),
        max_size=5,
    ),
)
def test_any_query_is_answered_or_rejected(kept_page, name, pairs):
    from urllib.parse import urlencode

    status, _, body = kept_page.request(f"/api/{name}?{urlencode(pairs)}")
    assert status in {200, 400}
    assert ("error" in json.loads(body)) is (status == 400)


def test_missing_store_gives_503_until_it_is_created(page_on, clock, tmp_path):
    from costprobe.adapters.store.write import Store

    page = page_on(tmp_path / "later.db", clock)
    status, _, body = page.request("/api/now")
    assert (status, "costprobe run" in json.loads(body)["error"]) == (503, True)
    store = Store.open(tmp_path / "later.db", clock)
    store.append(cost_rows("gpu0", 0, clock.time_ns() - 10**9))
    assert len(page.json("/api/now")["costs"]) == 1
    store.close()
