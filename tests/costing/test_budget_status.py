"""Where a budget stands, worked by hand, and what is told of it and when."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config_budget import BudgetConfig
from agent.costing.budget import budget_status, hours_before, period_words
from agent.costing.budget_forecast import Forecast
from agent.costing.budget_watch import BudgetWatch, budget_point, forecast_words
from agent.costing.periods import HOUR_NS, Span, hour_phase_ns
from agent.costing.spend import Payer, SpendBook

S = 1_000_000_000
MINUTE = 60 * S


def ns(text, zone="UTC"):
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * S


def budget(**keys):
    return BudgetConfig.model_validate({"name": "b", "amount": 100, "period": "month", **keys})


def book_of(zone="UTC", at_ns=0, **payers):
    """A book of rows each minute: per_hour, from, to of each payer."""
    book = SpendBook(hour_phase_ns(zone, at_ns))
    for words, parts in payers.items():
        payer = Payer(*words.split("_"))
        for per_hour, since, until in parts:
            since_ns, until_ns = ns(since, zone), ns(until, zone)
            times = range(since_ns + MINUTE, until_ns + 1, MINUTE)
            rows = dict.fromkeys(times, per_hour / 60)
            book.add_rows(payer, rows, Span(since_ns, until_ns), 60)
    return book


def test_a_month_of_two_gpus_with_a_gap():
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
    assert status.missing == ("gpu1: no cost is known for 12.0 h of the period",)
    # 27 days are to come, at what both have always cost.
    assert status.expected == pytest.approx(138 + 27 * 24 * 1.5)
    assert period_words(status) == "March 2026"


def test_a_device_and_a_service_have_budgets_of_their_own():
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


def test_currencies_are_never_added():
    book = book_of(
        _gpu0_EUR=[(1.0, "2026-03-01T00:00", "2026-03-01T10:00")],
        _gpu0_USD=[(2.0, "2026-03-01T10:00", "2026-03-02T00:00")],
    )
    status = budget_status(budget(currency="EUR"), book, ns("2026-03-02T00:00"))
    assert status.spent == pytest.approx(10.0)
    assert status.foreign == pytest.approx({"USD": 28.0})
    assert status.coverage == pytest.approx(10 / 24)
    assert status.missing == (
        "gpu0: no cost is known for 14.0 h of the period",
        "28.00 USD is not added to EUR",
    )


def test_a_day_with_23_hours_in_a_place_with_half_hours():
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


def test_on_the_first_day_there_is_no_forecast_yet():
    at_ns = ns("2026-03-15T04:00")
    book = book_of(_gpu0_USD=[(1.0, "2026-03-15T00:00", "2026-03-15T04:00")])
    status = budget_status(budget(), book, at_ns)
    assert (status.expected, status.low, status.high) == (None, None, None)
    assert status.note == "4 h of rows are known, a forecast needs 6"
    assert status.coverage == pytest.approx(4 / (14 * 24 + 4))
    nothing = budget_status(budget(device="gpu9"), book, at_ns)
    assert (nothing.spent, nothing.coverage) == (0, 0)
    assert nothing.missing == ("no row of gpu9 tells of a cost in this period",)


def test_an_hour_that_lacks_one_of_two_gpus_tells_nothing_of_both():
    book = book_of(
        _gpu0_USD=[(1.0, "2026-03-01T00:00", "2026-03-01T06:00")],
        _gpu1_USD=[
            (1.0, "2026-03-01T01:00", "2026-03-01T03:00"),
            (1.0, "2026-03-01T04:15", "2026-03-01T06:00"),
        ],
    )
    found = hours_before(book.payers, book, ns("2026-03-01T06:00"))
    rates = {(hour.start_ns - ns("2026-03-01T00:00")) // HOUR_NS: hour.per_hour for hour in found}
    # Before gpu1 came its cost was none; in the fourth hour it is not known; of the fifth, most is.
    assert rates == pytest.approx({0: 1.0, 1: 2.0, 2: 2.0, 4: 2.0, 5: 2.0})


def look(spent, expected, amount=100, at="2026-03-10T00:00", **keys):
    """A status with the figures that are given."""
    day = at[:11]
    hours = [(spent, f"{day}00:00", f"{day}01:00"), (0.0, f"{day}01:00", f"{day}12:00")]
    book = book_of(_gpu0_USD=hours)

    def forecaster(*_):
        return None if expected is None else Forecast(expected - spent, 0.0, 2 * expected, "m", 9)

    return budget_status(budget(amount=amount, **keys), book, ns(f"{day}12:00"), forecaster)


def taken(watch, *looks):
    """The names of the conditions that each look told."""
    return [[event.metric for event in watch.take(status)[1]] for status in looks]


def test_an_exceeded_budget_is_told_once_a_period():
    watch = BudgetWatch()
    assert taken(watch, look(99, 99), look(101, None), look(102, None), look(103, None)) == [
        [],
        ["budget_exceeded"],
        [],
        [],
    ]
    assert watch.take(look(99, 99))[0].is_exceeded
    april = look(101, None, at="2026-04-10T00:00")
    assert taken(watch, look(3, 50, at="2026-04-09T00:00"), april) == [[], ["budget_exceeded"]]


def test_a_forecast_that_wavers_is_told_once():
    watch = BudgetWatch()
    looks = [look(10, expected) for expected in (101, 99, 101, 102, 97, 101, 94, 101, 120)]
    assert taken(watch, *looks) == [[], [], [], ["budget_forecast"], [], [], [], [], []]
    watch = BudgetWatch()
    standings = [watch.take(status)[0].is_forecast for status in looks]
    assert standings == [False, False, False, True, True, True, False, False, False]


def test_what_was_told_outlives_a_restart():
    watch = BudgetWatch()
    watch.take(look(101, 200))
    again = BudgetWatch.restore(json.loads(json.dumps(watch.document())))
    assert taken(again, look(102, 200)) == [[]]
    for damaged in (
        {},
        {**watch.document(), "forecast": "maybe"},
        {**watch.document(), "above": "x"},
    ):
        with pytest.raises((KeyError, TypeError, ValueError)):
            BudgetWatch.restore(damaged)


def test_an_event_and_a_row_say_what_a_reader_needs():
    status = look(101, None, device="gpu0")
    standing, (event,) = BudgetWatch().take(status)
    assert (event.severity, event.device, dict(event.subject)) == (
        "critical",
        "gpu0",
        {"budget": "b"},
    )
    assert event.detail.startswith("budget b: 101.00 of 100.00 USD for March 2026 are spent with")
    assert (event.before, event.after) == ("100", "101")
    row = budget_point(status, standing, {"host": "h"})
    assert row.tags == {
        "host": "h",
        "budget": "b",
        "period": "month",
        "currency": "USD",
        "device": "gpu0",
    }
    assert row.fields["exceeded"] is True
    assert "forecast" not in row.fields
    assert "it will be 150.00 (80 %:" in forecast_words(look(101, 150))


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(0, 300)), max_size=30))
def test_each_condition_is_told_at_most_once_a_period(figures):
    statuses = [look(round(spent), round(spent) + round(more)) for spent, more in figures]
    told = [name for names in taken(BudgetWatch(), *statuses) for name in names]
    assert len(told) == len(set(told))
