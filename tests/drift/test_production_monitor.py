"""Changes of production: efficiency, demand and mix of services, on seeded demand."""

import json
import math
import re
from dataclasses import replace
from itertools import groupby

import pytest
from costprobe.alerts.rules.changes import DriftRule, DriftRuleConfig
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import event_point
from costprobe.drift.message import demand_causes
from costprobe.drift.monitor import DriftMonitor, spend_since
from costprobe.drift.production import ProductionDetector
from costprobe.drift.runs import events_of_service
from costprobe.drift.settings import DetectionConfig
from costprobe.unit_costs.change import ProductionChange
from fakes.demand import demand

DAY_S = 86_400
EFFICIENCY = {"serving_time", "serving_energy", "serving_tpot"}


def no_history(*_):
    return []


def events_of(rows, monitor=None, history=no_history):
    monitor = monitor or DriftMonitor(DetectionConfig(), history)
    found = []
    for _, together in groupby(rows, key=lambda row: row.time_ns):
        found += monitor.update(list(together))
    return found


def hours_after(event, start_s):
    return (event.time_ns / NS_PER_S - demand.START_S - start_s) / 3600


def test_seeded_demand_is_no_drift_of_efficiency():
    """Weekends, launches, holidays and replicas; the sweep is bench/production_drift.py."""
    wrong = {}
    for seed, server in ((1, "batching"), (6, "additive")):
        events = events_of(demand.rows(demand.DemandRecipe(seed, days=12, server=server)))
        wrong[seed] = [event.title for event in events if event.metric in EFFICIENCY]
    assert not any(wrong.values()), wrong


def test_lasting_change_of_efficiency_is_found_within_six_hours():
    late = {}
    for seed, factor in ((2, 1.1), (3, 1.35)):
        start_s = 6.4 * DAY_S
        recipe = demand.DemandRecipe(seed, 7, "additive", slower_from_s=start_s, slower=factor)
        found = [event for event in events_of(demand.rows(recipe)) if event.metric in EFFICIENCY]
        times = [event for event in found if event.metric == "serving_time"]
        if not times or not 0 < hours_after(times[0], start_s) < 6:
            late[seed] = [event.title for event in found]
            continue
        event = times[0]
        assert event.cause == "efficiency"
        assert event.severity == "warning"
        assert event.subject == {"service": "chat"}
        assert event.change_pct == pytest.approx((factor - 1) * 100, abs=4)
        assert "is speed" in event.detail
        # The same devices at the same prices.
        assert (" a month" in event.title, event.cost_per_month) == (False, None)
        assert "million tokens" in event.title
        # Energy that a lower speed takes is in the money of the time.
        energies = [one for one in found if one.metric == "serving_energy"]
        assert all(one.change_pct > 0 and "million" not in one.title for one in energies)
    assert not late


def test_slower_decode_of_a_server_that_is_busy_while_it_has_a_request():
    """Its busy share hides it; the time per output token at equal requests in flight does not."""
    start_s = 8.4 * DAY_S
    since_ns = int((demand.START_S + start_s) * NS_PER_S)

    def history(measurement, _device, _probe, span_ns, _limit):
        """Windows of the service: its KV cache fills with the change."""
        times_ns = (since_ns + minute * 60 * NS_PER_S for minute in range(-600, 600, 5))
        return [
            Point(
                "serving",
                {"service": "chat"},
                {
                    "kv_cache_share": 0.97 if time_ns > since_ns else 0.5,
                    "requests_waiting": 14.0 * (time_ns > since_ns),
                },
                time_ns,
            )
            for time_ns in times_ns
            if measurement == "serving" and span_ns[0] <= time_ns < span_ns[1]
        ]

    wrong = {}
    for seed in range(4):
        recipe = demand.DemandRecipe(
            seed, 9, "decoding", slower_from_s=start_s, slower=1.1, is_quiet=True
        )
        events = events_of(demand.rows(recipe), history=history)
        found = [event for event in events if event.metric == "serving_tpot"]
        if len(found) != 1 or not 0 < hours_after(found[0], start_s) < 6:
            wrong[seed] = [event.title for event in found]
            continue
        (event,) = found
        assert event.change_pct == pytest.approx(10, abs=3)
        assert event.title.startswith("time per output token of chat is +")
        assert (event.cause, event.severity, event.cost_per_month) == (
            "saturation",
            "warning",
            None,
        )
        assert re.search("KV cache 5. % → 9. % full, requests that wait", event.detail)
        assert "add a replica, or give the KV cache more memory" in event.detail
    assert not wrong


