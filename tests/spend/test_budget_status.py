"""Budget status by hand-computed examples, and when its conditions are reported."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from costprobe.adapters.store.read import SeriesValues
from costprobe.core.periods import HOUR_NS, TimeSpan, hour_phase_ns, period_at
from costprobe.spend.budget import (
    BudgetStatus,
    BudgetWatch,
    budget_point,
    budget_status,
    forecast_words,
    hours_before,
    period_words,
    restored_watches,
    watches_document,
)
from costprobe.spend.forecast import Forecast
from costprobe.spend.query import Payer, SpendBook
from costprobe.spend.settings import BudgetConfig
from hypothesis import given
from hypothesis import strategies as st

S = 1_000_000_000
MINUTE = 60 * S


def ns(text, zone="UTC"):
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * S


def budget(**keys):
    return BudgetConfig.model_validate({"name": "b", "amount": 100, "period": "month", **keys})


def rows_of(times_ns, cost):
    rows = SeriesValues({}, [], [])
    for end_ns in times_ns:
        rows.add(end_ns, cost)
    return [rows]


def book_of(zone="UTC", at_ns=0, **payers):
    """Return a book with one row a minute; each payer has (cost per hour, from, to)."""
    book = SpendBook(hour_phase_ns(zone, at_ns))
    for words, parts in payers.items():
        payer = Payer(*words.split("_"))
        for per_hour, since, until in parts:
            since_ns, until_ns = ns(since, zone), ns(until, zone)
            times = range(since_ns + MINUTE, until_ns + 1, MINUTE)
            rows = rows_of(times, per_hour / 60)
            book.add_rows(payer, rows, TimeSpan(since_ns, until_ns), 60)
    return book


def test_budget_status_of_a_quarter_and_a_year():
    """One per hour since the new year; the book keeps what the longest period needs."""
    book = SpendBook()
    start_ns, now_ns = ns("2028-01-01T00:00"), ns("2028-12-30T00:00")
    rows = rows_of(range(start_ns + HOUR_NS, now_ns + 1, HOUR_NS), 1.0)
    book.add_rows(Payer("", "gpu0", "USD"), rows, TimeSpan(start_ns, now_ns), 3600)
    for period, days, all_days, words in (
        ("quarter", 90, 92, "Q4 2028"),
        ("year", 364, 366, "2028"),
    ):
        status = budget_status(budget(period=period), book, now_ns)
        assert (status.spent, status.expected) == pytest.approx((days * 24, all_days * 24))
        assert (status.coverage, status.missing) == (pytest.approx(1), ())
        assert period_words(status) == words


def test_budget_status_of_a_month_with_a_gap():
    """Four days gone; gpu0 at 1 an hour for 96 h, gpu1 at 0.5 an hour for 84 of them."""
    book = book_of(
        _gpu0_USD=[(1.0, "2026-02-20T00:00", "2026-03-05T00:00")],
        _gpu1_USD=[
            (0.5, "2026-02-20T00:00", "2026-03-02T00:00"),
            (0.5, "2026-03-02T12:00", "2026-03-05T00:00"),
        ],
    )
    status = budget_status(budget(), book, ns("2026-03-05T00:00"))
    assert status.spent == pytest.approx(96 * 1.0 + 84 * 0.5)
    assert status.coverage == pytest.approx((96 + 84) / (2 * 96))
    assert status.elapsed_share == pytest.approx(4 / 31)
    assert status.missing == ("gpu1: no cost data for 12.0 h of the period",)
    # 27 days remain, at the constant cost of both.
    assert status.expected == pytest.approx(138 + 27 * 24 * 1.5)
    assert period_words(status) == "March 2026"


def test_device_and_service_have_separate_budgets():
    book = book_of(
        _gpu0_USD=[(1.0, "2026-03-01T00:00", "2026-03-02T00:00")],
        _gpu1_USD=[(0.5, "2026-03-01T00:00", "2026-03-02T00:00")],
        chat_gpu0_USD=[(0.75, "2026-03-01T00:00", "2026-03-02T00:00")],
        chat_gpu1_USD=[(0.25, "2026-03-01T00:00", "2026-03-02T00:00")],
    )
    at_ns = ns("2026-03-02T00:00")
    spent = {
        name: budget_status(budget(**keys), book, at_ns).spent
        for name, keys in (
            ("host", {}),
            ("gpu1", {"device": "gpu1"}),
            ("chat", {"service": "chat"}),
        )
    }
    assert spent == pytest.approx({"host": 36.0, "gpu1": 12.0, "chat": 24.0})


def test_currencies_are_never_summed():
    book = book_of(
        _gpu0_EUR=[(1.0, "2026-03-01T00:00", "2026-03-01T10:00")],
        _gpu0_USD=[(2.0, "2026-03-01T10:00", "2026-03-02T00:00")],
    )
    status = budget_status(budget(currency="EUR"), book, ns("2026-03-02T00:00"))
    assert status.spent == pytest.approx(10.0)
    assert status.foreign == pytest.approx({"USD": 28.0})
    assert status.coverage == pytest.approx(10 / 24)
    assert status.missing == (
        "gpu0: no cost data for 14.0 h of the period",
        "$28.0 is not added to EUR",
    )


def test_day_with_23_hours_in_a_half_hour_time_zone():
    at_ns = ns("2026-03-29T12:00", "Europe/Berlin")
    book = book_of(
        "Europe/Berlin", at_ns, _gpu0_USD=[(2.0, "2026-03-28T00:00", "2026-03-29T12:00")]
    )
    keys = {"period": "day", "timezone": "Europe/Berlin"}
    status = budget_status(budget(**keys), book, at_ns)
    # From midnight to noon there were 11 hours on that day.
    assert status.spent == pytest.approx(22.0)
    assert status.elapsed_share == pytest.approx(11 / 23)
    assert status.expected == pytest.approx(2.0 * 23)
    assert period_words(status) == "2026-03-29"
    at_ns = ns("2026-03-29T01:30", "Asia/Kolkata")
    book = book_of("Asia/Kolkata", at_ns, _gpu0_USD=[(2.0, "2026-03-28T12:00", "2026-03-29T01:30")])
    status = budget_status(budget(period="day", timezone="Asia/Kolkata"), book, at_ns)
    assert status.spent == pytest.approx(3.0)


def test_first_day_has_no_forecast():
    at_ns = ns("2026-03-15T04:00")
    book = book_of(_gpu0_USD=[(1.0, "2026-03-15T00:00", "2026-03-15T04:00")])
    status = budget_status(budget(), book, at_ns)
    assert (status.expected, status.low, status.high) == (None, None, None)
    assert status.note == "a forecast needs 6 h of cost data; there are 4"
    assert status.coverage == pytest.approx(4 / (14 * 24 + 4))
    nothing = budget_status(budget(device="gpu9"), book, at_ns)
    assert (nothing.spent, nothing.coverage) == (0, 0)
    assert nothing.missing == ("no cost data for gpu9 in this period",)


def test_hour_with_a_missing_gpu_is_excluded_from_the_forecast():
    book = book_of(
        _gpu0_USD=[(1.0, "2026-03-01T00:00", "2026-03-01T06:00")],
        _gpu1_USD=[
            (1.0, "2026-03-01T01:00", "2026-03-01T03:00"),
            (1.0, "2026-03-01T04:15", "2026-03-01T06:00"),
        ],
    )
    found = hours_before(book.payers, book, ns("2026-03-01T06:00"))
    rates = {(hour.start_ns - ns("2026-03-01T00:00")) // HOUR_NS: hour.per_hour for hour in found}
    # gpu1 costs nothing before its first row; it is missing in hour 4, mostly present in hour 5.
    assert rates == pytest.approx({0: 1.0, 1: 2.0, 2: 2.0, 4: 2.0, 5: 2.0})


def look(spent, expected, amount=100, at="2026-03-10T00:00", **keys):
    """Return a status with the given figures."""
    config, time_ns = budget(amount=amount, **keys), ns(f"{at[:11]}12:00")
    period = period_at(config.period, "UTC", time_ns)
    remaining = None if expected is None else Forecast(expected - spent, 0.0, 2 * expected, "m", 9)
    own = {"spent": spent, "coverage": 0.5, "remaining": remaining}
    return BudgetStatus(budget=config, period=period, time_ns=time_ns, **own)


def later(status, minutes):
    return replace(status, time_ns=status.time_ns + minutes * MINUTE)


def taken(watch, *looks):
    """Return the names of the conditions that each evaluation reported."""
    return [[event.metric for event in watch.take(status)] for status in looks]


def test_fluctuating_forecast_is_reported_once():
    watch = BudgetWatch()
    figures = (101, 99, 101, 102, 97, 101, 94, 101, 120)
    looks = [later(look(10, expected), 10 * at) for at, expected in enumerate(figures)]
    assert taken(watch, *looks) == [[], [], [], ["budget_forecast"], [], [], [], [], []]
    watch = BudgetWatch()
    often = [later(look(10, 101), minutes) for minutes in (0, 3, 9, 10, 11)]
    assert taken(BudgetWatch(), *often) == [[], [], [], ["budget_forecast"], []]
    raised = [(watch.take(status), watch.is_forecast)[1] for status in looks]
    assert raised == [False, False, False, True, True, True, False, False, False]


def test_reported_conditions_survive_a_restart():
    watch = BudgetWatch()
    watch.take(look(101, 200))
    budgets = [budget()]
    stored = watches_document(budgets, {"b": watch})
    again = restored_watches(budgets, stored)["b"]
    assert taken(again, look(102, 200)) == [[]]
    assert restored_watches([budget(amount=101)], stored)["b"] == BudgetWatch()
    for damaged in ({"forecast": "maybe"}, {"above": "x"}, 7):
        stored["b"]["watch"] = damaged
        assert restored_watches(budgets, stored)["b"] == BudgetWatch()


def test_event_and_row_have_the_figures_of_the_budget():
    status = look(101, None, device="gpu0")
    watch = BudgetWatch()
    (event,) = watch.take(status)
    assert (event.severity, event.device, dict(event.subject)) == (
        "critical",
        "gpu0",
        {"budget": "b"},
    )
    assert event.detail.startswith("budget b: $101.00 of $100.00 for March 2026 are spent with")
    assert (event.before, event.after) == ("$100.00", "$101.00")
    row = budget_point(status, watch, {"host": "h"})
    assert row.tags == {
        "host": "h",
        "budget": "b",
        "period": "month",
        "currency": "USD",
        "device": "gpu0",
    }
    assert row.fields["exceeded"] is True
    assert "forecast" not in row.fields
    assert "it will be $150 (80 %:" in forecast_words(look(101, 150))


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(0, 300)), max_size=30))
def test_each_condition_is_reported_at_most_once_a_period(figures):
    statuses = [look(round(spent), round(spent) + round(more)) for spent, more in figures]
    reported = [name for names in taken(BudgetWatch(), *statuses) for name in names]
    assert len(reported) == len(set(reported))
