"""The four answers from a store with known rows: spend, unit costs, the change, the day's allocation."""

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config
from costprobe.core.money import price_scale, unit_price
from costprobe.core.records import Event
from costprobe.core.schema import event_point, make_point
from costprobe.spend.evaluate import SpendBooks
from costprobe.spend.now import day_allocations, host_months
from costprobe.ui.dashboard.now import unit_table
from costprobe.ui.host_overview import overview
from fakes import rows
from fakes.clock import FakeClock

S = 10**9
HOUR_NS = 3600 * S
DAY_NS = 24 * HOUR_NS
NOW = 1_780_056_000 * S  # 29 May 2026, 12:00 UTC
HOST = {"host": "h"}
DEVICES = ("gpu0", "gpu1", "gpu2", "gpu3")
WINDOW_S = 900


def device_rows(device, hours, per_hour, util_pct):
    own = {**HOST, "device": device}
    return [
        rows.device(own, NOW - minute * 60 * S, 60, per_hour, 300.0, util_pct=util_pct)
        for minute in range(hours * 60)
    ]


def probe_rows(device, cost, ago_ns=0):
    own = {**HOST, "device": device, "probe": "encoder"}
    run = rows.run(own, NOW - ago_ns, 11.0, batch=16, energy_j=0.2)
    return [run, rows.run_cost(own, NOW - ago_ns, cost * 2, rolling_1h=cost)]


