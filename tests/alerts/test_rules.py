"""Each kind of rule finds symptoms in rows, events and faults, and clears them."""

import json
from dataclasses import replace

import pytest
from costprobe.alerts.rules.faults import OF_FLEET
from costprobe.alerts.rules.kinds import DEFAULT_RULES, RULES, effective_rules, rule_of
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


class TestThreshold:
    config = rule("threshold", measurement="device", field="temp_c", above=85, clear=80)

    def test_threshold_holds_until_the_value_is_clear(self):
        hot = rule_of(self.config)
        for seconds, temp_c, count in ((0, 84, 0), (10, 86, 1), (20, 82, 1), (30, 80, 0)):
            hot.observe(row(seconds, temp_c=float(temp_c)))
            assert len(texts(hot, seconds)) == count, seconds

    def test_threshold_symptom_has_series_value_and_limit(self):
        hot = rule_of(self.config)
        hot.observe(row(0, temp_c=91.5))
        (symptom,) = hot.evaluate(at(1), ())
        assert symptom.text == "temp_c of gpu0 is 91.5, above 85"
        assert (symptom.value, symptom.threshold, symptom.since_ns) == (91.5, 85, at(0))
        assert symptom.labels == {"device": "gpu0"}

    def test_threshold_of_a_cause_says_what_to_do(self):
        throttled = rule("threshold", measurement="probe", field="throttled_thermal_pct", above=5)
        found = rule_of(throttled)
        found.observe(Point("probe", {"device": "gpu0"}, {"throttled_thermal_pct": 25.0}, at(0)))
        (symptom,) = found.evaluate(at(0), ())
        assert symptom.detail.startswith("To do: check fan and airflow")

    def test_threshold_text_states_the_limit_that_was_violated(self):
        """A reload with another limit must not rewrite what fired, and hysteresis is no violation."""
        hot = rule_of(self.config)
        hot.observe(row(0, temp_c=86.0))
        raised = rule_of(rule("threshold", measurement="device", field="temp_c", above=95))
        raised.restore(hot.document())
        (symptom,) = raised.evaluate(at(1), ())
        assert symptom.text == "temp_c of gpu0 is 86, above 85"
        assert symptom.threshold == 85
        raised.observe(row(10, temp_c=86.0))
        assert not texts(raised, 10)
        hot.observe(row(10, temp_c=82.0))
        assert texts(hot, 10) == ["temp_c of gpu0 is 82 and was above 85; resolved at 80"]

    def test_stale_value_keeps_no_symptom(self):
        hot = rule_of(self.config)
        for seconds in (0, 10, 20):
            hot.observe(row(seconds, temp_c=90.0))
        assert texts(hot, 60)
        assert not texts(hot, 120)

    def test_below_fires_under_the_limit(self):
        low = rule_of(rule("threshold", measurement="device", field="sm_clock_mhz", below=1000))
        low.observe(row(0, sm_clock_mhz=1000.0))
        assert not texts(low, 0)
        low.observe(row(10, sm_clock_mhz=900.0))
        assert texts(low, 10) == ["sm_clock_mhz of gpu0 is 900, below 1,000"]

    def test_batches_of_one_probe_are_one_symptom(self):
        slow = rule_of(rule("threshold", measurement="probe", field="latency_p50_ms", above=5))
        for seconds, batch in ((0, "8"), (300, "16")):
            tags = {"device": "gpu0", "probe": "e", "batch": batch}
            slow.observe(row(seconds, "probe", tags, latency_p50_ms=9.0))
        assert texts(slow, 300) == ["latency_p50_ms of e on gpu0 is 9, above 5"]

    def test_gap_does_not_count_as_interval(self):
        """A forward step of the wall clock does not extend how long a value counts."""
        hot = rule_of(self.config)
        for seconds in (0, 10, 20, 7220):
            hot.observe(row(seconds, temp_c=90.0))
        assert texts(hot, 7220 + 60)
        assert not texts(hot, 7220 + 120)

    def test_downtime_of_the_daemon_resolves_no_symptom(self):
        hot = rule_of(self.config)
        for seconds in (0, 10, 20):
            hot.observe(row(seconds, temp_c=90.0))
        later = restarted(hot, self.config)
        assert texts(later, 7200)
        assert not texts(later, 7200 + 120)

    def test_restart_preserves_the_state(self):
        hot = rule_of(self.config)
        hot.observe(row(0, temp_c=90.0))
        assert texts(restarted(hot, self.config), 5) == texts(hot, 5)


