"""Readings and probe runs become priced rows, and changes become events."""

from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.adapters.store.database import Database
from costprobe.adapters.store.ledger import MemoryLedger, StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.records import (
    NS_PER_S,
    Device,
    Energy,
    Reading,
)
from costprobe.core.statistics import RollingSample
from costprobe.devices.readings import Accounts
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.book import PriceBook
from costprobe.pricing.catalogue_files import packaged
from costprobe.pricing.plans import OnDemandPlan
from costprobe.pricing.prices import RememberedPrices
from costprobe.probing.jobs import ProbeAccounts
from costprobe.probing.rows import report_document, run_points
from fakes.clock import FakeClock
from fakes.runs import probe_run

GPU = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100 80GB HBM3")
TAGS = {"host": "h1", "rack": "a1"}


def plan(per_hour="3.6", **more):
    return OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": Decimal(per_hour), **more})


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def ledger():
    return MemoryLedger()


def books(clock, ledger, plans=(), electricity=None, history=()):
    assumed = AssumedPrices(lambda _: packaged())
    book = PriceBook(list(plans), electricity, [GPU], assumed)
    prices = RememberedPrices(book, ledger, clock)
    return ProbeAccounts(prices, ledger, clock, TAGS, lambda *_: history)


def measured(clock, *, energy=None, fingerprint="aa", software=None, inferences=1000):
    end_ns = clock.monotonic_ns()
    activity = {"contended": False, "throttled_pct": 0.0}
    return probe_run(
        latency_ms={"p50": 4.0, "mean": 4.1, "cv": 0.01, "p90": 4.4},
        window_start_ns=end_ns - 10 * NS_PER_S,
        window_end_ns=end_ns,
        inferences=inferences,
        has_energy_window=energy is not None,
        fingerprint=fingerprint,
        software=software or {"torch": "2.13"},
        activity=activity,
        window_energy=energy,
        energy_absent="" if energy else "no window",
    )


def rows(ledger, measurement):
    return [point for point in ledger.points if point.measurement == measurement]


def test_probe_run_becomes_a_probe_row_and_a_cost_row(clock, ledger):
    accounts = books(clock, ledger, [plan()])
    report = accounts.take_probe(measured(clock, energy=Energy(2000.0, "counter", 0.06, 50.0)))
    (probe,), (cost,) = rows(ledger, "probe"), rows(ledger, "cost")
    assert probe.tags == {**TAGS, "device": "gpu0", "probe": "encoder", "batch": "8"}
    assert probe.time_ns == clock.time_ns()
    assert probe.fields["energy_per_inference_j"] == 2.0
    assert probe.fields["energy_above_idle_j"] == pytest.approx(1.5)
    assert probe.fields["latency_p90_ms"] == 4.4
    assert "latency_p99_ms" not in probe.fields
    # 3.6 an hour is 0.001 a second: 10 s over 1,000 inferences is 1e-5 each.
    assert cost.fields["cost_per_inference"] == pytest.approx(1e-5)
    assert cost.fields["rolling_1h"] == pytest.approx(1e-5)
    assert cost.fields["rolling_1h_coverage"] == pytest.approx(1 / 12)
    assert cost.tags["plan"] == "on_demand"
    assert run_points(report, TAGS)[:2] == [probe, cost]


@pytest.mark.parametrize("wrong_s", [3e8, 7200])
def test_rolling_costs_recover_after_the_wall_clock_was_ahead(clock, ledger, wrong_s):
    history = []
    book = PriceBook([plan()], None, [GPU])
    accounts = ProbeAccounts(
        RememberedPrices(book, ledger, clock),
        ledger,
        clock,
        TAGS,
        lambda *key: [each for each in history if each[0] >= key[3]],
    )

    def run(inferences):
        clock.move(300)
        report = accounts.take_probe(measured(clock, inferences=inferences))
        history.append(RollingSample(report.time_ns, report.cost.per_inference))
        return report.rolled

    for _ in range(48):
        before = run(1000)
    clock.step(wrong_s)
    for _ in range(12):
        run(100)
    clock.step(-wrong_s)
    after = run(1000)
    assert (before["24h"].samples, after["24h"].samples) == (48, 49)
    assert after["24h"].median == pytest.approx(before["24h"].median)
    assert after["24h"].iqr == pytest.approx(0)


