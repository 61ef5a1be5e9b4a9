"""`costprobe forecast` on a store of a growing service."""

import math

import pytest
from costprobe.core.records import Point
from fakes.cli import NOW_S, host, session
from fakes.page_examples import missing_lines

HOUR_NS = 3600 * 10**9
DAYS = 60
MONTH_H = 730
# A device answers 10,000 requests in a busy hour, and draws 100 W, or 400 W while it computes.
PER_BUSY_HOUR, IDLE_W, BUSY_W = 10_000, 100.0, 400.0
FIRST, GROWTH_PER_DAY = 0.2, 0.01


def busy_share(day, hour):
    """Busy share of an hour: 1 % more each day; twice the mean of a day at noon, none at midnight."""
    return FIRST * (1 + GROWTH_PER_DAY * day) * (1 - math.cos(2 * math.pi * hour / 24))


def rows(days=DAYS, *, util=True):
    """Rows of an hour each, from midnight until the last midnight."""
    end_ns = NOW_S * 10**9 // (24 * HOUR_NS) * 24 * HOUR_NS
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


@pytest.mark.usefixtures("stopped")
def test_growth_of_a_service_and_the_end_of_its_capacity(costprobe):
    """The record against what the load says.

    2 x 0.2 x (1 + 0.01 x day) exceeds 0.8 of a device on day 101, in 41 days: 2026-08-02. Above idle, 300 W x
    3,600 s for 10,000 requests are 108 J each, or 0.03 kWh and 0.009 USD for 1,000; a device with 20 % free
    answers 8,000 in an hour for 3.6 USD.
    """
    costprobe.write(host("forecast"))
    costprobe.append(rows())
    session("forecast", costprobe.config)
    (found,) = costprobe.json("forecast", "--horizon", "90d")
    per_day = [24 * FIRST * (1 + GROWTH_PER_DAY * day) * PER_BUSY_HOUR for day in range(150)]
    load = found["load_per_d"]
    assert load["value"] == pytest.approx(sum(per_day[53:60]) / 7)
    assert load["forecast_low"] < sum(per_day[143:]) / 7 < load["forecast_high"]
    mean_w = IDLE_W + (BUSY_W - IDLE_W) * load["value"] / 24 / PER_BUSY_HOUR
    now = MONTH_H * (3.6 + mean_w / 1000 * 0.3)
    more = (load["forecast"] - load["value"]) / 1000 * 0.009 * MONTH_H / 24
    cost = found["cost_per_month"]["value"], found["cost_per_month"]["forecast"]
    assert cost == pytest.approx((now, now + MONTH_H * 3.6 + more), rel=1e-3)
    assert missing_lines("growth.md", costprobe("forecast", "--horizon", "90d")) == []


@pytest.mark.usefixtures("stopped")
def test_missing_measurements_and_a_short_history_are_named(costprobe):
    costprobe.write(
        host("forecast").replace('plan = "on_demand"', 'plan = "on_demand"\ndevice = "gpu7"')
    )
    costprobe.append(rows(days=5, util=False))
    session("forecast_of_little", costprobe.config)