class TestDrift:
    config = rule("drift", at_least="2%", accept_after="1d")

    def test_drift_holds_until_it_reverts(self):
        found = rule_of(self.config)
        report(found, drift(0, 6.0))
        (symptom,) = found.evaluate(at(0), ())
        assert (symptom.text, symptom.detail) == ("it moved", "latency moved because of heat")
        assert (symptom.cause, symptom.value) == ("cooling", 6.0)
        assert symptom.since_ns == at(-600)
        report(found, drift(3600, 0.1))
        assert not texts(found, 3600)

    def test_further_shift_keeps_start_and_cause(self):
        found = rule_of(self.config)
        report(found, drift(0, 3.0))
        report(
            found,
            drift(900, 6.0, detail="", cause="", since_ns=None, title="shifted further, to +6 %"),
        )
        (symptom,) = found.evaluate(at(900), ())
        assert symptom.since_ns == at(-600)
        assert symptom.cause == "cooling"
        assert symptom.text == "shifted further, to +6 %"
        assert symptom.detail == "At first: it moved; latency moved because of heat"

    def test_persistent_drift_is_accepted_as_normal(self):
        found = rule_of(self.config)
        report(found, drift(0, 6.0))
        assert texts(found, 86_400)
        assert not texts(found, 86_401)

    @pytest.mark.parametrize(
        ("more", "level_pct", "count"),
        [
            ({"direction": "up"}, 6.0, 1),
            ({"direction": "up"}, -6.0, 0),
            ({"direction": "down"}, -6.0, 1),
            ({"metrics": ["cost"]}, 6.0, 0),
            ({"at_least": "10%"}, 6.0, 0),
        ],
    )
    def test_drift_rule_applies_its_filters(self, more, level_pct, count):
        found = rule_of(rule("drift", **more))
        report(found, drift(0, level_pct))
        assert len(texts(found, 0)) == count

    def test_improvement_has_severity_info(self):
        found = rule_of(self.config)
        report(found, drift(0, -6.0, severity="info"))
        assert [symptom.severity for symptom in found.evaluate(at(0), ())] == ["info"]

    def test_restart_preserves_the_state(self):
        found = rule_of(self.config)
        report(found, drift(0, 6.0))
        assert restarted(found, self.config).evaluate(at(9), ()) == found.evaluate(at(9), ())


def test_anomalies_are_counted_in_a_time_window():
    config = rule("anomaly", at_least=2, within="1h")
    found = rule_of(config)
    event = drift(
        0, None, metric="cost", kind="anomaly", change_pct=40.0, title="one is an outlier"
    )
    report(found, event)
    report(found, event)  # as after a restart
    assert not texts(found, 0)
    report(found, replace(event, time_ns=at(600)))
    assert len(texts(found, 600)) == 1
    assert len(texts(restarted(found, config), 3600)) == 1
    assert not texts(found, 3601)


class TestBudget:
    config = rule("budget", amount=10, per="1d", currency="EUR")

    def test_device_costs_of_the_period_are_summed(self):
        spent = rule_of(self.config)
        for hour in range(24):
            for device in ("gpu0", "gpu1"):
                spent.observe(row(hour * 3600, tags={"device": device}, cost=0.25))
        assert texts(spent, 23 * 3600) == [
            "€12 were spent in the last 1d, of €10 planned; €0.5195 per hour on average"
        ]
        assert not texts(restarted(spent, self.config), 30 * 3600)

    def test_costs_in_another_currency_are_excluded(self):
        spent = rule_of(self.config)
        spent.observe(row(0, tags={"device": "gpu0", "currency": "USD"}, cost=100.0))
        assert not texts(spent, 0)

    def test_warning_share_fires_before_the_limit(self):
        spent = rule_of(rule("budget", amount=10, per="1d", warn_at="80%"))
        spent.observe(row(0, cost=8.0))
        assert texts(spent, 0)


