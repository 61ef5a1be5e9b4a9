"""Emissions next to cost, and events of prices that end."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.configuration import AnyPlan
from costprobe.core.records import NS_PER_S, Device, Energy, Reading
from costprobe.devices.readings import Accounts
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import CarbonBook, CarbonConfig, ElectricityConfig
from costprobe.pricing.prices import RememberedPrices
from costprobe.pricing.timed import TimedValue, TimedValues
from costprobe.probing.jobs import ProbeAccounts
from costprobe.probing.rows import report_document
from costprobe.ui.cli.views.status_lines import probe_line
from fakes.clock import FakeClock
from fakes.runs import probe_run
from pydantic import TypeAdapter

GPU = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100 80GB HBM3")
DAY_S = 86_400
RENTED = {"plan": "on_demand", "per_hour": Decimal("3.6")}


def day_after(days):
    return datetime.fromtimestamp(FakeClock().time_ns() / 1e9 + days * DAY_S, tz=UTC).date()


class Bench:
    def __init__(self, plans=(RENTED,), electricity=None, carbon=None, spots=None):
        self.spots = spots or {}
        self.clock, self.ledger = FakeClock(), MemoryLedger()
        self.plans = [TypeAdapter(AnyPlan).validate_python(plan) for plan in plans]
        self.electricity = electricity
        config = None if carbon is None else CarbonConfig.model_validate(carbon)
        self.carbon = CarbonBook(config, electricity, [GPU])
        self.begin()

    def begin(self):
        book = PriceBook(self.plans, self.electricity, [GPU], spots=lambda: self.spots)
        self.prices = RememberedPrices(book, self.ledger, self.clock, self.carbon)
        self.accounts = Accounts(self.prices, self.ledger, self.clock, {})
        self.probes = ProbeAccounts(self.prices, self.ledger, self.clock, {}, lambda *_: ())

    def probe(self, energy_j=None):
        end_ns = self.clock.monotonic_ns()
        run = probe_run(
            window_start_ns=end_ns - 10 * NS_PER_S,
            window_end_ns=end_ns,
            has_energy_window=energy_j is not None,
            window_energy=None if energy_j is None else Energy(energy_j, "counter", 0.06),
            energy_absent="no window",
        )
        return self.probes.take_probe(run)

    def read(self, **fields):
        end_ns = self.clock.monotonic_ns()
        self.accounts.record_readings(
            [(Reading("gpu0", end_ns - 10 * NS_PER_S, end_ns, fields), GPU)]
        )

    def rows(self, measurement):
        return [point.fields for point in self.ledger.points if point.measurement == measurement]


def test_cost_row_has_emissions_even_if_the_price_includes_electricity():
    bench = Bench(carbon={"g_per_kwh": 360, "pue": Decimal("1.25")})
    report = bench.probe(energy_j=2000.0)
    (row,) = bench.rows("cost")
    # 2 J x 1.25 x 360 / 3.6e6
    assert row["carbon_per_inference_g"] == pytest.approx(2.5e-4)
    assert (row["carbon_method"], row["energy_method"]) == ("flat", "counter")
    document = report_document(report)
    assert document["carbon"]["carbon_per_inference_g"] == pytest.approx(2.5e-4)
    assert "0.25 g CO2e per 1,000" in probe_line(document)
    assert "contended" in probe_line({**document, "contended": True})
    # A run without an energy window has the emissions of the last one, marked as such.
    bench.probe()
    assert bench.rows("cost")[1]["energy_method"] == "last_known"
    assert bench.rows("cost")[1]["carbon_per_inference_g"] == pytest.approx(2.5e-4)


@pytest.mark.parametrize(
    ("carbon", "energy_j"), [(None, 2000.0), ({"g_per_kwh": 360}, None), ({"file": "/x"}, 2000.0)]
)
def test_without_energy_or_intensity_emissions_are_unset(carbon, energy_j):
    bench = Bench(carbon=carbon)
    report = bench.probe(energy_j)
    bench.read(power_w=70.0, **({"energy_j": 700.0} if carbon is None else {}))
    (cost,), (device,) = bench.rows("cost"), bench.rows("device")
    assert not {"carbon_per_inference_g", "carbon_method", "carbon_g"} & {*cost, *device}
    assert report_document(report)["carbon"] is None


@pytest.mark.parametrize(("discount", "before"), [("0.4", "$1.20/h"), ("0", "$2.00/h")])
def test_end_of_a_reserved_term_is_one_event(discount, before):
    reserved = {"plan": "reserved", "per_hour": 2, "discount": discount, "term": "3d"}
    bench = Bench([{**reserved, "valid_from": day_after(0)}])
    bench.read(power_w=1.0)
    bench.clock.move(4 * DAY_S)
    bench.read(power_w=1.0)
    # Nor is it reported again by the next process.
    bench.begin()
    bench.read(power_w=1.0)
    (event,) = bench.rows("event")
    assert (event["severity"], event["cause"]) == ("warning", "reserved term")
    assert event["title"] == "gpu0 now costs $2.00 per hour: its reserved term has ended"
    assert (event["before"], event["after"]) == (before, "$2.00/h")
    assert "the list price applies again" in event["detail"]


def test_plan_that_excludes_electricity_reports_both_changes():
    apart = {**RENTED, "per_hour": 3, "electricity_included": False, "valid_from": day_after(1)}
    bench = Bench([RENTED, apart], ElectricityConfig(tariff_per_kwh=Decimal("0.3")))
    bench.read(energy_j=1.0)
    bench.clock.move(2 * DAY_S)
    bench.read(energy_j=1.0)
    (event,) = bench.rows("event")
    assert event["detail"].endswith(
        "electricity, paid separately, changed from $0.00 to $0.30 per kWh"
    )


def test_rows_are_marked_when_their_spot_price_is_stale():
    now_ns = FakeClock().time_ns()
    known = TimedValues((TimedValue(now_ns, Decimal(2)),), now_ns)
    bench = Bench([{"plan": "spot", "file": "/x", "stale_after": "1h"}], spots={"spot": known})
    for _ in range(2):
        bench.probe()
        bench.read(power_w=1.0)
        bench.clock.move(7200)
    for measurement in ("cost", "device"):
        fresh, old = bench.rows(measurement)
        assert "price_stale" not in fresh
        assert old["price_stale"] is True
    # The price is the same, so there is no price change event.
    assert bench.rows("event") == []
