"""Each kind of rule finds symptoms in rows, events and faults, and clears them."""

import json
from dataclasses import replace

from costprobe.alerts.rules.faults import OF_FLEET
from costprobe.alerts.rules.kinds import effective_rules, rule_of
from costprobe.configuration import AnyRule
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.schema import event_point
from pydantic import TypeAdapter
from record.record_files import check

T0 = 1_800_000_000 * NS_PER_S
RULE = TypeAdapter(AnyRule)


def rule(kind, **more):
    return RULE.validate_python({"name": "r", "kind": kind, **more})


def at(seconds):
    return T0 + int(seconds * NS_PER_S)


def row(seconds, measurement="device", tags=None, **fields):
    return Point(measurement, tags or {"host": "h", "device": "gpu0"}, fields, at(seconds))


def texts(evaluator, seconds, faults=()):
    return [symptom.text for symptom in evaluator.evaluate(at(seconds), faults)]


def restarted(evaluator, config):
    other = rule_of(config)
    other.restore(json.loads(json.dumps(evaluator.document())))
    return other


def drift(seconds, level_pct, metric="latency", **more):
    event = Event(
        kind="drift",
        severity="warning",
        title="it moved",
        time_ns=at(seconds),
        detail="latency moved because of heat",
        device="gpu0",
        subject={"probe": "e"},
        metric=metric,
        change_pct=level_pct,
        level_pct=level_pct,
        since_ns=at(seconds - 600),
        cause="cooling",
    )
    return replace(event, **more)


def temps(*values, every_s=10, field="temp_c", measurement="device", tags=None):
    """Rows of a series, each with an evaluation."""
    return [
        step
        for index, value in enumerate(values)
        for step in (row(index * every_s, measurement, tags, **{field: value}), index * every_s)
    ]


PROBE = {"device": "gpu0", "probe": "e"}
HOT = rule("threshold", measurement="device", field="temp_c", above=85, clear=80)
THROTTLED = {"measurement": "probe", "field": "throttled_thermal_pct", "tags": PROBE}
DRIFT = rule("drift", at_least="2%", accept_after="1d")
OUTLIER = {"metric": "cost", "kind": "anomaly", "change_pct": 40.0, "title": "one is an outlier"}
TWICE, AGAIN = [drift(0, None, **OUTLIER)] * 2, drift(600, None, **OUTLIER)
FURTHER = {"detail": "", "cause": "", "since_ns": None, "title": "shifted further, to +6 %"}
COST = {"amount": 10, "per": "1d"}
SPENT = [
    row(hour * 3600, tags={"device": device}, cost=0.25)
    for hour in range(24)
    for device in ("gpu0", "gpu1")
]
OTHER_CURRENCY = row(0, tags={"device": "gpu0", "currency": "USD"}, cost=100.0)
RESTART = "restart"


def runs(slow, count=20):
    """Runs of which the first are slow."""
    found = (20.0 if index < slow else 5.0 for index in range(count))
    values = enumerate(found)
    return [row(300 * index, "probe", PROBE, latency_p90_ms=value) for index, value in values]


def seen(count):
    return [row(300 * index, "probe", PROBE, samples=1) for index in range(count)]


SLO = rule("slo", within_ms=10, objective="90%", window="1d", min_runs=10)
SERVED = rule("slo", bound="ttft_p90", window="1h", min_runs=100)


def timed(*met, bound="ttft_p90", of=100.0):
    """A window of requests every five minutes, of which so many were fast enough."""
    tags = {"service": "chat", "bound": bound}
    counts = enumerate(met)
    return [row(300 * n, "slo", tags, requests=of, requests_met=float(one)) for n, one in counts]


