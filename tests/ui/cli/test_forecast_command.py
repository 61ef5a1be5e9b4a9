"""`costprobe forecast` on a store of a growing service."""

import math
import time
from datetime import UTC, date, datetime, timedelta

import pytest
from costprobe.core.records import Point
from fakes.documents import checked
from fakes.page_examples import missing_lines

HOUR_NS = 3600 * 10**9
DAYS = 60
MONTH_H = 730
CONFIG = """
[[price]]
plan = "on_demand"
per_hour = 3.6
electricity_included = false
[electricity]
tariff_per_kwh = 0.3
timezone = "UTC"
[[service]]
name = "chat"
engine = "vllm"
url = "http://127.0.0.1:9"
devices = ["gpu0"]
"""
# A device answers 10,000 requests in a busy hour, and draws 100 W, or 400 W while it computes.
PER_BUSY_HOUR, IDLE_W, BUSY_W = 10_000, 100.0, 400.0
FIRST, GROWTH_PER_DAY = 0.2, 0.01


def busy_share(day, hour):
    """Busy share of an hour: 1 % more each day; twice the mean of a day at noon, none at midnight."""
    return FIRST * (1 + GROWTH_PER_DAY * day) * (1 - math.cos(2 * math.pi * hour / 24))


def rows(now_ns, days=DAYS, *, util=True):
    """Rows of an hour each, from midnight until the last midnight."""
    end_ns = now_ns // (24 * HOUR_NS) * 24 * HOUR_NS
    gpu = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": "NVIDIA H100"}
    for number in range(days * 24):
        at_ns = end_ns - (days * 24 - 1 - number) * HOUR_NS
        share = busy_share(*divmod(number, 24))
        fields = {"power_w": IDLE_W + (BUSY_W - IDLE_W) * share}
        if util:
            fields["util_pct"] = 100 * share
        yield Point("device", gpu, fields, at_ns)
        counts = {"requests": share * PER_BUSY_HOUR, "window_s": 3600.0, "complete": True}
        yield Point("serving", {"service": "chat", "engine": "vllm"}, counts, at_ns)


@pytest.fixture
def forecast(costprobe):
    def run(points, *arguments, code=0, head=CONFIG):
        costprobe.write(head)
        costprobe.append(points)
        return costprobe("forecast", *arguments, code=code)

    return run


def test_growth_of_a_service_and_the_end_of_its_capacity(forecast):
    now_ns = time.time_ns()
    (found,) = checked("forecast", forecast(rows(now_ns), "--horizon", "90d", "--json"))
    assert (found["workload"], found["unit"], found["history_d"]) == (
        "chat on gpu0",
        "requests",
        60,
    )
    per_day = [24 * FIRST * (1 + GROWTH_PER_DAY * day) * PER_BUSY_HOUR for day in range(150)]
    load = found["load_per_d"]
    assert load["value"] == pytest.approx(sum(per_day[53:60]) / 7)
    assert load["forecast_low"] < sum(per_day[143:]) / 7 < load["forecast_high"]
    assert len(found["days"]) == 90
    today = datetime.now(UTC).date()
    assert found["days"][0]["day"] == today.isoformat()
    # 2 x 0.2 x (1 + 0.01 x day) exceeds 0.8 of a device on day 101.
    assert found["usable_devices"] == pytest.approx(0.8)
    assert found["busy_devices_max"]["value"] == pytest.approx(0.4 * 1.59)
    end = {name: date.fromisoformat(day) for name, day in found["capacity_end"].items()}
    assert end["earliest"] <= today + timedelta(41) <= end["latest"]
    assert abs(end["expected"] - (today + timedelta(41))) < timedelta(8)
    # 300 W x 3,600 s for 10,000 requests are 108 J each; 0.03 kWh for 1,000.
    per_thousand = found["per_thousand"]
    assert per_thousand["energy_j"] == pytest.approx(108_000)
    assert per_thousand["cost_energy"] == pytest.approx(0.009)
    assert per_thousand["cost_hardware"] == pytest.approx(3.6 / 8000 * 1000)
    mean_w = IDLE_W + (BUSY_W - IDLE_W) * load["value"] / 24 / PER_BUSY_HOUR
    now = MONTH_H * (3.6 + mean_w / 1000 * 0.3)
    cost = found["cost_per_month"]
    assert cost["value"] == pytest.approx(now, rel=1e-3)
    more = (load["forecast"] - load["value"]) / 1000 * 0.009 * MONTH_H / 24
    assert found["devices_needed"]["forecast"] == 2
    assert cost["forecast"] == pytest.approx(now + MONTH_H * 3.6 + more, rel=1e-3)
    assert found["next_device_cost_per_month"] == pytest.approx(MONTH_H * 3.6)
    assert missing_lines("growth.md", forecast([], "--horizon", "90d")) == []
    assert "capacity ends: not within 30 days; earliest" in forecast([], "chat", "--horizon", "30d")


def test_missing_measurements_are_named(forecast):
    now_ns = time.time_ns()
    head = CONFIG.replace('plan = "on_demand"', 'plan = "on_demand"\ndevice = "gpu7"')
    points = list(rows(now_ns, days=30, util=False))
    (found,) = checked("forecast", forecast(points, "--horizon", "90d", "--json", head=head))
    assert found["load_per_d"] is not None
    assert (found["capacity_end"], found["cost_per_month"], found["per_thousand"]) == (
        None,
        None,
        None,
    )
    assert "for the end of capacity: utilization of gpu0" in found["needs"]
    assert "a price of gpu0 in [[price]]" in found["needs"]
    assert "not measured" in forecast([], "--horizon", "90d", head=head)


def test_short_history_is_stated(forecast):
    text = forecast(rows(time.time_ns(), days=5), "--horizon", "90d")
    assert "needed: 21 days of load; there are 5" in text