def test_reading_is_priced_for_its_interval(clock, ledger):
    prices = RememberedPrices(PriceBook([plan()], None, [GPU]), ledger, clock)
    accounts = Accounts(prices, ledger, clock, TAGS)
    start_ns = clock.monotonic_ns() - 10 * NS_PER_S
    reading = Reading("gpu0", start_ns, clock.monotonic_ns(), {"power_w": 70, "energy_j": 700.0})
    accounts.record_readings([(reading, GPU)])
    (row,) = rows(ledger, "device")
    assert row.fields["price_rate_per_h"] == pytest.approx(3.6)
    assert row.fields["cost"] == pytest.approx(0.01)
    assert row.fields["power_w"] == 70.0
    assert "price_assumed" not in row.fields
    assert isinstance(row.fields["power_w"], float)
    assert (row.tags["uuid"], row.time_ns) == ("GPU-0", clock.time_ns())


def test_another_board_of_the_same_name_is_an_event_once(clock, ledger):
    run = measured(clock)
    books(clock, ledger).take_probe(run)
    # Without the key, or for a board without a persistent identity, nothing changed.
    for board in ("GPU-1", "GPU-1", "", "GPU-1"):
        books(clock, ledger).take_probe(replace(run, board=board))
    assert rows(ledger, "event") == []
    for board in ("GPU-2", "", "GPU-2"):
        books(clock, ledger).take_probe(replace(run, board=board))
    (event,) = rows(ledger, "event")
    assert event.fields["title"] == "encoder on gpu0 runs on another board"
    assert (event.fields["before"], event.fields["after"]) == ("board GPU-1", "board GPU-2")
    assert event.tags["kind"] == "software"


class Killed(BaseException):
    """The process is killed before a commit."""


def test_kill_before_any_commit_neither_loses_nor_repeats_an_event(clock, tmp_path, monkeypatch):
    begin = Database.transaction
    left = [0]

    def transaction(database, operation):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return begin(database, operation)

    def run(path, per_hour, driver):
        store = Store.open(path, clock)
        accounts = books(clock, StoreLedger(store), [plan(per_hour)])
        clock.move(300)
        try:
            accounts.take_probe(measured(clock, fingerprint=driver, software={"driver": driver}))
        except Killed:
            return True
        finally:
            store.close()
        return False

    monkeypatch.setattr(Database, "transaction", transaction)
    wrong = []
    for commits in range(4):
        path = tmp_path / f"{commits}.db"
        left[0] = 99
        run(path, "3.6", "550")
        left[0] = commits
        is_killed = run(path, "7.2", "560")
        left[0] = 99
        run(path, "7.2", "560")
        with closing(StoreReader.open(path)) as reader:
            kinds = sorted(
                row.tags["kind"] for row in reader.points("event", 0, clock.time_ns() + 1)
            )
        if kinds != ["price", "software"]:
            wrong.append((commits, is_killed, kinds))
    assert wrong == []
    assert not is_killed


def test_without_a_plan_rows_state_that_the_price_is_assumed(clock, ledger):
    book = PriceBook((), None, [GPU], AssumedPrices(lambda _: packaged()))
    reading = Reading("gpu0", clock.monotonic_ns() - NS_PER_S, clock.monotonic_ns(), {})
    Accounts(RememberedPrices(book, ledger, clock), ledger, clock, TAGS).record_readings(
        [(reading, GPU)]
    )
    assert rows(ledger, "device")[0].fields["price_assumed"] is True
    report = books(clock, ledger).take_probe(measured(clock))
    assert report.cost.plan == "assumed"
    assert rows(ledger, "cost")[0].tags["plan"] == "assumed"
    assert "list price" in report_document(report)["price"]["source"]
