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


def report(rule, event):
    rule.observe(event_point(event, {}))


def played(config, rows, tags=None, measurement="device"):
    """The texts of the symptoms after each row: seconds and fields."""
    evaluator, found = rule_of(config), []
    for seconds, fields in rows:
        evaluator.observe(row(seconds, measurement, tags, **fields))
        found.append(texts(evaluator, seconds))
    return evaluator, found


HOT = rule("threshold", measurement="device", field="temp_c", above=85, clear=80)


def temps(*values, every_s=10):
    return [(index * every_s, {"temp_c": value}) for index, value in enumerate(values)]


def test_threshold_holds_until_the_value_is_clear_and_states_series_value_and_limit():
    hot, found = played(HOT, temps(84.0, 91.5, 82.0, 80.0))
    assert found == [
        [],
        ["temp_c of gpu0 is 91.5, above 85"],
        ["temp_c of gpu0 is 82 and was above 85; resolved at 80"],
        [],
    ]
    hot, _ = played(HOT, temps(91.5))
    (symptom,) = hot.evaluate(at(1), ())
    assert (symptom.value, symptom.threshold, symptom.since_ns) == (91.5, 85, at(0))
    assert symptom.labels == {"device": "gpu0"}
    low = rule("threshold", measurement="device", field="sm_clock_mhz", below=1000)
    assert played(low, [(0, {"sm_clock_mhz": 1000.0}), (10, {"sm_clock_mhz": 900.0})])[1] == [
        [],
        ["sm_clock_mhz of gpu0 is 900, below 1,000"],
    ]
    throttled = rule("threshold", measurement="probe", field="throttled_thermal_pct", above=5)
    found, _ = played(throttled, [(0, {"throttled_thermal_pct": 25.0})], measurement="probe")
    (symptom,) = found.evaluate(at(0), ())
    assert symptom.detail.startswith("To do: check fan and airflow")


def test_threshold_text_states_the_limit_that_was_violated():
    """A reload with another limit must not rewrite what fired."""
    hot, _ = played(HOT, temps(86.0))
    raised = rule_of(rule("threshold", measurement="device", field="temp_c", above=95))
    raised.restore(hot.document())
    (symptom,) = raised.evaluate(at(1), ())
    assert (symptom.text, symptom.threshold) == ("temp_c of gpu0 is 86, above 85", 85)
    raised.observe(row(10, temp_c=86.0))
    assert not texts(raised, 10)


def test_stale_value_keeps_no_symptom_and_neither_gap_nor_downtime_extends_it():
    hot, _ = played(HOT, temps(90.0, 90.0, 90.0))
    later = restarted(hot, HOT)
    assert (texts(hot, 60) != [], texts(hot, 120)) == (True, [])
    # A forward step of the wall clock is a gap.
    hot.observe(row(7220, temp_c=90.0))
    assert (texts(hot, 7220 + 60) != [], texts(hot, 7220 + 120)) == (True, [])
    assert (texts(later, 7200) != [], texts(later, 7200 + 120)) == (True, [])


def test_batches_of_one_probe_are_one_symptom():
    slow = rule_of(rule("threshold", measurement="probe", field="latency_p50_ms", above=5))
    for seconds, batch in ((0, "8"), (300, "16")):
        tags = {"device": "gpu0", "probe": "e", "batch": batch}
        slow.observe(row(seconds, "probe", tags, latency_p50_ms=9.0))
    assert texts(slow, 300) == ["latency_p50_ms of e on gpu0 is 9, above 5"]


DRIFT = rule("drift", at_least="2%", accept_after="1d")


def drifted(*events, config=DRIFT):
    found = rule_of(config)
    for event in events:
        report(found, event)
    return found


def test_drift_holds_until_it_reverts_or_is_accepted_as_normal():
    found = drifted(drift(0, 6.0))
    (symptom,) = found.evaluate(at(0), ())
    assert (symptom.text, symptom.detail) == ("it moved", "latency moved because of heat")
    assert (symptom.cause, symptom.value) == ("cooling", 6.0)
    assert symptom.since_ns == at(-600)
    assert restarted(found, DRIFT).evaluate(at(9), ()) == found.evaluate(at(9), ())
    assert texts(found, 86_400)
    assert not texts(found, 86_401)
    assert not texts(drifted(drift(0, 6.0), drift(3600, 0.9)), 3600)


