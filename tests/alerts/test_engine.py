"""An incident's life cycle (pending, firing, silenced, flapping, raised, resolved) and notices."""

import json
from dataclasses import replace

import pytest
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.rules.kinds import DEFAULT_RULES
from costprobe.alerts.settings import AlertingConfig, MaintenanceConfig
from costprobe.configuration import AnyNotifier, AnyRule
from costprobe.core.incident import Fault, Silence
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.schema import event_point
from pydantic import TypeAdapter

# A Monday, 10:40 UTC.
T0 = 1_772_448_000 * NS_PER_S
RULE, NOTIFIER = TypeAdapter(AnyRule), TypeAdapter(AnyNotifier)
SETTINGS = AlertingConfig()
TAGS = {"host": "h1", "rack": "a1"}


def rule(name="broken", kind="fault", **more):
    return RULE.validate_python({"name": name, "kind": kind, **more})


def hook(name="ops", **more):
    return NOTIFIER.validate_python(
        {"name": name, "kind": "webhook", "url": "http://127.0.0.1/", **more}
    )


def engine_of(*rules, notifiers=None, maintenance=(), settings=SETTINGS):
    notifiers = [hook()] if notifiers is None else notifiers
    return AlertEngine(rules, settings, maintenance, notifiers, TAGS)


def fault(name="device_lost", subject="gpu3", severity="critical", **labels):
    return Fault(name, subject, f"{subject} is broken", severity, labels or {"device": subject})


class Player:
    """Evaluates an engine and keeps its notices and rows."""

    def __init__(self, engine):
        self.engine = engine
        self.notified = []
        self.rows = []

    def tick(self, seconds, *faults):
        outcome = self.engine.tick(T0 + int(seconds * NS_PER_S), faults)
        self.notified += [(notice.notifier, notice.alert) for notice in outcome.notices]
        self.rows += outcome.points
        return self.engine.alerts()

    @property
    def states(self):
        return [alert.state for _, alert in self.notified]

    def report(self, event):
        self.engine.observe(event_point(event, TAGS))

    def restart(self, *rules, **more):
        document = json.loads(json.dumps(self.engine.document()))
        self.engine = engine_of(*rules, **more)
        self.engine.restore(document)


def test_incident_is_pending_then_firing_then_resolved():
    player = Player(engine_of(rule(**{"for": "1m"})))
    (pending,) = player.tick(0, fault())
    assert (pending.state, pending.fired_ns) == ("pending", None)
    assert player.notified == []
    (firing,) = player.tick(60, fault())
    assert (firing.state, firing.severity, firing.name) == ("firing", "critical", "broken")
    assert firing.labels == {**TAGS, "device": "gpu3"}
    assert firing.id == pending.id
    assert player.tick(70) == ()
    assert player.states == ["firing", "resolved"]
    resolved = player.notified[-1][1]
    assert (resolved.ended_ns, resolved.id) == (T0 + 70 * NS_PER_S, pending.id)
    assert [row.tags["state"] for row in player.rows] == ["pending", "firing", "resolved"]
    assert {row.fields["id"] for row in player.rows} == {pending.id}
    assert player.rows[1].tags == {**TAGS, "rule": "broken", "state": "firing", "device": "gpu3"}

    quick = Player(engine_of(rule(**{"for": "1m"})))
    quick.tick(0, fault())
    assert quick.tick(30) == ()
    assert quick.notified == []
    assert [row.tags["state"] for row in quick.rows] == ["pending", "resolved"]


def test_incident_of_a_removed_rule_resolves_after_a_restart():
    player = Player(engine_of(rule()))
    player.tick(0, fault())
    player.restart(rule("other", faults=["disk_low"]))
    assert player.tick(10, fault()) == ()
    assert player.states == ["firing", "resolved"]


