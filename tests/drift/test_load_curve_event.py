"""A changed load curve: its message, its incident, and its end."""

import math
from dataclasses import replace

import pytest
from costprobe.alerts.rules.changes import LoadCurveRule, LoadCurveRuleConfig
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import event_point
from costprobe.drift.load_curve import PresentLoad, load_curve_event, newest_shift
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint
from fakes.page_examples import missing_lines

DAY_NS = 86_400 * NS_PER_S
MONDAY_NS = 1_767_571_200 * NS_PER_S  # 2026-01-05 00:00 UTC


def measured(day, factors, fingerprint="abc"):
    """A curve of a server that costs 0.001 a second; its throughput by requests in flight."""
    points = []
    for number, (per_s, factor) in enumerate(zip((100, 400, 1000), factors, strict=True), 1):
        figures = {
            "tokens_out_per_s": per_s * factor,
            "requests": 400.0,
            "cost_per_million_tokens_out": 1e3 / (per_s * factor),
            "latency_p50_ms": 100.0,
            "latency_p90_ms": 100.0,
            "latency_mean_ms": 100.0,
        }
        known = {**dict.fromkeys(FIGURES), **figures}
        points.append(LoadPoint("closed", number, 4 ** (number - 1), known))
    return LoadCurve(
        "chat", "gpu0", "USD", fingerprint, MONDAY_NS + day * DAY_NS, {}, tuple(points)
    )


def telemetry(clock_mhz):
    fields = {"sm_clock_mhz": clock_mhz, "util_pct": 99.0, "temp_c": 60.0}
    return [Point("device", {"device": "gpu0", "uuid": "GPU-1"}, fields, 1) for _ in range(9)]


def event(curves, clocks=(1980.0, 1980.0), load=None):
    shift = newest_shift(curves)
    return load_curve_event(shift, tuple(map(telemetry, clocks)), load)


BEFORE = measured(0, (1, 1, 1))


def test_message_states_load_amount_money_since_and_what_changed_with_it():
    slower = measured(3, (0.9, 0.8, 0.7), "def")
    # 240 a second for two replicas: nearest to the point of 100, which costs 10 instead of 11.11.
    found = event([BEFORE, slower], load=PresentLoad(240.0, 2))
    # Of 1e-3 a second a tenth is lost.
    month = 1e-4 * 730 * 3600
    assert found.title == (
        "cost per million generated tokens of the load curve of chat on gpu0 at 1 in flight is +11.1 %"
        " at constant price (+$1.11 per million generated tokens) since 2026-01-05 00:00 UTC,"
        " worth $260 a month of this device's capacity if it is fully used"
    )
    assert found.cost_per_month == pytest.approx(month)
    assert found.detail == (
        "generated tokens/s 100 → 90 at 1 in flight; throughput -20.0 % ±0.0 % at the median of"
        " 3 loads; cause: software 100 % (83 to 100 %): fingerprint abc → def. To do: roll back the"
        " update, or accept the new level if it was intended"
    )
    assert (found.severity, found.cause, found.level_pct) == (
        "warning", "software: fingerprint", pytest.approx(-20.0),
    )  # fmt: skip


def test_same_software_names_the_clock_and_no_price_the_throughput():
    slower = measured(3, (0.9, 0.8, 0.7))
    clocked = event([BEFORE, slower], (1980.0, 1410.0))
    assert missing_lines("load.md", f"{clocked.title}\n{clocked.detail}") == []
    # Without production the load with most work: 1000 → 700.
    assert "generated tokens/s 1,000 → 700 at 16 in flight" in clocked.detail
    assert "worth $790 a month" in clocked.title
    # A lower clock by 2 % is no cause of a third less.
    assert event([BEFORE, slower], (1980.0, 1940.0)).cause == "unknown"
    unknown = event([BEFORE, slower])
    assert "cause: unknown, no monitored signal explains it" in unknown.detail
    assert "To do: compare the server's options" in unknown.detail
    unpriced = [
        replace(
            each,
            currency="",
            points=tuple(
                replace(p, figures={**p.figures, "cost_per_million_tokens_out": None})
                for p in each.points
            ),
        )
        for each in (BEFORE, slower)
    ]
    assert event(unpriced).title == (
        "throughput of the load curve of chat on gpu0 at 16 in flight is -30.0 % since"
        " 2026-01-05 00:00 UTC"
    )
    faster = event([BEFORE, measured(3, (1.2, 1.2, 1.2), "def")])
    assert (faster.severity, faster.detail[-20:]) == ("info", " No action is needed")


def test_incident_ends_when_a_curve_is_back_or_accepted():
    curves = [BEFORE, measured(3, (0.8, 0.8, 0.8)), measured(4, (0.99, 1, 1.01))]
    rule = LoadCurveRule(LoadCurveRuleConfig(name="r", kind="load_curve"))
    shifted = event_point(event(curves[:2]), {"host": "h"})
    rule.observe(shifted)
    rule.observe(replace(shifted, tags={**shifted.tags, "metric": "cost"}))
    (symptom,) = rule.evaluate(shifted.time_ns, ())
    assert (symptom.text, symptom.detail) == (shifted.fields["title"], shifted.fields["detail"])
    assert (symptom.since_ns, symptom.severity) == (BEFORE.time_ns, "warning")
    assert symptom.labels == {"device": "gpu0", "probe": "chat"}
    assert math.isclose(symptom.value, -20.0)
    back = event(curves)
    assert (back.level_pct, back.severity) == (0.0, "info")
    assert back.title == "load curve of chat on gpu0 is back at the level before"
    rule.observe(event_point(back, {"host": "h"}))
    assert not rule.evaluate(back.time_ns, ())
    rule.observe(shifted)
    assert rule.evaluate(shifted.time_ns + 7 * DAY_NS, ())
    assert not rule.evaluate(shifted.time_ns + 7 * DAY_NS + 1, ())