def test_further_shift_keeps_start_and_cause():
    further = drift(900, 6.0, detail="", cause="", since_ns=None, title="shifted further, to +6 %")
    (symptom,) = drifted(drift(0, 3.0), further).evaluate(at(900), ())
    assert symptom.since_ns == at(-600)
    assert symptom.cause == "cooling"
    assert symptom.text == "shifted further, to +6 %"
    assert symptom.detail == "At first: it moved; latency moved because of heat"


def test_drift_rule_applies_its_filters_and_an_improvement_is_info():
    for more, level_pct, count in (
        ({"direction": "up"}, 6.0, 1),
        ({"direction": "up"}, -6.0, 0),
        ({"direction": "down"}, -6.0, 1),
        ({"metrics": ["cost"]}, 6.0, 0),
        ({"at_least": "10%"}, 6.0, 0),
    ):
        found = drifted(drift(0, level_pct), config=rule("drift", **more))
        assert len(texts(found, 0)) == count, (more, level_pct)
    (symptom,) = drifted(drift(0, -6.0, severity="info")).evaluate(at(0), ())
    assert symptom.severity == "info"


def test_anomalies_are_counted_in_a_time_window():
    config = rule("anomaly", at_least=2, within="1h")
    event = drift(
        0, None, metric="cost", kind="anomaly", change_pct=40.0, title="one is an outlier"
    )
    found = drifted(event, event, config=config)  # twice, as after a restart
    assert not texts(found, 0)
    report(found, replace(event, time_ns=at(600)))
    assert len(texts(found, 600)) == 1
    assert len(texts(restarted(found, config), 3600)) == 1
    assert not texts(found, 3601)


def test_budget_sums_the_cost_of_devices_in_its_currency_and_period():
    config = rule("budget", amount=10, per="1d", currency="EUR")
    spent = rule_of(config)
    for hour in range(24):
        for device in ("gpu0", "gpu1"):
            spent.observe(row(hour * 3600, tags={"device": device}, cost=0.25))
    spent.observe(row(0, tags={"device": "gpu0", "currency": "USD"}, cost=100.0))
    assert texts(spent, 23 * 3600) == [
        "€12.00 were spent in the last 1d, of €10.00 planned; €0.519 per hour on average"
    ]
    assert not texts(restarted(spent, config), 30 * 3600)
    warned = rule("budget", amount=10, per="1d", warn_at="80%")
    assert played(warned, [(0, {"cost": 7.9}), (1, {"cost": 0.1})])[1][0] == []
    assert texts(played(warned, [(0, {"cost": 8.0})])[0], 0)


def test_series_is_missed_after_several_of_its_own_intervals():
    config = rule("absence", measurement="probe", intervals=3, at_least="1m")
    tags = {"device": "gpu0", "probe": "e"}

    def seen(count):
        return played(config, [(n * 300, {"samples": 1}) for n in range(count)], tags, "probe")[0]

    silent = seen(4)
    other = restarted(silent, config)
    assert not texts(silent, 900 + 900)
    words = "no row of probe of e on gpu0 for 15m; usually one every 5m"
    assert texts(silent, 900 + 901) == [words]
    # Downtime of the daemon is no absence.
    assert [bool(texts(other, seconds)) for seconds in (40_000, 40_900, 40_901)] == [0, 0, 1]
    assert texts(silent, 900 + 7 * 86_400)
    assert not texts(silent, 900 + 7 * 86_400 + 1)
    silent = seen(4)
    assert texts(silent, 900 + 901)
    silent.observe(row(2000, "probe", tags, samples=1))
    assert not texts(silent, 2000)
    assert not texts(seen(2), 50_000)


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


def test_objective_counts_the_runs_of_its_window():
    config = rule("slo", within_ms=10, objective="90%", window="1d", min_runs=10)
    tags = {"device": "gpu0", "probe": "e"}

    def runs(slow, count=20):
        values = (20.0 if index < slow else 5.0 for index in range(count))
        rows = [(index * 300, {"latency_p90_ms": value}) for index, value in enumerate(values)]
        return played(config, rows, tags, "probe")[0]

    assert not texts(runs(2), 6000)
    (text,) = texts(runs(3), 6000)
    assert text.startswith("17 of 20 runs of e on gpu0 in the last 1d had latency_p90_ms within 10")
    assert text.endswith(" ms: 85.0 %, below the objective of 90 %")
    assert not texts(runs(9, count=9), 6000)
    old = restarted(runs(20), config)
    assert texts(old, 6000)
    assert not texts(old, 2 * 86_400)


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
