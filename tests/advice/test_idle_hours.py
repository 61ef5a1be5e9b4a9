"""Idle hours of the week."""

from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from costprobe.domain.advice import idle_hours
from costprobe.domain.advice.device_history import HOUR_NS
from costprobe.domain.advice.history import History
from costprobe.domain.advice.idle_hours import (
    HOURS_A_WEEK,
    described_runs,
    hour_of_week,
    runs_of,
)
from fakes.past import MONDAY, device, terms
from hypothesis import given
from hypothesis import strategies as st

UTC = ZoneInfo("UTC")


def office(hour):
    """Busy from Monday to Friday, from 8 to 20."""
    return 60.0 if hour % 168 < 120 and 8 <= hour % 24 < 20 else 0.0


def advised(*devices, **more):
    (found,) = idle_hours.advise(History({one.name: one for one in devices}, zone=UTC, **more))
    return found


def test_nights_and_the_weekend():
    # 168 - 60 = 108 idle hours of a week; four weeks: 432 of 672 h, x 730 x 3.60.
    hint = advised(device(util_of=office, days=28))
    assert hint.saving_per_month == Decimal("1689.43")
    assert hint.action == (
        "switch it off for 108 hours of the week: mon tue wed thu 20:00 to 08:00 1 day later,"
        " fri 20:00 to mon 08:00"
    )
    assert "utilization in them, without probes: at most 0 %, no request served" in hint.evidence
    assert hint.had == "28.0 days of utilization"


def test_hour_busy_in_one_week_is_not_idle():
    def busy_once(hour):
        return 60.0 if hour == 3 * 168 + 163 else office(hour)

    hint = advised(device(util_of=busy_once, days=28))
    assert "107 hours of the week" in hint.action


def test_hours_already_off_are_no_saving():
    def weekends_off(hour):
        return None if hour % 168 >= 120 else office(hour)

    # 60 idle hours a week remain; hours without data are not counted as a saving.
    hint = advised(device(util_of=weekends_off, days=33))
    assert "60 hours of the week" in hint.action
    # 300 idle hours in the 33 days = 792 h up to the last covered hour.
    assert hint.saving_per_month == (Decimal(300) / 792 * 730 * Decimal("3.6")).quantize(
        Decimal("0.01")
    )


def test_any_request_is_work_and_doubtful_hours_are_not_idle():
    past = device(util_of=office, days=28)
    for week in range(4):
        hour = MONDAY + week * 168 + 2
        past.add_service(hour * HOUR_NS, (hour + 1) * HOUR_NS, 1.0, is_complete=True)
        past.add_service((hour + 1) * HOUR_NS, (hour + 2) * HOUR_NS, 0.0, is_complete=False)
    action = advised(past).action
    assert "106 hours of the week: mon 04:00 to 08:00, mon tue" in action
    assert action.endswith("fri 20:00 to mon 02:00")


def test_host_is_switched_off_as_a_whole():
    first = device("gpu0", util_of=office, days=28)
    second = device("gpu1", util_of=lambda hour: 60.0 if hour % 24 < 8 else 0.0, days=28)
    hint = advised(first, second, rented_together=[("gpu0", "gpu1")])
    assert (hint.subject, hint.devices) == ("gpu0 and gpu1", ("gpu0", "gpu1"))
    # 20 to 24 on five days, 8 to 24 on two: 52 of 168 hours of two devices.
    assert hint.saving_per_month == (Decimal(52) / 168 * 730 * Decimal("7.2")).quantize(
        Decimal("0.01")
    )


def test_prepaid_device_saves_electricity_only():
    reserved = device(util_of=office, days=28, price=terms(plan="reserved"), power_w=100)
    assert "billed whether used or not (reserved)" in advised(reserved).reason
    # 100 W in 108 / 168 x 730 h at 0.36 a kWh.
    owned = terms("1", "owned", electricity_per_j=1e-7)
    hint = advised(device(util_of=office, days=28, price=owned, power_w=100))
    assert hint.saving_per_month == Decimal("16.89")


def test_less_than_two_weeks_give_no_hint():
    short = advised(device(util_of=office, days=13))
    assert (short.had, short.needed) == ("13.0 days of utilization", "14.0 days of utilization")
    assert advised(device(days=28)).needed == ""
    assert "2 consecutive hours" in advised(device(util_of=lambda h: h % 2 * 60.0, days=28)).reason


def test_cpu_next_to_a_board_and_mig_device_are_not_switched_off():
    board, processor = device("gpu0", days=28), device("cpu", kind="cpu", days=28)
    assert advised(board, processor).subject == "gpu0"
    alone = device("cpu", kind="cpu", util_of=lambda _: 4.0, days=28)
    assert "168 hours of the week: all of it" in advised(alone).action
    part = device("gpu0.mig0", kind="mig", days=28)
    assert list(idle_hours.advise(History({"gpu0.mig0": part}))) == []


def test_hours_of_the_week_are_in_local_time():
    assert hour_of_week(MONDAY, UTC) == 0
    berlin = ZoneInfo("Europe/Berlin")
    # In winter an hour ahead, in summer two.
    assert hour_of_week(MONDAY, berlin) == 1
    assert hour_of_week(MONDAY + 26 * 168, berlin) == 2


@given(st.sets(st.integers(0, HOURS_A_WEEK - 1)))
def test_runs_contain_every_hour_once(slots):
    runs = runs_of(slots)
    held = [(start + step) % HOURS_A_WEEK for start, length in runs for step in range(length)]
    assert sorted(held) == sorted(slots)
    for start, length in runs:
        if length < HOURS_A_WEEK:
            assert (start - 1) % HOURS_A_WEEK not in slots
            assert (start + length) % HOURS_A_WEEK not in slots


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([(2, 3)], "mon 02:00 to 05:00"),
        ([(20, 4), (44, 4)], "mon tue 20:00 to 24:00"),
        ([(164, 8)], "sun 20:00 to mon 04:00"),
        ([(0, 168)], "all of it"),
    ],
)
def test_hours_are_formatted(runs, words):
    assert described_runs(runs) == words