def test_change_of_spend_is_that_since_a_change():
    """A device that was added days before is no part of it, nor is another traffic."""
    start_s, price_per_h = 8.4 * DAY_S, 2.5
    detector = ProductionDetector(DetectionConfig().serving_shift, 1800.0)
    for row in demand.rows(demand.DemandRecipe(2, 9, is_quiet=True)):
        since_s = row.time_ns / NS_PER_S - demand.START_S - start_s
        names = [f"gpu{index}" for index in range(2 + (since_s > -3 * DAY_S) + (since_s > 0))]
        hours = len(names) * row.fields["window_s"] / 3600
        of_devices = {
            "device_s": hours * 3600,
            "cost_total_hardware": hours * price_per_h,
            "cost_total_energy": 0.0,
        }
        tags = {**row.tags, "device": "+".join(names)}
        detector.update([Point("cost", tags, {**row.fields, **of_devices}, row.time_ns)])
    changed_s = demand.START_S + start_s
    changes = [
        spend_since(detector, since_s, since_s + 3 * 3600)
        for since_s in (changed_s, changed_s - 6 * 3600)
    ]
    assert changes == [pytest.approx(price_per_h / 3600), None]


def test_energy_that_follows_a_slower_server_days_later_is_no_incident_of_its_own():
    recipe = demand.DemandRecipe(3, 13, "additive", slower_from_s=7.4 * DAY_S, slower=1.35)
    found = [event for event in events_of(demand.rows(recipe)) if event.metric in EFFICIENCY]
    assert {event.metric for event in found} == {"serving_time", "serving_energy"}
    assert all(hours_after(event, 7.4 * DAY_S) < 24 for event in found)


def test_further_shift_of_a_service_states_all_of_it_and_then_its_own_part():
    start_s = 6.2 * DAY_S
    first, further = (
        event for event in events_of(two_steps(start_s, 1.2, 1.5)) if event.metric == "serving_time"
    )
    assert further.since_ns == first.since_ns
    assert further.change_pct == further.level_pct == pytest.approx(50, abs=6)
    assert re.search(r"is \+[45]\d\.\d % .*; \+2\d\.\d % more since \d\d:\d\d UTC", further.title)


def test_collapse_of_demand_is_reported_as_demand():
    start_s = 9.5 * DAY_S
    recipe = demand.DemandRecipe(
        4, days=10, server="additive", demand_from_s=start_s, demand=0.1, is_quiet=True
    )
    (event,) = events_of(demand.rows(recipe))
    assert (event.metric, event.cause, event.severity) == ("demand", "demand", "warning")
    assert 2 < hours_after(event, start_s) < 5
    assert "traffic 9" in event.detail
    assert "% per token is idle time" in event.detail


def test_unchanged_probe_is_stated_as_control():
    start_s = 6.4 * DAY_S
    recipe = demand.DemandRecipe(2, days=7, slower_from_s=start_s, slower=1.35)
    deployed_ns = int((demand.START_S + start_s) * NS_PER_S)
    asked = []

    def history(measurement, device, probe, span_ns, limit):
        asked.append((measurement, device, probe))
        if measurement == "event":
            tags = {"kind": "annotation", "service": "chat"}
            return [
                Point("event", tags, {"title": "deployed v42"}, deployed_ns),
                Point("event", {**tags, "service": "other"}, {"title": "v7"}, deployed_ns),
            ]
        return [Point("probe", {}, {"throughput_per_s": 100.0}, span_ns[0] + 1)]

    monitor = DriftMonitor(DetectionConfig(), history)
    tags = {"device": "gpu0", "probe": "encoder"}
    monitor.update([Point("probe", tags, {"latency_p50_ms": 10.0}, demand.START_S * NS_PER_S)])
    event = events_of(demand.rows(recipe), monitor)[0]
    assert {("probe", "gpu0", "encoder"), ("event", "", ""), ("device", "gpu0", "")} <= set(asked)
    assert "probe unchanged" in event.detail
    assert "cause: efficiency; annotation " in event.detail
    assert ": deployed v42 (coincides, " in event.detail
    assert "v7" not in event.detail
    assert event.cause == "annotation"


