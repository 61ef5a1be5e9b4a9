"""Spend in reports: coverage is that of forecasts, and unequal coverage is no change."""

from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.periods import DAY_NS, HOUR_NS
from costprobe.core.records import Point
from costprobe.spend.evaluate import SpendBooks, budget_overviews
from costprobe.spend.query import LATE_NS
from costprobe.spend.settings import BudgetConfig
from costprobe.ui.report.gather import DRAWN, Period, drawn_in, spent
from costprobe.ui.report.model import Spend, Use
from costprobe.ui.report.summary import spend_parts
from fakes.clock import FakeClock

S = 10**9
EVERY_S = 60
ROWS_PER_HOUR = 3600 // EVERY_S
# The first of March 2026; a report of its first two days, and the two days before.
MARCH_NS = 1_772_323_200 * S
PERIOD = Period(MARCH_NS, MARCH_NS + 2 * DAY_NS)


def rows(device, per_hour, hours, minutes=60, currency="USD", **more):
    """A row a minute in the first minutes of each of these hours, counted from the first of March."""
    tags = {"device": device, "kind": "gpu", "uuid": device, "model": "L4", "currency": currency}
    fields = {"cost": per_hour / ROWS_PER_HOUR, "energy_j": 360.0 * EVERY_S, **more}
    return [
        Point("device", tags, fields, MARCH_NS + hour * HOUR_NS + end_s * S)
        for hour in hours
        for end_s in range(EVERY_S, minutes * 60 + 1, EVERY_S)
    ]


@pytest.fixture
def reader_of(tmp_path):
    def make(*series):
        store = Store.open(tmp_path / "costprobe.db", FakeClock())
        for each in series:
            store.append(each)
        store.close()
        return closing(StoreReader.open(tmp_path / "costprobe.db"))

    return make


def spend_of(reader):
    costs = reader.values("device", "cost", 0, 2**62)
    return {one.currency: one for one in spent(costs, (), PERIOD, EVERY_S, lambda *_: "?")}


# Rows, and of the period and the one before it: the spend, the coverage, and the spend an hour of the devices
# that are known in both.
SPENDS = {
    "constant, known for 26 of the 48 hours before": (
        [rows("gpu0", 3.6, range(-26, 48))],
        [(48 * 3.6, 1.0, 3.6), (26 * 3.6, 26 / 48, 3.6)],
    ),
    "one rises by a quarter, one is new, one is not known enough": (
        [
            rows("gpu0", 4.0, range(-48, 0)),
            rows("gpu0", 5.0, range(48)),
            rows("gpu1", 9.0, range(48)),
            rows("gpu2", 7.0, range(-48, 20)),
        ],
        [(48 * 14 + 20 * 7, 116 / 144, 5.0), (48 * 11, 1.0, 4.0)],
    ),
    "no device is known in both": (
        [rows("gpu0", 3.6, range(-20, 48))],
        [(48 * 3.6, 1.0, None), (20 * 3.6, 20 / 48, None)],
    ),
}


@pytest.mark.parametrize("name", SPENDS)
def test_unequal_coverage_is_no_change(reader_of, name):
    made, wanted = SPENDS[name]
    with reader_of(*made) as reader:
        spend = spend_of(reader)["USD"]
    now = float(spend.total), spend.coverage, spend.per_hour
    before = float(spend.before), spend.coverage_before, spend.per_hour_before
    assert [now, before] == [pytest.approx(one) for one in wanted]


def test_coverage_of_a_report_is_that_of_a_forecast(reader_of):
    """Five minutes of each hour of one device are 8 %, and half of the time of another 50 %."""
    budget = BudgetConfig.model_validate({"name": "b", "amount": 100, "period": "month"})
    with reader_of(rows("gpu0", 3.6, range(48), minutes=5), rows("gpu1", 3.6, range(24))) as reader:
        spend = spend_of(reader)["USD"]
        books = SpendBooks((), EVERY_S)
        (overview,) = budget_overviews(books, reader, [budget], PERIOD.until_ns)
    assert spend.coverage == pytest.approx((5 / 60 + 0.5) / 2, rel=1e-3)
    assert spend.coverage == pytest.approx(overview.status.coverage)
    assert float(spend.total) == pytest.approx(overview.status.spent)


def test_emissions_state_the_time_for_which_they_are_known(reader_of):
    """Two days of 360 W; the carbon intensity is known for the first 12 hours."""
    with reader_of(
        rows("gpu0", 3.6, range(12), carbon_g=0.5), rows("gpu0", 3.6, range(12, 48))
    ) as reader:
        around_ns = PERIOD.since_ns - LATE_NS, PERIOD.until_ns + LATE_NS
        totals = reader.hourly_sums("device", DRAWN, *around_ns, cuts_ns=PERIOD)
    drawn = drawn_in(totals, PERIOD, EVERY_S)
    assert drawn.energy_j == pytest.approx(0.36 * 48 * 3.6e6)
    assert drawn.carbon_g == pytest.approx(0.5 * ROWS_PER_HOUR * 12)
    assert (drawn.energy_coverage, drawn.carbon_coverage) == pytest.approx((1.0, 0.25))


def test_cost_of_services_is_that_of_spend_though_windows_reach_beyond_the_period():
    uses = [("chat", "busy", "60"), ("", "unallocated", "45")]
    made = [Use(service, part, Decimal(cost)) for service, part, cost in uses]
    known = Spend("USD", Decimal(100), 1.0, None, None, None, None, (), (), made)
    assert list(spend_parts(known)) == [
        ("chat: busy", "$60.00", "60 %"),
        ("no service, or not yet allocated", "$40.00", "40 %"),
        ("total", "$100.00", "100 %"),
    ]
    short = replace(known, by_use=made[:1], total=Decimal(50))
    shown = [("chat: busy", "$50.00", "100 %"), ("total", "$50.00", "100 %")]
    assert list(spend_parts(short)) == shown
