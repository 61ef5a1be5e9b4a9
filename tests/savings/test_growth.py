"""The growth of services and devices: what is counted, shared, missing, and rented together."""

from datetime import date
from zoneinfo import ZoneInfo

import pytest
from costprobe.core.periods import HOUR_NS
from costprobe.savings.growth import growth
from costprobe.savings.history import ServiceHistory
from costprobe.savings.savings import savings
from fakes.past import MONDAY, device, history, price

DAYS = 28
NOW_NS = (MONDAY + DAYS * 24) * HOUR_NS
MONTH = 3.6 * 730
UTC = ZoneInfo("UTC")


def service(name, on, per_hour, *, unit="requests", lost_hours=()):
    found = ServiceHistory(name, on)
    for hour in range(DAYS * 24):
        if hour not in lost_hours:
            start_ns = (MONDAY + hour) * HOUR_NS
            counts = {unit: float(per_hour)}
            found.add(start_ns, start_ns + HOUR_NS, counts, is_active=True, is_complete=True)
    return found


def found_of(*devices, served=(), **more):
    past = history(*devices, served=served, zone=UTC, **more)
    return {one.name: one for one in growth(past, NOW_NS, 30)}


def test_services_of_one_device_share_its_capacity_and_cost():
    served = (
        service("chat", ("gpu0",), 100),
        service("embed", ("gpu0",), 5000, unit="tokens_out"),
    )
    found = found_of(device(util_of=lambda _: 50.0, days=DAYS), served=served)
    chat, embed = found["chat on gpu0"], found["embed on gpu0"]
    assert (chat.unit, chat.load.now) == ("requests", pytest.approx(2400))
    assert (embed.unit, embed.load.now) == ("tokens_out", pytest.approx(120_000))
    assert chat.load.then.expected == pytest.approx(2400)
    assert chat.notes == ["capacity and cost are those of gpu0, shared with embed"]
    assert chat.money.now == embed.money.now == pytest.approx(MONTH)
    assert chat.marginal is None
    billed = {"gpu0": [price(electricity_per_j=1e-7)]}
    found = found_of(device(days=DAYS), served=served, prices=billed)["chat on gpu0"]
    assert found.money is None
    assert "the power of its devices, because electricity is billed separately" in found.needs


def test_a_part_of_a_group_has_no_cost_of_its_requests_and_no_saving():
    """What another host costs for them, and what this one must do for it, is not known here."""
    chat = service("chat", ("gpu0",), 100)
    for part in ("", "a part (decode) of the group big"):
        chat.part = part
        loaded = device(util_of=lambda _: 20.0, days=DAYS)
        found = found_of(loaded, served=(chat,))["chat on gpu0"]
        assert (found.marginal is None, found.notes) == (
            bool(part),
            [f"chat is {part}"] * bool(part),
        )
        (answer,) = savings(history(loaded, served=(chat,), zone=UTC))
        assert (answer.now is None, answer.needs == [f"chat is {part}"]) == (bool(part), bool(part))


def test_a_device_without_a_service_is_forecast_by_its_busy_hours():
    # Busier by one point each day: 60 % at the end; above 80 % in three weeks, if it continued.
    (found,) = found_of(device(util_of=lambda hour: 33.0 + hour // 24, days=DAYS)).values()
    assert (found.name, found.service, found.unit) == ("gpu0", "", "device_hours")
    assert found.load.now == pytest.approx(24 * 0.57)
    assert found.peak.now == pytest.approx(0.6)
    assert date(2024, 2, 5) <= found.capacity.expected <= date(2024, 2, 27)
    assert found.capacity.earliest <= found.capacity.expected
    assert found.marginal is None
    assert found.money.devices_then.expected == 2


def test_lost_hours_and_devices_without_rows():
    # Three hours of a day are 12.5 % of it: the day is unknown, and one lost hour is scaled.
    lost = {50, 51, 52, 100}
    served = [service("chat", ("gpu0",), 100, lost_hours=lost), service("far", ("gpu9",), 10)]
    found = found_of(device(days=DAYS), served=served)
    chat, far = found["chat on gpu0"], found["far"]
    assert chat.history_days == DAYS - 1
    assert [day.expected for day in chat.load.days] == pytest.approx([2400] * 30)
    assert far.load.now == pytest.approx(240)
    assert (far.capacity, far.money, far.marginal) == (None, None, None)
    assert far.needs == ["for the end of capacity: utilization of its devices"]
