"""The dashboard's JSON API returns the stored numbers and rejects invalid requests."""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from contents import rows, value, values, words
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from costprobe.ui.dashboard import cells
from dashboard_samples import (
    BUDGETS,
    DEVICES,
    LOADS,
    cost_rows,
    labelled_rows,
    planned,
    row,
    served_rows,
    status_document,
    tenant_rows,
)
from fakes.command import called
from fakes.number_names import is_vocabulary, numbers_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

POWER = "/api/trend?field=device.power_w"
COST = "/api/trend?field=cost.cost_per_inference"
REFUSED = {
    "/api/now?x=1": "no such parameter",
    "/api/trend?field=nothing.x": "field",
    "/api/trend?field=cost.nothing": "field",
    f"{POWER}&points=0": "points",
    f"{POWER}&points=100000": "points",
    f"{POWER}&rows=10": "rows",
    f"{POWER}&rows=1000000": "rows",
    f"{POWER}&since=9999d": "since",
    f"{POWER}&since=never": "since",
    f"{POWER}&field=device.temp_c": "twice",
    f"{POWER}&device={'x' * 300}": "longer than",
    f"{POWER}&group=x": "group: 'x' is not one of series, model, device",
    f"{POWER}&scale=x": "scale: 'x' is not one of amount, change, auto",
    f"{COST}&label=team": "NAME=VALUE",
    "/api/marks?until=1e400": "until",
}
VALUES = ["device.power_w", "cost.plan", "24h", "1h", "100", "gpu0", "0s", "model", "auto"]


def stored(store, measurement, **tags):
    reader = StoreReader.open(store.path)
    try:
        return list(reader.points(measurement, -(2**63), 2**63 - 1, tags))
    finally:
        reader.close()


def test_now_has_the_newest_figures_of_each_series(kept_page, kept_store):
    found = kept_page.json("/api/now")
    newest = {one.tags["device"]: one.fields for one in stored(kept_store, "device")}
    shown = {name: one["Power"] for name, one in rows(found["devices"]).items()}
    assert shown == {name: f"{fields['power_w']:.0f} W" for name, fields in newest.items()}
    newest = {one.tags["device"]: one.fields for one in stored(kept_store, "cost")}
    heads = {"Cost": "cost_per_inference", "Electricity": "cost_energy", "1 h": "rolling_1h"}
    for head, name in heads.items():
        own = {f"encoder on {device}": fields[name] * 1e6 for device, fields in newest.items()}
        assert values(found["parts"], head) == pytest.approx(own), head
    alert, fault = found["firing"]
    assert (fault["title"], "connection refused" in fault["text"]) == ("sink behind", True)
    assert alert["more"][-3:-1] == ["latency +8 %", "cost +8.5 %"]
    assert found["daemon"]["running"] is True
    assert found["choices"]["models"] == ["probe=encoder"]


def test_service_and_each_of_its_models_have_their_own_newest_row(page, store, clock):
    store.append(served_rows(clock.time_ns() - NS_PER_S))
    found = page.json("/api/now")
    shown = {name: cost for name, cost in values(found["parts"], "Cost").items() if "chat" in name}
    assert shown == {"chat on gpu0": 0.3, "chat/base on gpu0": 0.2, "chat/tuned on gpu0": 0.9}
    units = {name: one["Cost now"] for name, one in rows(found["units"]).items()}
    assert units["base chat"] == "€0.2 / 1,000 inferences"
    whole = rows(found["parts"])["chat on gpu0"]
    wanted = {
        "M tokens in": "€0.15, 300 kJ",
        "M cached in": "€0 (no weight measured)",
        "In cached": "50 %",
        "Cache saved": "€0.0003",
        "Tokens split by": "token weights",
        "Energy each": "300 J (counter ±5 %)",
    }
    assert {name: whole[name] for name in wanted} == wanted