def test_throttling_gpu_with_five_probes_is_one_alert_that_lists_them():
    player = Player(engine_of(*DEFAULT_RULES))
    for minute in range(0, 20, 5):
        for probe in "abcde":
            time_ns = T0 + minute * 60 * NS_PER_S
            tags = {**TAGS, "device": "gpu0", "probe": probe, "batch": "8"}
            fields = {"throttled_thermal_pct": 12.0}
            player.engine.observe(Point("probe", tags, fields, time_ns))
        player.tick(minute * 60)
    for metric in ("latency", "cost"):
        found = drift_event(8.0, "thermal throttling", metric, title=f"{metric} of a is +8 %")
        player.report(replace(found, detail="cause: thermal throttling 12 % of the time"))
    (alert,) = player.tick(17 * 60)
    assert (alert.name, alert.state, len(alert.symptoms)) == ("performance", "firing", 7)
    assert alert.summary == "cost of a is +8 % (and 6 more series)"
    assert alert.detail == "cause: thermal throttling 12 % of the time"
    assert alert.cause == "thermal throttling"
    # The drift of the cost is the first message with money.
    summaries = [alert.summary for _, alert in player.notified]
    assert summaries == [
        "throttled_thermal_pct of a on gpu0 is 12, above 5 (and 4 more series)",
        alert.summary,
    ]
    player.tick(18 * 60)
    assert player.states == ["firing"] * 2


def drift_event(level_pct, cause, metric="cost", at_s=0, **more):
    known = {
        "title": f"{metric} is {level_pct:+} %",
        "device": "gpu0",
        "subject": {"probe": "a"},
        "severity": "warning",
        **more,
    }
    time_ns = T0 + at_s * NS_PER_S
    return Event(
        kind="drift", time_ns=time_ns, metric=metric, level_pct=level_pct, cause=cause, **known
    )


def test_each_service_has_an_incident_that_its_device_time_leads():
    player = Player(engine_of(*DEFAULT_RULES))
    for service in ("chat", "search"):
        for metric in ("serving_energy", "serving_time"):
            own = {"device": "", "subject": {"service": service}}
            player.report(drift_event(12.0, "efficiency", metric, **own))
    found = [(alert.labels.get("service"), alert.summary) for alert in player.tick(60)]
    words = "serving_time is +12.0 % (and 1 more series)"
    assert found == [("chat", words), ("search", words)]


def test_new_cause_and_a_doubled_drift_are_notified_again():
    player = Player(engine_of(rule("drift", "drift")))
    levels_pct = (1.2, 1.8, 2.5, 3.0, 3.5, 3.5, 12.0)
    causes = (*["cooling"] * 3, "unknown", "neighbour", "cooling", "cooling")
    for minute, (level_pct, cause) in enumerate(zip(levels_pct, causes, strict=True)):
        player.report(drift_event(level_pct, cause))
        player.tick(60 * minute)
        player.restart(rule("drift", "drift"))
        player.tick(60 * minute + 10)
    notified = [(a.symptoms[0].value, a.cause, a.revision) for _, a in player.notified]
    assert notified == [
        (1.2, "cooling", 0),
        (2.5, "cooling", 1),
        (3.5, "neighbour", 2),
        (12.0, "cooling", 3),
    ]
    player.report(drift_event(0.0, ""))
    player.tick(600)
    assert player.states == ["firing"] * 4 + ["resolved"]


def test_level_that_lasts_a_day_counts_as_normal():
    player = Player(engine_of(rule("drift", "drift")))
    player.report(drift_event(8.0, "cooling", detail="cause: cooling"))
    player.tick(0)
    player.tick(86_400 + 120)
    resolved = player.notified[-1][1]
    assert resolved.summary == "accepted as normal: cost is +8.0 % since 2026-03-02 10:40 UTC"
    assert resolved.detail == (
        "No further change was reported for 1d: the new level counts as normal."
        " It was reported as: cost is +8.0 %; cause: cooling"
    )


