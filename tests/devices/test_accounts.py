"""Readings and probe runs become priced rows, and changes become events."""

from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.adapters.store.database import Database
from costprobe.adapters.store.ledger import MemoryLedger, StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.core.statistics import RollingSample
from costprobe.devices.readings import Accounts
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.book import PriceBook
from costprobe.pricing.catalogue_files import packaged
from costprobe.pricing.plans import OnDemandPlan
from costprobe.pricing.prices import RememberedPrices
from costprobe.probing.jobs import ProbeAccounts
from costprobe.probing.rows import report_document
from fakes.runs import probe_run

GPU = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100 80GB HBM3")
TAGS = {"host": "h1", "rack": "a1"}


def plan(per_hour="3.6", **more):
    return OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": Decimal(per_hour), **more})


@pytest.fixture
def ledger():
    return MemoryLedger()


def books(clock, ledger, plans=(), history=()):
    book = PriceBook(list(plans), None, [GPU], AssumedPrices(lambda _: packaged()))
    prices = RememberedPrices(book, ledger, clock)

    def stored(*key):
        return [each for each in history if each.time_ns >= key[3]]

    return ProbeAccounts(prices, ledger, clock, TAGS, stored)


def measured(clock, *, fingerprint="aa", software=None, inferences=1000):
    end_ns = clock.monotonic_ns()
    activity = {"contended": False, "throttled_pct": 0.0}
    return probe_run(
        latency_ms={"p50": 4.0, "mean": 4.1, "cv": 0.01, "p90": 4.4},
        window_start_ns=end_ns - 10 * NS_PER_S,
        window_end_ns=end_ns,
        inferences=inferences,
        has_energy_window=False,
        fingerprint=fingerprint,
        software=software or {"torch": "2.13"},
        activity=activity,
        window_energy=None,
        energy_absent="no window",
    )


def rows(ledger, measurement):
    return [point for point in ledger.points if point.measurement == measurement]


@pytest.mark.parametrize("wrong_s", [3e8, 7200])
def test_rolling_costs_recover_after_the_wall_clock_was_ahead(clock, ledger, wrong_s):
    history = []
    accounts = books(clock, ledger, [plan()], history)

    def run(times, inferences):
        for _ in range(times):
            clock.move(300)
            report = accounts.take_probe(measured(clock, inferences=inferences))
            history.append(RollingSample(report.time_ns, report.cost.per_inference))
        return report.rolled["24h"]

    before = run(48, 1000)
    clock.step(wrong_s)
    run(12, 100)
    clock.step(-wrong_s)
    after = run(1, 1000)
    assert (before.samples, after.samples) == (48, 49)
    assert after.median == pytest.approx(before.median)
    assert after.iqr == pytest.approx(0)


def test_another_board_of_the_same_name_is_an_event_once(clock, ledger):
    run = measured(clock)
    # A board that is or was unknown is not another one.
    for board in ("", "GPU-1", "", "GPU-1", "GPU-2", "", "GPU-2"):
        books(clock, ledger).take_probe(replace(run, board=board))
    (event,) = rows(ledger, "event")
    assert (event.fields["before"], event.fields["after"]) == ("board GPU-1", "board GPU-2")


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