def test_trend_is_downsampled_with_its_minima_and_maxima(kept_page, kept_store):
    for series in kept_page.json(f"{POWER}&since=24h&points=100")["series"]:
        own = stored(kept_store, "device", device=series["tags"]["device"])
        powers = [one.fields["power_w"] for one in own]
        assert len(series["values"]) <= 100
        assert series["samples"] == len(powers)
        assert (min(series["lows"]), max(series["highs"])) == (min(powers), max(powers))
        assert series["times_ms"] == sorted(series["times_ms"])
        ranges = zip(series["lows"], series["values"], series["highs"], strict=True)
        assert all(low <= middle <= high for low, middle, high in ranges)
    # A short one is complete.
    (series,) = kept_page.json(f"{COST}&since=2h&device=gpu1")["series"]
    costs = [one.fields["cost_per_inference"] for one in stored(kept_store, "cost", device="gpu1")]
    assert series["values"] == costs[-len(series["values"]) :]
    assert 20 <= len(series["values"]) <= 24


def test_downsampled_cost_of_a_service_is_a_ratio_of_sums(page, store, clock):
    now_ns = clock.time_ns()
    own = {"device": "gpu0", "service": "s", "basis": "serving", "currency": "EUR"}
    # A busy window, one with few inferences, and an idle one, in turn.
    windows = []
    for i in range(600):
        count = (1000.0, 10.0, 0.0)[i % 3]
        cost = {"cost_per_inference": 5.0 / count} if count else {}
        fields = {"cost_total": 5.0, "inferences": count, **cost}
        windows.append(row("cost", now_ns - (600 - i) * 60 * NS_PER_S, fields, **own))
    store.append(windows)
    (series,) = page.json(f"{COST}&since=10h&points=20&service=s")["series"]
    assert len(series["values"]) == 20
    # Thirty windows each: ten of each kind.
    assert series["values"][3:-3] == pytest.approx([15.0 / 1010] * 14, rel=0.1)
    assert (min(series["lows"]), max(series["highs"])) == (0.005, 0.5)


def test_trend_above_the_row_limit_is_by_the_hour(page, store, clock):
    now_ns = clock.time_ns()
    times_ns = range(now_ns - 86_400 * NS_PER_S, now_ns, 60 * NS_PER_S)
    store.append(row("device", at, {"power_w": 9.0}, device="gpu7") for at in times_ns)
    store.settle(now_ns, limit=10**4)
    assert page.json(f"{POWER}&since=24h&device=gpu7&rows=5000")["hourly"] is False
    found = page.json(f"{POWER}&since=24h&device=gpu7&rows=300")
    assert (found["hourly"], found["notes"]) == (True, ["Hours were read, evenly spaced."])
    (series,) = found["series"]
    # Hours, and the minutes of those that have not settled.
    assert 21 + 120 <= len(series["values"]) <= 22 + 180
    assert set(series["values"]) == {9.0}


def test_numbers_have_the_names_of_the_series(kept_page):
    offenders = [
        f"{path}: {'.'.join(names)}"
        for path in (f"{POWER}&since=2h", "/api/marks?since=24h")
        for names in numbers_of(kept_page.json(path))
        if not is_vocabulary(names)
    ]
    assert "\n".join(offenders) == ""


def test_marks_and_incidents_are_returned(kept_page):
    found = kept_page.json("/api/marks?since=24h")
    assert [one["letter"] for one in found["marks"]] == ["D", "I", "P"]
    drift, incident, _ = found["marks"]
    wanted = (
        "drift: cost per inference of encoder on gpu0: +8.5 %; 95 % of it is time per inference;"
        " cause: thermal throttling"
    )
    assert drift["text"].split(", ", 1)[1] == wanted
    assert incident["end_ms"] - incident["time_ms"] == 3600 * 1000
    assert [one[2] for one in found["table"]["rows"]] == ["gpu0", "gpu1", "gpu0 encoder"]
    (left,) = kept_page.json("/api/marks?since=24h&device=gpu1")["marks"]
    assert left["kind"] == "incident"
    (fired,) = kept_page.json("/api/incidents?since=24h")["rows"]
    assert fired[2:] == ["warning", "drift", "device=gpu1 host=gpu-01", "gpu1 drifted", "driver"]
    # It fired five hours ago and was resolved an hour later.
    for since, count in (("270m", 1), ("3h", 0)):
        assert len(kept_page.json(f"/api/incidents?since={since}")["rows"]) == count, since


