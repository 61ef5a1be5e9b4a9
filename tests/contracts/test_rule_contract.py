"""The contract of alert rules: one suite for every kind, and for the example of contributors."""

import json
from dataclasses import replace
from typing import get_args

from contracts.examples import power_limit
from costprobe.alerts.rules.kinds import RULES, RuleKind
from costprobe.core.clock_step import ClockStep
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.schema import event_point

T0 = 1_800_000_000 * NS_PER_S
TAGS = {"host": "h", "device": "gpu0"}


def at(seconds):
    return T0 + int(seconds * NS_PER_S)


def rows(measurement, count=20, every_s=10, tags=None, **fields):
    """Rows of one series; the last is at (count - 1) * every_s."""
    return [
        Point(measurement, {**TAGS, **(tags or {})}, fields, at(index * every_s))
        for index in range(count)
    ]


def event(kind):
    own = {"title": f"a {kind}", "device": "gpu0", "subject": {"probe": "p"}, "metric": "latency"}
    found = Event(kind, "warning", time_ns=T0, since_ns=T0, change_pct=30.0, level_pct=30.0, **own)
    return event_point(found, TAGS)


BUDGET_ROW = {
    "exceeded": True,
    "forecast_exceeded": True,
    "spent": 120.0,
    "forecast": 150.0,
    "amount": 100.0,
    "period_end_ns": at(86_400),
    "text": "over budget",
}
# Keys of a valid section, and inputs after which it fires at FIRES_AT_S: a new kind is a line here.
FIRES_AT_S = 250.0
EXAMPLES = {
    "drift": ({}, [event("drift")]),
    "anomaly": ({}, [event("anomaly")]),
    "threshold": (
        {"measurement": "device", "field": "power_w", "above": 300},
        rows("device", 26, power_w=400.0),
    ),
    "budget": ({"amount": 1}, rows("device", cost=0.5)),
    "budget_exceeded": ({}, rows("budget", 1, tags={"budget": "b"}, **BUDGET_ROW)),
    "budget_forecast": ({}, rows("budget", 1, tags={"budget": "b"}, **BUDGET_ROW)),
    "absence": ({"measurement": "probe", "at_least": "30s"}, rows("probe", 15)),
    "fault": ({}, [Fault("disk_low", "", "the disk is full", labels={"device": "gpu0"})]),
    "load_curve": (
        {},
        rows(
            "event", 1, tags={"metric": "load_curve", "probe": "p"}, level_pct=-20.0, title="slower"
        ),
    ),
    "slo": ({"within_ms": 10}, rows("probe", tags={"probe": "p"}, latency_p90_ms=20.0)),
}


def section(kind, of_kind, keys):
    return of_kind.config.model_validate({"name": "r", "kind": kind, **keys})


def feed(rule, inputs):
    """Passes inputs to a rule as the alert engine does; returns the faults among them."""
    for item in inputs:
        if isinstance(item, Point) and item.measurement == rule.measurement:
            rule.observe(item)
    return [item for item in inputs if isinstance(item, Fault)]


def check(kind, of_kind, config, inputs):
    """Every MUST of docs/contributing/kinds.md."""
    assert get_args(type(config).model_fields["kind"].annotation) == (kind,)
    for name, field in type(config).model_fields.items():
        assert field.description, f"{kind}.{name} has no description"
    quiet = of_kind.rule(config)
    assert quiet.evaluate(T0, ()) == [], f"{kind} fires without input"
    quiet.restore(json.loads(json.dumps(quiet.document())))

    rule, same = of_kind.rule(config), of_kind.rule(config)
    faults = feed(rule, inputs)
    feed(same, inputs)
    found = rule.evaluate(at(FIRES_AT_S), faults)
    assert found, f"{kind} does not fire"
    assert found == same.evaluate(at(FIRES_AT_S), faults), f"{kind} is not deterministic"
    for symptom in found:
        assert (symptom.rule, bool(symptom.series), bool(symptom.text)) == ("r", True, True)
        assert T0 <= symptom.since_ns <= at(FIRES_AT_S)
        assert all(isinstance(value, str) for value in symptom.labels.values())
        over = rule.ended(replace(symptom, detail="Hot. To do: cool it"), at(FIRES_AT_S))
        assert over.text != symptom.text
        assert "To do" not in over.detail

    def series_after(*ticks):
        """The series of the symptoms at the last tick."""
        for tick_ns in ticks:
            after = rule.evaluate(tick_ns, faults)
        return [symptom.series for symptom in after]

    series = [symptom.series for symptom in found]
    rule, half = of_kind.rule(config), len(inputs) // 2
    feed(rule, inputs[:half])
    document, rule = rule.document(), of_kind.rule(config)
    rule.restore(json.loads(json.dumps(document)))
    feed(rule, inputs[half:])
    last_ns = max([T0, *(item.time_ns for item in inputs if isinstance(item, Point))])
    assert series_after(last_ns, at(FIRES_AT_S)) == series, f"{kind} lost symptoms in a restart"

    rule = same
    rule.restore(json.loads(json.dumps(rule.document())))
    assert series_after(at(FIRES_AT_S)) == series, f"{kind} resolved in a restart"
    step = ClockStep(-3600 * NS_PER_S, at(FIRES_AT_S) - 3600 * NS_PER_S)
    rule.restore(step.of_document(rule.document()))
    assert series_after(step.now_ns) == series, f"{kind} lost its symptoms"


def test_every_rule_fulfils_the_contract():
    assert set(EXAMPLES) == set(RULES)
    for kind, of_kind in RULES.items():
        keys, inputs = EXAMPLES[kind]
        check(kind, of_kind, section(kind, of_kind, keys), inputs)


def test_example_passes_the_contract():
    of_kind = RuleKind(power_limit.PowerLimitRuleConfig, power_limit.PowerLimitRule)
    keys = {"name": "r", "kind": "power_limit", "limit_w": 0}
    config = of_kind.config.model_validate(keys)
    check("power_limit", of_kind, config, rows("device", power_w=400.0))