class TestAbsence:
    config = rule("absence", measurement="probe", intervals=3, at_least="1m")
    tags = {"device": "gpu0", "probe": "e"}  # noqa: RUF012 - read only

    def seen(self):
        silent = rule_of(self.config)
        for index in range(4):
            silent.observe(row(index * 300, "probe", self.tags, samples=1))
        return silent

    def test_series_is_missed_after_several_of_its_own_intervals(self):
        silent = self.seen()
        assert not texts(silent, 900 + 900)
        assert texts(silent, 900 + 901) == [
            "no row of probe of e on gpu0 for 15m; usually one every 5m"
        ]
        silent.observe(row(2000, "probe", self.tags, samples=1))
        assert not texts(silent, 2000)

    def test_series_with_few_rows_is_not_missed(self):
        silent = rule_of(self.config)
        silent.observe(row(0, "probe", self.tags, samples=1))
        silent.observe(row(300, "probe", self.tags, samples=1))
        assert not texts(silent, 50_000)

    def test_downtime_of_the_daemon_is_not_an_absence(self):
        other = restarted(self.seen(), self.config)
        assert not texts(other, 40_000)
        assert not texts(other, 40_900)
        assert texts(other, 40_901)

    def test_absent_series_is_dropped_after_a_week(self):
        silent = self.seen()
        assert texts(silent, 900 + 7 * 86_400)
        assert not texts(silent, 900 + 7 * 86_400 + 1)


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


class TestSlo:
    config = rule("slo", within_ms=10, objective="90%", window="1d", min_runs=10)

    def runs(self, slow, count=20):
        found = rule_of(self.config)
        for index in range(count):
            value = 20.0 if index < slow else 5.0
            tags = {"device": "gpu0", "probe": "e"}
            found.observe(row(index * 300, "probe", tags, latency_p90_ms=value))
        return found

    def test_runs_of_the_window_are_counted(self):
        assert not texts(self.runs(2), 6000)
        (text,) = texts(self.runs(3), 6000)
        assert text.startswith(
            "17 of 20 runs of e on gpu0 in the last 1d had latency_p90_ms within"
        )
        assert text.endswith("10 ms: 85.0 %, below the objective of 90 %")
        assert not texts(self.runs(9, count=9), 6000)

    def test_old_runs_do_not_count(self):
        found = restarted(self.runs(20), self.config)
        assert texts(found, 6000)
        assert not texts(found, 2 * 86_400)


def test_findings_of_a_fleet_match_only_rules_that_name_them():
    found = [Fault(name, "h03", name, "warning") for name in (*OF_FLEET, "fleet_unread")]
    assert texts(rule_of(rule("fault")), 0, found) == ["fleet_unread"]
    assert texts(rule_of(rule("fault", faults=["gpu_outlier"])), 0, found) == ["gpu_outlier"]


def test_every_default_rule_restores_its_empty_state():
    for config in DEFAULT_RULES:
        evaluator = rule_of(config)
        evaluator.restore(json.loads(json.dumps(evaluator.document())))
        assert evaluator.evaluate(T0, ()) == []
    assert {config.kind for config in DEFAULT_RULES} <= set(RULES)
    assert rule_of(rule("slo", within_ms=1)).measurement == "probe"


def test_configured_rule_replaces_a_built_in_rule():
    mine = RULE.validate_python({"name": "drift", "kind": "drift", "at_least": "9%"})
    off = RULE.validate_python({"name": "anomaly", "kind": "anomaly", "enabled": False})
    rules = {found.name: found for found in effective_rules([mine, off], use_defaults=True)}
    assert rules["drift"] is mine
    assert "anomaly" not in rules
    assert "broken" in rules
    assert effective_rules([mine], use_defaults=False) == [mine]