def test_sweeps_are_charts_by_batch_and_by_load(kept_page):
    batch, load = kept_page.json("/api/sweeps")["charts"]
    assert (batch["name"], load["name"]) == ("gpu0 encoder, batch size", "gpu1 chat, load")
    assert batch["xs"] == [1, 2, 4, 8, 16, 32, 64]
    assert batch["series"][1]["values"][0] == pytest.approx(1e-5 * 1e6 + 0.01)
    assert batch["series"][1]["texts"][0] == "€10"
    assert batch["summary"].startswith("batch 32 is the cheapest; measured ")
    cells = ["32", "11 ms", "2,910 /s", "31.2 mJ", "€0.633", "cheapest"]
    assert list(rows(batch["table"])["32"].values()) == cells
    assert load["note"] == (
        "Within the SLO tpot_p50 25 ms: 8 in flight costs least: €1.7 per M tokens out,"
        " 45 tokens/s of a user."
    )
    assert load["xs"] == sorted(speed for _, speed, *_ in LOADS)
    best, others, cheapest = load["series"]
    assert best["values"] == [None, 1.4, 1.7, 2.8, 9.0]
    assert others["values"] == [1.45, None, None, None, None]
    assert (cheapest["values"], cheapest["last"]) == ([None, None, 1.7, None, None], "8 in flight")
    notes = {name: one["Note"] for name, one in rows(load["table"]).items()}
    assert notes["8 in flight"] == "cheapest, meets the SLO"
    assert notes["16 in flight"] == "best at its speed, misses the SLO"
    assert notes["32 in flight"] == "misses the SLO"


def test_first_screen_has_the_month_once_budgets_are_known(page):
    first = [tile["name"] for tile in page.json("/api/now")["tiles"]]
    assert first == ["Spend now", "This month", "Unused now", "Power"]
    budget, _ = page.json("/api/budgets")["budgets"]
    found = page.json("/api/now")
    spend, month, unused, _ = found["tiles"]  # nothing moves when it arrives
    assert value(month["big"]) == value(budget["big"])
    noted = words(month["notes"])
    assert (noted.startswith("of €1exceeded; forecast €"), noted[-6:]) == (True, "% over")
    # A minute of each device costs 0.04.
    per_hour = value(spend["big"])
    assert per_hour == pytest.approx(2 * 0.04 * 60)
    assert value(unused["big"]) / per_hour == pytest.approx(0.25 + 0.75 * 0.05, abs=0.02)
    assert found["change"]["text"].startswith("encoder on gpu0 costs 8.5 % more since ")
    assert ": it overheats. Check fan and airflow." in found["change"]["text"]
    # The drift that fires is reported once.
    assert "The change above." in [one["text"] for one in found["firing"]]
    assert list(rows(found["units"])) == ["encoder probe, batch 16", "gpu0", "gpu1"]


def test_assumed_prices_are_called_so_beside_each_amount(page, store, clock):
    prices = [{"device": name, "plan": "assumed", "currency": "EUR"} for name in DEVICES]
    status = status_document(store.path, clock.time_ns())
    store.put_state("status", {**status, "prices": prices})
    store.append(cost_rows("gpu0", 300, clock.time_ns() - NS_PER_S, plan="assumed"))
    (budget, _), found = page.json("/api/budgets")["budgets"], page.json("/api/now")
    assert budget["remarks"][-1] == "prices in EUR are assumed"
    assert page.json(f"{COST}&device=gpu0")["notes"][-1] == "The price is assumed: set [[price]]."
    assert {one["Price"] for one in rows(found["devices"]).values()} == {"€2 / h assumed"}
    assert words(found["tiles"][0]["notes"]) == "assumed price: set [[price]]"
    assert words(found["tiles"][1]["notes"]).endswith(", price assumed")
    assert rows(found["units"])["gpu0"]["Cost now"].endswith(" / M inferences assumed")
    (uses,) = page.json("/api/spend")["tables"]
    assert uses["caption"].endswith("; prices in EUR are assumed.")