ABSENT = rule("absence", measurement="probe", intervals=3, at_least="1m")
WEEK_S = 7 * 86_400
# A rule, and steps: a row or event, an evaluation after so many seconds, a restart.
SCRIPTS = {
    "a threshold": (HOT, temps(84.0, 91.5, 82.0, 80.0)),
    "a lower limit": (
        rule("threshold", measurement="device", field="sm_clock_mhz", below=1000),
        temps(1000.0, 900.0, field="sm_clock_mhz"),
    ),
    "throttling": (
        rule("threshold", measurement="probe", field="throttled_thermal_pct", above=5),
        temps(25.0, **THROTTLED),
    ),
    "a stale value": (HOT, [*temps(90.0, 90.0, 90.0), 60, 120]),
    "a step of the wall clock": (
        HOT,
        [*temps(90.0, 90.0, 90.0), row(7220, temp_c=90.0), 7280, 7340],
    ),
    "downtime": (HOT, [*temps(90.0, 90.0, 90.0), RESTART, 7200, 7320]),
    "two batches of a probe": (
        rule("threshold", measurement="probe", field="latency_p50_ms", above=5),
        [row(0, "probe", {**PROBE, "batch": batch}, latency_p50_ms=9.0) for batch in ("8", "16")]
        + [0],
    ),
    "a drift until it is normal": (DRIFT, [drift(0, 6.0), 0, RESTART, 9, 86_400, 86_401]),
    "a drift until it reverts": (DRIFT, [drift(0, 6.0), drift(3600, 0.9), 3600]),
    "a further shift": (DRIFT, [drift(0, 3.0), drift(900, 6.0, **FURTHER), 900]),
    "an improvement": (DRIFT, [drift(0, -6.0, severity="info"), 0]),
    "only up: a rise": (rule("drift", direction="up"), [drift(0, 6.0), 0]),
    "only up: a fall": (rule("drift", direction="up"), [drift(0, -6.0), 0]),
    "only down: a fall": (rule("drift", direction="down"), [drift(0, -6.0), 0]),
    "another metric": (rule("drift", metrics=["cost"]), [drift(0, 6.0), 0]),
    "a smaller drift": (rule("drift", at_least="10%"), [drift(0, 6.0), 0]),
    # An event may be delivered twice, after a restart.
    "anomalies": (
        rule("anomaly", at_least=2, within="1h"),
        [*TWICE, 0, AGAIN, 600, RESTART, 3600, 3601],
    ),
    "a budget of a day": (
        rule("budget", **COST, currency="EUR"),
        [*SPENT, OTHER_CURRENCY, 23 * 3600, RESTART, 30 * 3600],
    ),
    "a budget that warns": (
        rule("budget", **COST, warn_at="80%"),
        temps(7.9, 0.1, every_s=1, field="cost"),
    ),
    "an absence": (
        ABSENT,
        [*seen(4), 1800, 1801, 900 + WEEK_S, 901 + WEEK_S],
    ),
    "an absence that ends": (ABSENT, [*seen(4), 1801, row(2000, "probe", PROBE, samples=1), 2000]),
    "an absence over downtime": (ABSENT, [*seen(4), RESTART, 40_000, 40_900, 40_901]),
    "two rows have no interval": (ABSENT, [*seen(2), 50_000]),
    "an objective that is met": (SLO, [*runs(2), 6000]),
    "an objective that is missed": (SLO, [*runs(3), 6000]),
    "a service level that is met": (SERVED, [*timed(95, 85), *timed(0, bound="tpot_p90"), 600]),
    "a service level that is missed": (SERVED, [*timed(95, 70), 600, RESTART, 600, 2 * 3600]),
    "too few requests for a service level": (SERVED, [*timed(5, of=10.0), 600]),
    "too few runs for an objective": (SLO, [*runs(9, count=9), 6000]),
    "an objective over a day": (SLO, [*runs(20), RESTART, 6000, 2 * 86_400]),
}


def test_symptoms_of_scripted_rules():
    """The record has the symptoms at each evaluation, with the start of each; see `record_files`."""
    lines = []
    for name, (config, steps) in SCRIPTS.items():
        evaluator = rule_of(config)
        lines.append(f"{name}:")
        for step in steps:
            if step == RESTART:
                evaluator = restarted(evaluator, config)
            elif not isinstance(step, int):
                evaluator.observe(event_point(step, {}) if isinstance(step, Event) else step)
            else:
                found = evaluator.evaluate(at(step), ())
                lines += [f"  {step} s: {len(found)}"]
                for one in found:
                    since_s = (one.since_ns - T0) // NS_PER_S
                    of = f"{one.labels} since {since_s} s, {one.value} of {one.threshold}"
                    lines += [f"    {one.severity} {of}: {one.text}"]
                    lines += [f"    {text}" for text in (one.cause, one.detail) if text]
    check("alert_symptoms.txt", "\n".join([*lines, ""]))


def test_threshold_text_states_the_limit_that_was_violated():
    """A reload with another limit must not rewrite what fired."""
    hot = rule_of(HOT)
    hot.observe(row(0, temp_c=86.0))
    assert texts(hot, 0)
    raised = rule_of(rule("threshold", measurement="device", field="temp_c", above=95))
    raised.restore(hot.document())
    (symptom,) = raised.evaluate(at(1), ())
    assert (symptom.text, symptom.threshold) == ("temp_c of gpu0 is 86, above 85", 85)
    raised.observe(row(10, temp_c=86.0))
    assert not texts(raised, 10)


def test_severity_of_a_fault_applies_unless_the_rule_sets_one():
    lost = Fault("device_lost", "gpu3", "gpu3 does not answer", "critical", {"device": "gpu3"})
    disk = Fault("disk_low", "", "little room", "critical")
    (symptom,) = rule_of(rule("fault", faults=["device_lost"])).evaluate(at(0), [lost, disk])
    assert (symptom.severity, symptom.cause, symptom.text) == (
        "critical",
        "device_lost",
        "gpu3 does not answer",
    )
    assert [
        s.severity for s in rule_of(rule("fault", severity="info")).evaluate(at(0), [disk])
    ] == ["info"]


def test_findings_of_a_fleet_match_only_rules_that_name_them():
    found = [Fault(name, "h03", name, "warning") for name in (*OF_FLEET, "fleet_unread")]
    assert texts(rule_of(rule("fault")), 0, found) == ["fleet_unread"]
    assert texts(rule_of(rule("fault", faults=["gpu_outlier"])), 0, found) == ["gpu_outlier"]


def test_configured_rule_replaces_a_built_in_rule():
    mine = RULE.validate_python({"name": "drift", "kind": "drift", "at_least": "9%"})
    off = RULE.validate_python({"name": "anomaly", "kind": "anomaly", "enabled": False})
    rules = {found.name: found for found in effective_rules([mine, off], use_defaults=True)}
    assert rules["drift"] is mine
    assert "anomaly" not in rules
    assert "broken" in rules
    assert effective_rules([mine], use_defaults=False) == [mine]