def test_lower_power_limit_of_the_devices_is_the_cause():
    start_s = 6.4 * DAY_S
    lowered_ns = int((demand.START_S + start_s) * NS_PER_S)
    recipe = demand.DemandRecipe(2, days=7, slower_from_s=start_s, slower=1.35, is_quiet=True)

    def history(measurement, device, probe, span_ns, limit):
        if measurement != "device":
            return []
        step_ns = 10 * NS_PER_S
        last_ns = span_ns[1] // step_ns * step_ns
        return [device_row(at_ns) for at_ns in range(last_ns - 11 * step_ns, last_ns, step_ns)]

    def device_row(at_ns):
        is_lower = at_ns > lowered_ns
        fields = {
            "util_pct": 80.0,
            "power_limit_w": 450.0 if is_lower else 700.0,
            "sm_clock_mhz": 1440.0 if is_lower else 1980.0,
            "throttle_power_s": 6.0 if is_lower else 0.0,
            "throttle_thermal_s": 0.0,
            "temp_c": 55.0 if is_lower else 64.0,
        }
        return Point("device", {"device": "gpu0"}, fields, at_ns)

    event = events_of(demand.rows(recipe), DriftMonitor(DetectionConfig(), history))[0]
    assert (event.metric, event.cause) == ("serving_time", "power limit")
    assert "power limit 700 → 450 W, power throttling 60 % of the time" in event.detail
    assert "`nvidia-smi -pl WATTS`" in event.detail


def test_software_of_the_service_is_a_candidate_and_that_of_other_probes_is_not():
    def found_by(device, key, time_ns):
        tags = {"kind": "software", "device": device, "probe": "chat-latency"}
        return Point(
            "event", tags, {"cause": key, "before": f"{key} 1", "after": f"{key} 2"}, time_ns
        )

    server, driver = found_by("gpu0", "server_version", 1), found_by("gpu0", "driver", 2)
    others = [found_by("gpu9", "server_version", 3), found_by("gpu0", "weights", 4)]
    assert events_of_service([*others, driver, server], "chat", ["gpu0"]) == [server, driver]


def two_steps(start_s, first, second, days=7, hours=6):
    """Yield rows with a factor on device time from an instant on, and another some hours later."""
    for row in demand.rows(demand.DemandRecipe(5, days, server="additive", is_quiet=True)):
        since_s = row.time_ns / NS_PER_S - demand.START_S - start_s
        slower = 1.0 if since_s <= 0 else first if since_s < hours * 3600 else second
        busy_s = row.fields["device_busy_s"] * slower
        yield Point("cost", row.tags, {**row.fields, "device_busy_s": busy_s}, row.time_ns)


def test_change_in_two_small_steps_is_reported_with_its_beginning():
    start_s = 6.2 * DAY_S
    events = events_of(two_steps(start_s, 1.045, 1.09))
    (event,) = [event for event in events if event.metric == "serving_time"]
    assert event.change_pct == pytest.approx(9, abs=2)
    assert abs(event.since_ns / NS_PER_S - demand.START_S - start_s) < 3 * 3600


def test_change_that_reverts_ends_its_incident_although_a_little_of_it_is_left():
    events = events_of(two_steps(6.2 * DAY_S, 1.2, 1.02))
    rule = DriftRule(DriftRuleConfig(name="drift", kind="drift"))
    for event in events:
        rule.observe(event_point(event, {}))
    assert "device time per token of chat reverted" in [event.title for event in events]
    assert rule.evaluate(events[-1].time_ns, ()) == []


def test_slow_ramp_of_a_service_is_one_incident_while_it_grows():
    """What is found of it is further apart than the day after which a level counts as normal."""
    recipe = demand.DemandRecipe(
        2, 12, slower_from_s=7 * DAY_S, slower=1.8, ramp_days=4, is_quiet=True
    )
    rule, monitor = (
        DriftRule(DriftRuleConfig(name="drift", kind="drift", metrics=("serving_time",))),
        DriftMonitor(DetectionConfig(), no_history),
    )
    for row in demand.rows(recipe):
        for event in monitor.update([row]):
            rule.observe(event_point(event, {}))
        shifts = rule.evaluate(row.time_ns, ())
        assert not [shift for shift in rule.series.values() if shift["is_over"]]
    assert [shift.value for shift in shifts] == [pytest.approx(80, abs=25)]