def test_resolved_incident_reports_what_fired_and_not_what_ended_it():
    player = Player(engine_of(rule("drift", "drift")))

    def report(minute, level_pct, metric, detail, probe="a", **more):
        own = {"subject": {"probe": probe}, "detail": detail, **more}
        player.report(drift_event(level_pct, "cooling", metric, 60 * minute, **own))
        player.tick(60 * minute)
        player.restart(rule("drift", "drift"))

    report(0, 30.2, "cost", "cause: cooling. To do: check the fan")
    report(1, 29.8, "latency", "cause: cooling. To do: check the fan", "b")
    back = {"severity": "info", "since_ns": T0 + 240 * NS_PER_S}
    # The level after a return is not known better: this is none of the drift.
    report(5, 1.2, "cost", "No action is needed", title="cost is -25.0 %", **back)
    report(6, 0.0, "latency", "", "b", **back)
    ((_, fired), (_, resolved)) = player.notified
    assert fired.summary == "cost is +30.2 %"
    text = "back to normal: cost was +30.2 % from 10:40 to 10:44 UTC; +1.2 % is left"
    assert resolved.summary == f"{text} (and 1 more series)"
    assert (
        resolved.detail == "It has reverted. It was reported as: cost is +30.2 %; cause: cooling."
    )
    assert [(s.text, s.value) for s in resolved.symptoms] == [
        (text, 30.2),
        ("back to normal: latency was +29.8 % from 10:41 to 10:44 UTC", 29.8),
    ]
    row = player.rows[-1]
    assert (row.tags["state"], row.fields["summary"]) == ("resolved", resolved.summary)
    # A query of the newest state of each series finds the end.
    series = {tuple(sorted({**row.tags, "state": ""}.items())) for row in player.rows}
    assert len(series) == 1


def test_series_that_ends_without_a_good_value_is_not_back_to_normal():
    tags = {"device": "gpu0", "host": "h1"}
    hot = rule("hot", "threshold", measurement="device", field="temp_c", above=85)
    for last, words in (
        (90.0, "no longer measured (10:40 to 10:50 UTC)"),
        (80.0, "back to normal"),
    ):
        player = Player(engine_of(hot))
        for seconds, temp_c in ((0, 90.0), (10, 90.0), (20, last)):
            player.engine.observe(
                Point("device", tags, {"temp_c": temp_c}, T0 + seconds * NS_PER_S)
            )
            player.tick(seconds)
        player.tick(600)
        assert player.states == ["firing", "resolved"]
        assert player.notified[-1][1].summary.startswith(f"{words}: temp_c of gpu0")
    is_measured = True
    player = Player(
        AlertEngine(
            [rule("drift", "drift")], SETTINGS, (), [hook()], TAGS, is_current=lambda _: is_measured
        )
    )
    player.report(drift_event(8.0, "cooling"))
    player.tick(0)
    is_measured = False
    player.tick(120)
    text = "no longer measured (10:40 to 10:42 UTC): cost is +8.0 %"
    assert player.notified[-1][1].summary == text


def test_shift_to_the_other_side_is_another_incident():
    player = Player(engine_of(rule("drift", "drift")))
    player.report(drift_event(-20.0, "clock", severity="info"))
    player.tick(0)
    player.report(drift_event(6.0, "cooling", at_s=1))
    player.tick(60)
    player.tick(90)
    # The first level after a return is not exact.
    player.report(drift_event(0.0, "", at_s=100))
    since = {"severity": "info", "since_ns": T0 + 95 * NS_PER_S}
    player.report(drift_event(-1.2, "clock", at_s=110, **since))
    player.tick(120)
    player.tick(150)
    assert player.states == ["firing", "resolved"] * 2
    assert [alert.severity for _, alert in player.notified] == ["info"] * 2 + ["warning"] * 2


def test_larger_improvement_in_an_incident_is_not_notified_again():
    player = Player(engine_of(rule("drift", "drift")))
    player.report(drift_event(7.0, "neighbour"))
    player.tick(0)
    player.report(drift_event(-23.0, "clock", metric="latency", severity="info"))
    player.tick(60)
    assert player.states == ["firing"]


def test_intermittent_drift_is_one_incident_after_its_second_recurrence():
    player = Player(engine_of(rule("drift", "drift")))
    for hour in range(0, 120, 8):
        for offset, level_pct in ((0, 35.0), (3, 0.0)):
            seconds = 3600 * (hour + offset)
            player.report(drift_event(level_pct, "neighbour" if level_pct else "", at_s=seconds))
            player.tick(seconds)
            player.restart(rule("drift", "drift"))
    assert player.states == ["firing", "resolved"] * 2 + ["firing"]
    (alert,) = player.engine.alerts()
    assert alert.detail.endswith(". Intermittent: 7 times in two days")
    assert player.tick(3600 * (115 + 25)) == ()


