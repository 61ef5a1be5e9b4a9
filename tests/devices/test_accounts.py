"""Readings and probe runs become priced rows, and changes become events."""

from contextlib import closing
from decimal import Decimal

import pytest
from costprobe.adapters.store.database import Database
from costprobe.adapters.store.ledger import MemoryLedger, StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S, Device, Reading
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
