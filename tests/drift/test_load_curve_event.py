"""A changed load curve: its message, its incident, and its end."""

import math
from dataclasses import replace

from costprobe.alerts.rules.changes import LoadCurveRule, LoadCurveRuleConfig
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import event_point
from costprobe.drift.load_curve import PresentLoad, load_curve_event, newest_shift
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint
from fakes.page_examples import missing_lines
from record.record_files import check

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


SLOWER, LESS = measured(3, (0.9, 0.8, 0.7), "def"), measured(3, (0.9, 0.8, 0.7))
UNPRICED = [
    replace(
        each,
        currency="",
        points=tuple(
            replace(p, figures={**p.figures, "cost_per_million_tokens_out": None})
            for p in each.points
        ),
    )
    for each in (BEFORE, LESS)
]
CASES = {
    # 240 a second for two replicas: nearest to the point of 100, which costs 10 instead of 11.11; of 1e-3 a
    # second a tenth is lost: 263 a month.
    "an update": ([BEFORE, SLOWER], (1980.0, 1980.0), PresentLoad(240.0, 2)),
    # Without production the load with most work: 1000 to 700.
    "a lower clock": ([BEFORE, LESS], (1980.0, 1410.0)),
    # A lower clock by 2 % is no cause of a third less.
    "a little lower clock": ([BEFORE, LESS], (1980.0, 1940.0)),
    "no signal": ([BEFORE, LESS],),
    "no price": (UNPRICED,),
    "faster": ([BEFORE, measured(3, (1.2, 1.2, 1.2), "def")],),
}


def test_messages_state_load_amount_money_since_and_what_changed_with_it():
    """The record has the message of each change; see `record_files`."""
    lines = []
    for name, case in CASES.items():
        found = event(*case)
        month = found.cost_per_month and round(found.cost_per_month, 2)
        lines += [
            f"{name}: {found.severity}, cause {found.cause!r}, {found.level_pct:.2f} %, {month}"
        ]
        lines += [f"  {found.title}", f"  {found.detail}"]
    check("load_curve_messages.txt", "\n".join([*lines, ""]))
    clocked = event(*CASES["a lower clock"])
    assert missing_lines("load.md", f"{clocked.title}\n{clocked.detail}") == []


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