def test_higher_severity_is_notified_and_another_series_is_not():
    player = Player(engine_of(rule(group_by=["host"])))
    player.tick(0, fault("sink_behind", "a", "warning", sink="a"))
    player.tick(10, fault("sink_behind", "a", "warning"), fault("sink_behind", "b", "warning"))
    assert player.states == ["firing"]
    player.tick(20, fault("sink_behind", "a", "warning"), fault("disk_low", "", "critical", x="y"))
    assert [(a.severity, a.raised_from) for _, a in player.notified] == [
        ("warning", None),
        ("critical", "warning"),
    ]
    player.tick(30, fault("sink_behind", "a", "warning"))
    assert len(player.notified) == 2


def test_resolved_incident_cools_down_before_it_fires_again():
    player = Player(engine_of(rule(cool_down="10m")))
    player.tick(0, fault())
    player.tick(10)
    (again,) = player.tick(20, fault())
    assert again.state == "pending"
    (again,) = player.tick(610, fault())
    assert again.state == "firing"


def test_flapping_incident_is_notified_once_and_resolves_after_the_window():
    player = Player(engine_of(rule()))
    for minute in range(20):
        player.tick(minute * 60, *([fault()] if minute % 2 == 0 else []))
    assert player.states == ["firing", "resolved"] * 3 + ["firing"]
    assert [alert.is_flapping for _, alert in player.notified] == [False] * 6 + [True]
    (alert,) = player.engine.alerts()
    assert alert.is_flapping
    player.tick(19 * 60 + 3500)
    assert len(player.notified) == 7
    player.tick(19 * 60 + 3600)
    assert player.states[7:] == ["resolved"]


def silence(**more):
    known = {"id": "s1", "match": {"device": "gpu*"}, "starts_ns": T0, "comment": "c"}
    return Silence(**{**known, "ends_ns": T0 + 600 * NS_PER_S, "author": "me", **more})


def test_silenced_incident_is_notified_when_the_silence_ends():
    player = Player(engine_of(rule()))
    player.engine.silencing.add(silence())
    (alert,) = player.tick(0, fault())
    assert alert.state == "firing"
    assert player.engine.silenced(T0) == (alert,)
    assert player.rows[0].fields["silenced"] is True
    player.tick(590, fault())
    assert player.notified == []
    player.tick(600, fault())
    assert player.states == ["firing"]


def test_resolution_is_sent_during_a_silence_to_those_that_were_notified():
    for is_silenced_before, states in ((False, ["firing", "resolved"]), (True, [])):
        player = Player(engine_of(rule()))
        if is_silenced_before:
            player.engine.silencing.add(silence())
        player.tick(0, fault())
        player.engine.silencing.add(silence())
        assert player.engine.firing_for("ops", T0 + NS_PER_S) == ()
        player.tick(10)
        assert player.states == states


def test_silences_match_by_filter_expire_and_survive_a_restart():
    player = Player(engine_of(rule()))
    player.engine.silencing.add(silence(match={"device": "gpu7"}))
    player.tick(0, fault())
    assert player.states == ["firing"]
    player.engine.silencing.add(silence(id="s2", match={"rule": "broken", "severity": "crit*"}))
    player.restart(rule())
    assert [found.id for found in player.engine.silencing.present(T0)] == ["s1", "s2"]
    assert player.engine.silencing.end("s2", T0 + NS_PER_S).id == "s2"
    assert [found.id for found in player.engine.silencing.present(T0 + NS_PER_S)] == ["s1"]
    for wrong in ("s2", "none"):
        with pytest.raises(KeyError):
            player.engine.silencing.end(wrong, T0 + 2 * NS_PER_S)
    with pytest.raises(ValueError, match="after it begins"):
        player.engine.silencing.add(silence(ends_ns=T0))


def test_maintenance_window_sends_no_notices():
    window = MaintenanceConfig.model_validate(
        {"name": "w", "days": ["mon"], "start": "10:00", "end": "11:00", "match": {"device": "*3"}}
    )
    player = Player(engine_of(rule(), maintenance=[window]))
    player.tick(0, fault())
    assert player.notified == []
    player.tick(1200, fault())
    assert player.states == ["firing"]


def test_notifier_filters_are_applied():
    both = ["firing", "resolved"]
    for notifier, more, states in (
        (hook(min_severity="critical"), {}, both),
        (hook(min_severity="critical"), {"severity": "warning"}, []),
        (hook(match={"device": "gpu9"}), {}, []),
        (hook(match={"team": "ml"}), {"labels": {"team": "ml"}}, both),
        (hook(send_resolved=False), {}, ["firing"]),
        (hook(), {"notify": []}, []),
        (hook("other"), {"notify": ["ops"]}, []),
        (hook(repeat="1m"), {}, ["firing", *both]),
    ):
        player = Player(engine_of(rule(**more), notifiers=[notifier]))
        for seconds in (0, 59, 60):
            player.tick(seconds, fault())
        player.tick(70)
        assert player.states == states, (notifier, more)