def test_return_to_the_level_before_a_change_that_had_settled_is_no_change():
    events = events_of(two_steps(6.2 * DAY_S, 1.2, 1.0, days=9, hours=40))
    _, back = (event for event in events if event.metric == "serving_time")
    assert (back.severity, back.level_pct) == ("info", 0)
    assert back.change_pct == pytest.approx(-16.7, abs=3)
    assert re.search("; it is back at the level before 2026-03-08 0.:00 UTC$", back.title)


def test_small_shift_before_does_not_hide_a_larger_one_of_the_other_direction():
    start_s = 6.2 * DAY_S
    events = events_of(two_steps(start_s, 1.035, 0.95))
    (event,) = [event for event in events if event.metric == "serving_time"]
    assert event.change_pct == pytest.approx(-8, abs=2)
    assert event.since_ns / NS_PER_S - demand.START_S - start_s > 5 * 3600


def test_replicas_and_traffic_have_exact_shares_of_a_change_of_demand():
    change = ProductionChange("token", 1.0, 2.0, {"idle time": math.log(2)}, 0.8, 1.6)
    shares = {cause.name: cause.share.mean for cause in demand_causes(change)}
    assert shares == {
        "replicas": pytest.approx(math.log(1.6) / math.log(2)),
        "traffic": pytest.approx(math.log(1 / 0.8) / math.log(2)),
    }
    assert next(iter(shares)) == "replicas"


def test_state_survives_a_restart():
    start_s = 6.4 * DAY_S
    rows = list(demand.rows(demand.DemandRecipe(2, days=7, slower_from_s=start_s, slower=1.1)))
    whole = [event.metric for event in events_of(rows)]
    monitor = DriftMonitor(DetectionConfig(), no_history)
    middle = len(rows) * 6 // 7
    before = events_of(rows[:middle], monitor)
    documents = json.loads(json.dumps(monitor.documents()))
    # As before that series was watched.
    del documents["production chat"]["state"]["detector"]["efforts"]["serving_tpot"]
    other = DriftMonitor(DetectionConfig(), no_history)
    assert other.restore(documents.values()) == []
    assert other.services() == {"chat"}
    # The rows of the last hour are read again.
    after = events_of(rows[middle - 12 :], other)
    assert [event.metric for event in before + after] == whole
    assert "production chat" in documents


def test_damaged_state_and_other_settings_start_again():
    rows = list(demand.rows(demand.DemandRecipe(2, days=2, is_quiet=True)))
    monitor = DriftMonitor(DetectionConfig(), no_history)
    events_of(rows, monitor)
    (document,) = monitor.documents().values()
    detector = {**document["state"]["detector"], "blocks": "?"}
    other = DriftMonitor(DetectionConfig(), no_history)
    for damaged in (
        {"service": ["chat", ""], "state": {}},
        {**document, "state": {"detector": detector}},
    ):
        assert "cannot be used" in other.restore([damaged])[0]
    assert other.services() == set()
    longer = DriftMonitor(DetectionConfig(serving_window="1h"), no_history)
    assert longer.restore([document]) == []
    assert longer.services() == set()


def test_windows_without_coverage_or_traffic_are_not_judged():
    start_s = 6.4 * DAY_S
    rows = demand.rows(demand.DemandRecipe(2, days=7, slower_from_s=start_s, slower=1.35))
    kept = []
    for row in rows:
        is_after = row.time_ns / NS_PER_S > demand.START_S + start_s
        # Half of the windows have no cost, and the others few requests.
        if is_after and row.time_ns // (300 * NS_PER_S) % 2:
            continue
        kept.append(row)
    assert not [event for event in events_of(kept) if event.metric in EFFICIENCY]


def test_models_with_device_time_of_their_own_are_monitored():
    start_s = 3.4 * DAY_S

    def rows():
        slower = demand.DemandRecipe(2, days=4, slower_from_s=start_s, slower=1.35, is_quiet=True)
        same = replace(slower, slower=1.0)
        for one, other in zip(demand.rows(slower), demand.rows(same), strict=False):
            if one.time_ns != other.time_ns:
                continue
            yield Point("cost", one.tags, add(one.fields, other.fields), one.time_ns)
            for model, row in (("small", one), ("large", other)):
                tags = {**row.tags, "served_model": model}
                yield Point("cost", tags, {**row.fields, "model_split": "time"}, row.time_ns)

    def add(one, other):
        return {
            name: value if name == "window_s" else value + other[name]
            for name, value in one.items()
        }

    named = [
        event.subject.get("served_model", "")
        for event in events_of(rows())
        if event.metric == "serving_time"
    ]
    assert "small" in named
    assert "large" not in named