def test_map_of_many_devices_has_the_state_of_each(page, store, clock):
    now_ns = clock.time_ns()
    assert page.json("/api/now")["map"] is None
    states = {
        "gpu0": ({"util_pct": 90.0}, 1, ["over", "alert drift"]),
        "gpu1": ({"util_pct": 0.9}, 1, ["remainder", "no service, utilization 1 %"]),
        "gpu2": ({"util_pct": 1.0}, 1, ["service", "busy, utilization 1 %"]),
        "gpu3": ({"power_w": 9.0}, 1, ["probing", "utilization unknown"]),
        "gpu4": ({"util_pct": 50.0}, 121, ["over", "not read for 2 min"]),
    }
    busy = ({"util_pct": 50.0}, 1, ["service", "busy, utilization 50 %"])
    states |= {f"gpu{number}": busy for number in range(5, 16)}
    store.append(
        row("device", now_ns - age_s * NS_PER_S, fields, device=name)
        for name, (fields, age_s, _) in states.items()
    )
    found = page.json("/api/now")["map"]
    assert found["cells"] == [[name, *state] for name, (_, _, state) in states.items()]
    texts = ["2 fault", "12 busy", "1 no service", "1 utilization unknown"]
    assert [text for _, text in found["keys"]] == texts
    # A device of a service is paid while that waits.
    idle = row("device", now_ns, {"util_pct": 0.0}, device="gpu0")
    store.append([idle, *served_rows(now_ns - NS_PER_S)])
    store.put_state("alerts", {})
    clock.move(61)
    (first, *_) = page.json("/api/now")["map"]["cells"]
    assert first == ["gpu0", "idle", "unused, utilization 0 %"]


def test_spend_of_the_day_is_divided_by_use_tenant_and_label(page, store, clock):
    time_ns = clock.time_ns() - NS_PER_S
    (before,) = page.json("/api/spend")["tables"]
    assert list(rows(before)) == ["no service, or not yet allocated"]
    own = [one.fields["cost"] for one in stored(store, "device")]
    assert value(before["total"]) == pytest.approx(sum(own), rel=0.05)
    # The window of each tenant costs a cent more than the one before; 20 are named.
    costs = {f"team-{number:02}": 0.01 * (number + 1) for number in range(23)}
    store.append([*labelled_rows(time_ns), *tenant_rows(time_ns, {**costs, "unattributed": 0.5})])
    clock.move(61)
    uses, tenants, labels = page.json("/api/spend")["tables"]
    parts = values(uses, "Cost")
    assert (parts["rank"], parts["paid while services wait"]) == (0.5, 0.25)
    named = values(tenants, "Cost")
    assert list(named)[:20] == sorted(costs, reverse=True)[:20]
    assert named["3 more tenants"] == pytest.approx(0.06)
    assert named["unattributed"] == pytest.approx(0.5)
    for table, one in ((uses, parts), (tenants, named)):
        assert sum(one.values()) == pytest.approx(value(table["total"]))
    by_label = [(words(name), words(of), value(cost)) for name, of, cost in labels["rows"]]
    rest = pytest.approx(value(uses["total"]) - 0.75, rel=1e-3)
    assert by_label[:2] == [("team", "search", 0.75), ("team", "none", rest)]
    assert page.json("/api/now")["choices"]["labels"] == ["team=search"]
    for label, models in (("team=search", ["rank service"]), ("team=other", [])):
        now = page.json(f"/api/now?label={label}")
        assert list(rows(now["units"])) == models
        assert [name for name in rows(now["parts"]) if "encoder" in name] == []
    (series,) = page.json(f"{COST}&label=team=search")["series"]
    assert series["tags"]["service"] == "rank"
    assert page.json(f"{COST}&label=team=other")["series"] == []


