"""Changes of production: efficiency, demand and mix of services, on seeded demand."""

import json
from dataclasses import replace
from itertools import groupby

import pytest
from costprobe.alerts.rules.changes import DriftRule, DriftRuleConfig
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import event_point
from costprobe.drift.monitor import DriftMonitor, spend_since
from costprobe.drift.production import ProductionDetector
from costprobe.drift.runs import events_of_service
from costprobe.drift.settings import DetectionConfig
from fakes.benches import demand
from record.record_files import check

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


def test_seeded_demand_is_no_drift_of_efficiency():
    """Weekends, launches, holidays and replicas; the sweep is bench/production_drift.py."""
    wrong = {}
    for seed, server in ((1, "batching"), (6, "additive")):
        events = events_of(demand.rows(demand.DemandRecipe(seed, days=12, server=server)))
        wrong[seed] = [event.title for event in events if event.metric in EFFICIENCY]
    assert not any(wrong.values()), wrong


def two_steps(first, second, days=7, hours=6):
    """Yield rows with a factor on device time from an instant on, and another some hours later."""
    for row in demand.rows(demand.DemandRecipe(5, days, server="additive", is_quiet=True)):
        since_s = row.time_ns / NS_PER_S - demand.START_S - CHANGED_S
        slower = 1.0 if since_s <= 0 else first if since_s < hours * 3600 else second
        busy_s = row.fields["device_busy_s"] * slower
        yield Point("cost", row.tags, {**row.fields, "device_busy_s": busy_s}, row.time_ns)


def slower(seed, slower, server="additive", days=7, **more):
    return demand.rows(
        demand.DemandRecipe(seed, days, server, slower_from_s=CHANGED_S, slower=slower, **more)
    )


def saturated(measurement, _device, _probe, span_ns, _limit):
    """Windows of the service: its KV cache fills with the change."""
    times_ns = (CHANGED_NS + minute * 60 * NS_PER_S for minute in range(-600, 600, 5))
    return [
        Point(
            "serving",
            {"service": "chat"},
            {
                "kv_cache_share": 0.97 if time_ns > CHANGED_NS else 0.5,
                "requests_waiting": 14.0 * (time_ns > CHANGED_NS),
            },
            time_ns,
        )
        for time_ns in times_ns
        if measurement == "serving" and span_ns[0] <= time_ns < span_ns[1]
    ]


def deployed(measurement, _device, _probe, span_ns, _limit):
    """A deployment at the change, and a probe that is as fast as before."""
    if measurement == "event":
        tags = {"kind": "annotation", "service": "chat"}
        other = {"title": "of another service"}
        return [
            Point("event", tags, {"title": "deployed v42"}, CHANGED_NS),
            Point("event", {**tags, "service": "other"}, other, CHANGED_NS),
        ]
    return [Point("probe", {}, {"throughput_per_s": 100.0}, span_ns[0] + 1)]


def limited(measurement, _device, _probe, span_ns, _limit):
    """A power limit that was lowered at the change."""

    def device_row(at_ns):
        is_lower = at_ns > CHANGED_NS
        fields = {
            "util_pct": 80.0,
            "power_limit_w": 450.0 if is_lower else 700.0,
            "sm_clock_mhz": 1440.0 if is_lower else 1980.0,
            "throttle_power_s": 6.0 if is_lower else 0.0,
            "throttle_thermal_s": 0.0,
            "temp_c": 55.0 if is_lower else 64.0,
        }
        return Point("device", {"device": "gpu0"}, fields, at_ns)

    step_ns = 10 * NS_PER_S
    last_ns = span_ns[1] // step_ns * step_ns
    times_ns = range(last_ns - 11 * step_ns, last_ns, step_ns)
    return [device_row(at_ns) for at_ns in times_ns if measurement == "device"]


CHANGED_S = 6.4 * DAY_S
CHANGED_NS = int((demand.START_S + CHANGED_S) * NS_PER_S)
# Rows of a service, and the history that is read to explain a change.
SCRIPTS = {
    "+10 %": lambda: (slower(2, 1.1), no_history),
    "+35 %, and no energy of its own days later": lambda: (slower(3, 1.35, days=13), no_history),
    "a slower decode, and a full cache": lambda: (
        slower(3, 1.1, "decoding", days=9, is_quiet=True),
        saturated,
    ),
    "a deployment beside a probe that is as before": lambda: (
        slower(2, 1.35, "batching"),
        deployed,
    ),
    "a lower power limit": lambda: (slower(2, 1.35, "batching", is_quiet=True), limited),
    "nearly no traffic": lambda: (
        demand.rows(
            demand.DemandRecipe(
                4, 10, "additive", demand_from_s=9.5 * DAY_S, demand=0.1, is_quiet=True
            )
        ),
        no_history,
    ),
    "two steps": lambda: (two_steps(1.2, 1.5), no_history),
    "two small steps": lambda: (two_steps(1.045, 1.09), no_history),
    "a step that is back, but for a little": lambda: (two_steps(1.2, 1.02), no_history),
    "a step that is back after it settled": lambda: (two_steps(1.2, 1.0, 9, 40), no_history),
    "a small step before a larger one back": lambda: (two_steps(1.035, 0.95), no_history),
}


def test_events_of_scripted_services():
    """The record has what each script reports, by the hours since the change; see `record_files`."""
    lines = []
    for name, made in SCRIPTS.items():
        rows, history = made()
        monitor = DriftMonitor(DetectionConfig(), history)
        tags = {"device": "gpu0", "probe": "encoder"}
        monitor.update([Point("probe", tags, {"latency_p50_ms": 10.0}, demand.START_S * NS_PER_S)])
        lines.append(f"{name}:")
        for event in events_of(rows, monitor):
            hours = (event.time_ns - CHANGED_NS) / NS_PER_S / 3600
            lines += [f"  {hours:.1f} h {event.severity}, cause {event.cause!r}: {event.title}"]
            lines += [f"    {event.detail}"] if event.detail else []
    check("drift_services.txt", "\n".join([*lines, ""]))


def test_software_of_the_service_is_a_candidate_and_that_of_other_probes_is_not():
    def found_by(device, key, time_ns):
        tags = {"kind": "software", "device": device, "probe": "chat-latency"}
        return Point(
            "event", tags, {"cause": key, "before": f"{key} 1", "after": f"{key} 2"}, time_ns
        )

    server, driver = found_by("gpu0", "server_version", 1), found_by("gpu0", "driver", 2)
    others = [found_by("gpu9", "server_version", 3), found_by("gpu0", "weights", 4)]
    assert events_of_service([*others, driver, server], "chat", ["gpu0"]) == [server, driver]


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
