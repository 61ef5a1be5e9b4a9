"""Devices that are started and released with the requests, by hand-computed and seeded arrivals."""

from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from costprobe.core.records import Point
from costprobe.savings.history import ColdStart, measured_cold_starts
from costprobe.savings.savings import savings
from costprobe.savings.supply import replayed
from costprobe.savings.workload import HourLoad, Minutes
from fakes.past import busy_with, device, figures, history, price, probe, service

UTC = ZoneInfo("UTC")
S = 10**9
WEEK_MIN = 7 * 24 * 60
START = ColdStart(60.0, "stated")
DAYS = 21


def answer(past, name="chat on gpu0"):
    (found,) = [each for each in savings(past) if each.workload.name == name]
    return found


def savings_of(found):
    return {supply.action: float(supply.saving_per_month) for supply in found.supplies}


def ten_minutes_an_hour(minute):
    """6 requests in each of the first ten minutes of an hour."""
    return 6 if minute % 60 < 10 else 0


def served(requests_of, start_s=60.0, util_of=lambda count: 20.0 if count else 0.0, **more):
    """One device with one service, three weeks of which the last one is held out."""
    return history(
        busy_with(requests_of, util_of, days=DAYS),
        served=[service(requests_of, start_s=start_s, days=DAYS)],
        zone=UTC,
        **more,
    )


def test_a_device_is_released_between_requests():
    # 10 min of work, 1 min until it is released and 1 min to start: 12 of 60 min are paid.
    found = answer(served(ten_minutes_an_hour))
    (supply,) = found.supplies
    assert supply.action == "gpu0; scale to zero, released after 60 s; on_demand"
    assert supply.saving_per_month == Decimal("2102.40")
    month = supply.choice.scaling.per_month
    # Of the 60 requests the first waits for 60 s, and five that follow in this minute 30 s.
    assert (month.starts, month.waiting, month.waiting_share) == (730, pytest.approx(4380), 0.1)
    assert month.wait_mean_s == pytest.approx((60 + 5 * 30) / 60)
    # At most 1 % of the requests wait only if the device is never released.
    assert found.devices_min == 1
    assert supply.held_out.scaled.waiting_share == 0.1
    assert supply.assumptions[-2:] == (
        "the price is paid by the second; gaps shorter than a row (60 s) are not seen",
        "requests may wait 60 s, and arrive evenly in each row",
    )


def test_a_start_is_asked_for_only_where_there_are_gaps():
    need = (
        "the time of a cold start, to compare scale to zero; set cold_start of chat in [[service]]"
    )
    measured = {"models": {"chat": "ranker"}, "probes": [probe(figures(1, 10.0))]}
    needs = answer(served(ten_minutes_an_hour, None, **measured)).needs
    assert f"{need}, or run: costprobe probe ranker --device gpu0 --cold-start" in needs
    assert need in answer(served(ten_minutes_an_hour, None)).needs
    assert not any("cold_start" in text for text in answer(served(lambda _: 6, None)).needs)
    starts = {("ranker", "gpu0"): ColdStart(30.0, "ranker on gpu0")}
    found = answer(served(ten_minutes_an_hour, None, **measured, cold_starts=starts))
    assert "gpu0; scale to zero, released after 30 s; on_demand" in savings_of(found)


def test_reserved_devices_and_unknown_minutes_are_never_released():
    def loaded(util_pct, days):
        known = service(ten_minutes_an_hour, days=days, start_s=60.0)
        return history(device(days=DAYS, util_of=lambda _: util_pct), served=[known])

    reserved = served(ten_minutes_an_hour, prices={"gpu0": [price("2", "reserved")]})
    no_service = history(busy_with(ten_minutes_an_hour, float, days=DAYS), zone=UTC)
    # Without the rows of a week, and with a device that is busy without requests.
    for past in (reserved, no_service, loaded(0.0, 14), loaded(20.0, DAYS)):
        (found,) = savings(past)
        assert not found.supplies


def test_a_workload_without_gaps_later_is_rejected():
    def until_last_week(minute):
        return ten_minutes_an_hour(minute) if minute < 2 * WEEK_MIN else 6

    found = answer(served(until_last_week))
    assert not found.supplies
    ((action, reason),) = found.rejected
    assert action.startswith("gpu0; scale to zero")
    assert reason == "saved nothing in the last 168 hours, which the choice did not use"


def hour(held, requests=(0.0,) * 60):
    """An hour with these minutes of work."""
    return HourLoad(0.0, 0.0, minutes=Minutes((0.2,) * 60, requests, held))


def test_release_after_the_break_even_time():
    for held, starts, paid_min in (
        # 20 min idle: 2 min of work, two starts of 90 s, and the time-out of 90 s after each.
        (1 | 1 << 21, 2, 2 + 2 * 1.5 + 2 * 1.5),
        # A gap of one minute is shorter than the time-out: no second start.
        (0b101, 1, 1.5 + 3 + 1.5),
    ):
        scaled = replayed({0: hour(held)}, lambda _: 1, 0, ColdStart(90.0, "")).hours[0]
        assert (scaled.starts, scaled.device_h * 60) == (starts, pytest.approx(paid_min))
    # After a gap in the telemetry the device is as it was.
    apart = {0: hour(1 << 59), 5: hour(1)}
    assert replayed(apart, lambda _: 1, 0, START).over(apart).starts == 1


def test_start_is_the_median_of_the_newest_software():
    def row(seconds, cache, at_s, fingerprint="new", on="gpu0"):
        tags = {"probe": "ranker", "device": on, "cache": cache}
        return Point("cold_start", tags, {"total_s": seconds, "fingerprint": fingerprint}, at_s * S)

    rows = [
        row(90.0, "cold", 1, "old"),
        *(row(float(seconds), "cold", 2) for seconds in (9, 10, 30)),
        row(2.0, "warm", 3),
        row(4.0, "warm", 3, on="cpu"),
    ]
    found = measured_cold_starts(rows)
    assert (found["ranker", "gpu0"].seconds, found["ranker", "cpu"].seconds) == (10.0, 4.0)
    assert found["ranker", "gpu0"].words == (
        "ranker on gpu0, median of 3 starts with a cold page cache"
    )
    assert "1 start with a warm" in found["ranker", "cpu"].words