def test_costs_and_budgets_are_those_of_the_commands(page_on, today):
    clock = SystemClock()
    page = page_on(today.path, clock, budgets=planned(today, clock))
    config = today.path.parent / "costprobe.toml"
    exported = called(config, "export", "--format", "csv", "--measurement", "cost").stdout
    costs = [
        float(line.rsplit(",", 1)[1])
        for line in exported.splitlines()
        if "device=gpu0" in line and ",cost_per_inference," in line
    ]
    shown = values(page.json("/api/now")["parts"], "Cost")
    assert shown["encoder on gpu0"] == pytest.approx(costs[-1] * 1e6, rel=1e-12)
    found = json.loads(called(config, "budget", "--json").stdout)
    for own, card in zip(found, page.json("/api/budgets")["budgets"], strict=True):
        amounts = [known for _, fact, _ in card["facts"] if (known := value(fact)) is not None]
        # Page and command run some seconds apart.
        wanted = [own["spent"], own["forecast"], own["amount"]]
        assert amounts == [pytest.approx(amount, rel=1e-3) for amount in wanted]
        verdict = own["verdict"] or "within the budget"
        assert (card["name"], card["state"][1]) == (own["budget"], verdict)


def test_a_planned_amount_is_shown_as_it_was_written():
    written = {12_345.0: "€12,345", 12_345.5: "€12,345.50", 0.25: "€0.25"}
    assert {one: cells.planned(one, "EUR")["text"] for one in written} == written


def test_cards_of_budgets_say_what_they_are_of_and_when_they_end(kept_page, clock):
    month, day = kept_page.json("/api/budgets")["budgets"]
    now = datetime.fromtimestamp(clock.time_ns() / 1e9, UTC)
    assert day["scope"] == f"gpu1, {now:%Y-%m-%d} (UTC)"
    ends = next(fact for name, fact, _ in day["facts"] if name == "ends")
    assert ends == f"{now + timedelta(days=1):%Y-%m-%d} 00:00 UTC"
    assert (month["state"][0], day["state"][0]) == ("bad", "good")


def test_budgets_are_cached_and_follow_the_configuration(page, page_on, store, clock):
    def amounts():
        return [words(one["big"]).split(" of ")[1] for one in page.json("/api/budgets")["budgets"]]

    first = amounts()
    changed = BUDGETS.replace("amount = 100", "amount = 7")
    planned(store, clock, changed)
    assert amounts() == first
    # An invalid file leaves the previous budgets in force.
    for text in (changed, "[[budget]]\nname = 7"):
        planned(store, clock, text)
        clock.move(61)
        assert amounts() == ["€1", "€7"]
    assert page_on(store.path, clock).json("/api/budgets")["budgets"] == []


def test_invalid_parameters_are_rejected_with_an_error(kept_page):
    answers = {path: kept_page.error(path) for path in REFUSED}
    assert {path: text for path, text in answers.items() if REFUSED[path] not in text} == {}


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.sampled_from(["now", "trend", "marks", "incidents", "sweeps", "spend", "budgets"]),
    st.dictionaries(
        st.sampled_from(["field", "since", "until", "points", "device", "group", "scale", "x"]),
        st.sampled_from(VALUES) | st.text(max_size=20),
        max_size=5,
    ),
)
def test_any_query_is_answered_or_rejected(kept_page, name, query):
    status, _, body = kept_page.request(f"/api/{name}?{urlencode(query)}")
    assert status in {200, 400}
    assert ("error" in json.loads(body)) is (status == 400)


def test_missing_store_gives_503_until_it_is_created(page_on, clock, tmp_path):
    page = page_on(tmp_path / "later.db", clock)
    status, _, body = page.request("/api/now")
    assert (status, "costprobe run" in json.loads(body)["error"]) == (503, True)
    store = Store.open(tmp_path / "later.db", clock)
    store.append(cost_rows("gpu0", 0, clock.time_ns() - NS_PER_S))
    assert len(page.json("/api/now")["parts"]["rows"]) == 1
    store.close()