def windows(model, tokens_of, hours=170):
    """Windows of a service that cost 1 each; `tokens_of` takes hours before now."""
    own = {**HOST, "device": "gpu9+gpu10", "service": "chat", "served_model": model}
    known = {"cost_idle": 0.25, "energy_j": 100.0, "cost_tokens_in": 0.5, "cost_tokens_out": 0.5}
    joules = dict.fromkeys(("energy_tokens_in_j", "energy_tokens_out_j"), 50.0)
    for index in range(hours * 3600 // WINDOW_S):
        tokens = dict.fromkeys(("tokens_in", "tokens_out"), tokens_of(index * WINDOW_S / 3600))
        time_ns = NOW - index * WINDOW_S * S
        yield rows.window_cost(own, time_ns, WINDOW_S, 1.0, **known, **joules, **tokens)


def allocated(part, cost, service="", device="gpu0"):
    tags = {**HOST, "device": device, "service": service}
    return rows.allocation(tags, NOW - HOUR_NS, part, cost)


def drift(ago_ns, level_pct, **more):
    own = {"title": "encoder", "metric": "cost", "device": "gpu0", "subject": {"probe": "encoder"}}
    known = {"kind": "drift", "severity": "warning", "time_ns": NOW - ago_ns}
    return event_point(Event(**{**known, **own, "level_pct": level_pct, **more}), HOST)


@pytest.fixture
def look(tmp_path):
    """Returns a function that stores rows and returns the reader."""
    store = Store.open(tmp_path / "costprobe.db", FakeClock(NOW))
    readers = []

    def stored(*groups, **states):
        for group in groups:
            store.append(list(group))
        for name, document in states.items():
            store.put_state(name, document)
        readers.append(StoreReader.open(store.path))
        return readers[-1]

    yield stored
    for reader in readers:
        reader.close()
    store.close()


def months_of(reader, config):
    """The spend of the month of each currency, as the page computes it."""
    books = SpendBooks(config.budget, config.telemetry.aggregate_s)
    return host_months(books, config.budget, reader, NOW)[1]


def test_spend_per_hour_idle_share_power_and_month_against_budget(look):
    config = Config.model_validate({"budget": [{"name": "gpus", "amount": 500, "period": "month"}]})
    reader = look(device_rows("gpu0", 30, 2.0, 100.0), device_rows("gpu1", 30, 4.0, 25.0))
    months = months_of(reader, config)
    found = overview(reader, config, NOW, months)
    (spent,) = found.spending
    assert (spent.currency, spent.is_planned, found.power_w) == ("USD", True, 600.0)
    assert spent.per_hour == pytest.approx(6.0)
    assert spent.idle_share == pytest.approx(4 * 0.75 / 6)
    assert spent.month.status.spent == pytest.approx(6 * 30, rel=1e-3)
    assert spent.month.status.expected > 6 * 60
    # Without a budget the month is the same, without an amount.
    (unplanned,) = overview(reader, Config(), NOW, months_of(reader, Config())).spending
    assert (unplanned.is_planned, unplanned.month.status.spent) == (False, spent.month.status.spent)
    # A stopped daemon has neither a present rate nor a power.
    later = overview(reader, config, NOW + DAY_NS)
    assert (later.spending, later.power_w) == ([], None)


def test_identical_devices_are_one_group_with_spread_and_outliers(look):
    costs = {"gpu0": 1.1e-6, "gpu1": 1.0e-6, "gpu2": 1.0e-6, "gpu3": 1.01e-6}
    now = [row for device, cost in costs.items() for row in probe_rows(device, cost)]
    before = [
        row
        for device in DEVICES
        for ago in (DAY_NS, 7 * DAY_NS)
        for row in probe_rows(device, 1.0e-6, ago)
    ]
    reader = look(now, before, *(device_rows(device, 1, 2.0, 0.0) for device in DEVICES))
    (group,) = overview(reader, Config(), NOW).units
    assert [unit.tags["device"] for unit in group.members] == list(DEVICES)
    assert group.outliers == ("gpu0",)
    assert group.spread == pytest.approx(0.1)
    assert group.typical.cost == 1.0e-6
    # The figures of a row are of one device: its median's, and beneath it the outlier's own.
    outlier, *_ = group.members
    assert outlier.change_24h_pct == outlier.change_7d_pct == pytest.approx(10)
    assert group.typical.change_24h_pct == pytest.approx(0)
    typical = group.typical
    assert (typical.latency_ms, typical.energy_j, typical.scale) == (11.0, 0.2, 1_000_000)
    assert outlier.trend[-1] == (NOW, 1.1e-6)


def test_cost_latency_and_energy_now_are_of_the_same_runs(look):
    other = probe_rows("gpu0", 5e-6, 60 * S)
    other[0] = make_point(
        "probe", {**other[0].tags, "batch": "1"}, {"latency_p50_ms": 2.0}, NOW - 60 * S
    )
    (group,) = overview(look(other, probe_rows("gpu0", 1e-6)), Config(), NOW).units
    assert (group.typical.cost, group.typical.latency_ms) == (2e-6, 11.0)


def test_cost_of_tokens_is_the_ratio_of_sums_of_the_last_hour_against_the_same_hours_before(look):
    # Half the tokens in the last hour; none a week ago; the row of both models together is not listed.
    reader = look(
        windows("base", lambda hours: 5e5 if hours < 1 else 0 if 168 <= hours < 169 else 1e6),
        windows("tuned", lambda _: 2e6),
        windows("", lambda _: 1e6),
    )
    groups = overview(reader, Config(), NOW).units
    base, tuned = (group.typical for group in groups)
    assert (base.name, tuned.name) == ("chat/base", "chat/tuned")
    assert (base.unit, base.scale) == ("token", 1_000_000)
    assert (base.cost, tuned.cost) == (pytest.approx(1e-6), pytest.approx(0.25e-6))
    assert (base.change_24h_pct, base.change_7d_pct) == (pytest.approx(100), None)
    assert base.devices == ["gpu9", "gpu10"]
    assert tuned.change_7d_pct == pytest.approx(0)
    assert base.energy_j == pytest.approx(50 / 5e5 * 1e6)
    assert "'100 µJ / token'" in str(unit_table(groups, NOW, ""))
    assert base.trend[20][1] == pytest.approx(0.5e-6)


def test_largest_change_is_that_with_most_money_and_keeps_its_cause(look):
    reader = look([
        drift(6 * HOUR_NS, 8.0, title="first", cause="cooling", since_ns=NOW - 7 * HOUR_NS, cost_per_month=90.0, currency="USD"),
        drift(2 * HOUR_NS, 12.0, title="shifted further", cost_per_month=120.0, currency="USD"),
        drift(HOUR_NS, 40.0, title="cheap", device="gpu1", cost_per_month=5.0, currency="USD"),
        drift(HOUR_NS, 40.0, title="a part of it", metric="latency"),
        drift(5 * HOUR_NS, 90.0, title="reverted", device="gpu2", cost_per_month=900.0, currency="USD"),
        drift(HOUR_NS, 0.1, title="reverted", device="gpu2"),
    ])  # fmt: skip
    found = overview(reader, Config(), NOW).change
    assert (found.title, found.cause, found.change_pct) == ("shifted further", "cooling", 12.0)
    assert (found.cost_per_month, found.currency, found.others) == (120.0, "USD", 1)
    assert found.since_ns == NOW - 7 * HOUR_NS


def test_firing_alerts_are_those_not_silenced_the_worst_first(look):
    names = {"quiet": "warning", "minor": "warning", "major": "critical"}
    alerts = [
        {"id": name, "state": "firing", "severity": severity} for name, severity in names.items()
    ]
    alerts.append({"id": "over", "state": "resolved", "severity": "critical"})
    reader = look(alerts={"alerts": alerts, "silenced": ["quiet"]}, status={"host": "gpu-01"})
    found = overview(reader, Config(), NOW)
    assert ([alert["id"] for alert in found.firing], found.host) == (["major", "minor"], "gpu-01")


def test_parts_of_the_day_add_up_to_the_cost_of_the_devices(look):
    reader = look(
        device_rows("gpu0", 30, 2.0, 50.0),
        device_rows("gpu1", 30, 1.0, 0.0),
        [
            allocated("busy", 20.0, "chat"),
            allocated("idle", 15.0, "chat"),
            allocated("probing", 1.0, "chat"),
        ],
        [allocated("unallocated", 3.0, device="gpu1"), allocated("held", 4.0, "rank", "gpu1")],
        windows("base", lambda _: 1e6, 24),
        windows("tuned", lambda _: 1e6, 12),
    )
    (month,) = months_of(reader, Config())
    (day,) = day_allocations(reader, month.book, NOW)
    assert (day.total, day.since_ns) == (pytest.approx(69), NOW - 23 * HOUR_NS)
    assert day.by_device == {"gpu0": pytest.approx(46), "gpu1": pytest.approx(23)}
    parts = [(part.kind, part.name, round(part.cost, 1)) for part in day.parts]
    assert parts == [
        ("service", "chat", 20.0), ("model", "base", 13.1), ("model", "tuned", 6.9), ("service", "rank", 4.0),
        ("idle", "", 15.0), ("probing", "", 1.0), ("remainder", "", 29.0),
    ]  # fmt: skip
    assert sum(part.cost for part in day.parts if part.kind != "model") == pytest.approx(day.total)


def test_unit_prices_read_between_a_hundredth_and_a_thousand():
    cases = {2.45e-7: "$0.245 per million inferences", 5e-5: "$50.0 per million inferences", 3e-4: "$0.300 per 1,000 inferences",
             0.42: "$0.420 per inference", 250.0: "$250 per inference"}  # fmt: skip
    assert {
        price: unit_price(price, "USD", price_scale(price), "inference") for price in cases
    } == cases