def test_firing_for_a_notifier_lists_notified_incidents():
    player = Player(engine_of(rule(), notifiers=[hook(), hook("none", match={"device": "x"})]))
    (alert,) = player.tick(0, fault())
    assert player.engine.firing_for("ops", T0) == (alert,)
    assert player.engine.firing_for("none", T0) == ()


def test_rule_receives_only_matching_and_present_series():
    player = Player(engine_of(rule(match={"device": "gpu0", "rack": "a*"})))
    assert player.tick(0, fault()) == ()
    assert len(player.tick(10, fault(subject="gpu0"))) == 1
    gone = AlertEngine([rule()], SETTINGS, (), (), TAGS, is_current=lambda _: False)
    assert Player(gone).tick(0, fault()) == ()


def test_labels_of_a_service_route_its_incidents_and_silence_them():
    teams = {"chat": "assistant", "rank": "search"}
    notifiers = [hook("search", match={"team": "search"}), hook("gpus", match={"team": "gpus"})]
    engine = AlertEngine(
        [rule(labels={"stage": "live"}), rule("search-only", match={"team": "search"})],
        SETTINGS,
        (),
        notifiers,
        {**TAGS, "team": "gpus"},
        labels_of=lambda tags: (
            {"team": teams[tags["service"]]} if tags.get("service") in teams else {}
        ),
    )
    faults = [fault("service_unread", name, service=name) for name in teams]
    player = Player(engine)
    alerts = player.tick(0, *faults, fault())
    # Services of one host share an incident, but not with those of another team.
    labels = [(alert.name, alert.labels["team"], alert.labels.get("stage")) for alert in alerts]
    broken = [("broken", team, "live") for team in ("assistant", "gpus", "search")]
    assert sorted(labels, key=str) == [*broken, ("search-only", "search", None)]
    told = [(name, alert.labels["team"]) for name, alert in player.notified]
    assert told == [("search", "search"), ("gpus", "gpus"), ("search", "search")]
    teams_of_rows = sorted(row.tags["team"] for row in player.rows)
    assert teams_of_rows == ["assistant", "gpus", "search", "search"]
    engine.silencing.add(Silence("s", {"team": "search"}, T0, T0 + 10**12, "", ""))
    assert {alert.labels["team"] for alert in engine.silenced(T0)} == {"search"}


def test_rows_of_one_evaluation_have_distinct_times():
    player = Player(engine_of(rule()))
    player.tick(0, *(fault(subject=f"gpu{index}") for index in range(8)))
    assert len({row.time_ns for row in player.rows}) == 8


def test_incident_of_a_rule_whose_state_was_discarded_continues():
    hot = rule("hot", "threshold", measurement="device", field="temp_c", above=85)
    player = Player(engine_of(hot))

    def look(second, temp_c):
        row = Point("device", {"device": "gpu0"}, {"temp_c": temp_c}, T0 + second * NS_PER_S)
        player.engine.observe(row)
        return player.tick(second)

    (before,) = look(0, 90.0)
    document = json.loads(json.dumps(player.engine.document()))
    document["rules"]["hot"][1] = [["nonsense"]]
    player.engine = engine_of(hot)
    player.engine.restore(document, T0 + 10 * NS_PER_S)
    assert [alert.id for alert in player.tick(10)] == [before.id]
    assert [alert.id for alert in look(20, 90.0)] == [before.id]
    assert look(140, 60.0) == ()
    assert player.states == ["firing", "resolved"]


def test_alerts_link_to_the_page_at_the_time_of_the_incident():
    settings = SETTINGS.model_copy(update={"public_url": "http://gpu-01:9470"})
    player = Player(engine_of(rule("broken", "fault"), settings=settings))
    player.tick(0, fault())
    (_, alert), *_ = player.notified
    assert alert.link.startswith("http://gpu-01:9470/?at=20")
    assert Player(engine_of(rule("broken", "fault"))).tick(0, fault())[0].link == ""
