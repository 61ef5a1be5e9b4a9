"""An incident's life cycle (pending, firing, silenced, flapping, raised, resolved) and notices."""

import json

import pytest
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.rules.kinds import DEFAULT_RULES
from costprobe.alerts.settings import AlertingConfig, MaintenanceConfig
from costprobe.configuration import AnyNotifier, AnyRule
from costprobe.core.incident import Fault, Silence
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.schema import event_point
from pydantic import TypeAdapter
from record.record_files import check

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


def silence(**more):
    known = {"id": "s1", "match": {"device": "gpu*"}, "starts_ns": T0, "comment": "c"}
    return Silence(**{**known, "ends_ns": T0 + 600 * NS_PER_S, "author": "me", **more})


def measured(seconds, tags, **fields):
    name = "probe" if "probe" in tags else "device"
    return Point(name, {**TAGS, **tags}, fields, T0 + seconds * NS_PER_S)


def throttling(minute):
    fields = {"throttled_thermal_pct": 12.0}
    tags = [{"device": "gpu0", "probe": probe, "batch": "8"} for probe in "abcde"]
    return [*(measured(60 * minute, each, **fields) for each in tags), (60 * minute,)]


def hot(*values):
    """A temperature every 10 s, and ten minutes later."""
    rows = [measured(10 * n, {"device": "gpu0"}, temp_c=value) for n, value in enumerate(values)]
    return [step for n, row in enumerate(rows) for step in (row, (10 * n,))] + [(600,)]


def spent(minute, *, ends_minute=1440, budget="team", exceeded=False, forecast=False):
    """A row of a budget of a day."""
    figures = {"amount": 100.0, "spent": 101.0 if exceeded else 60.0, "forecast": 130.0}
    conditions = {"exceeded": exceeded, "forecast_exceeded": forecast, "text": f"budget {budget}"}
    ends = {"period_end_ns": T0 + ends_minute * 60 * NS_PER_S}
    tags = {**TAGS, "budget": budget, "period": "day", "currency": "USD"}
    return Point("budget", tags, figures | conditions | ends, T0 + minute * 60 * NS_PER_S)


def evaluated(*rows):
    """Rows of budgets by minute, each with an evaluation."""
    return [step for row in rows for step in (row, ((row.time_ns - T0) // NS_PER_S,))]


def drifts(*levels, every_s=60):
    """Drifts by level and cause, each with an evaluation, a restart and another evaluation."""
    found = []
    for number, (level_pct, cause, *more) in enumerate(levels):
        at_s = every_s * number
        event = drift_event(level_pct, cause, at_s=at_s, detail=f"cause: {cause}", **dict(*more))
        found += [event, (at_s,), RESTART, (at_s + 10,)]
    return found


RESTART, F = "restart", fault()
OF_GPU = {"match": {"budget": "g*"}, "severity": "info"}
DRIFT, FOR_A_MINUTE = rule("drift", "drift"), rule(**{"for": "1m"})
HOT = rule("hot", "threshold", measurement="device", field="temp_c", above=85)
WINDOW = MaintenanceConfig.model_validate(
    {"name": "w", "days": ["mon"], "start": "10:00", "end": "11:00", "match": {"device": "*3"}}
)
BEHIND = {name: fault("sink_behind", name, "warning", sink=name) for name in "ab"}
LATER = {"severity": "info", "since_ns": T0 + 240 * NS_PER_S}
OF_SERVICES = [
    drift_event(12.0, "efficiency", metric, device="", subject={"service": service})
    for service in ("chat", "search")
    for metric in ("serving_energy", "serving_time")
]
# Rules, and steps: an event or row, an evaluation after so many seconds with the present faults, a silence.
SCRIPTS = {
    "pending, firing, resolved": ([FOR_A_MINUTE], [(0, F), (60, F), (70,)]),
    "over before it fires": ([FOR_A_MINUTE], [(0, F), (30,)]),
    "a throttling GPU with five probes": (
        DEFAULT_RULES,
        [
            *(step for minute in range(0, 20, 5) for step in throttling(minute)),
            *(drift_event(8.0, "thermal throttling", metric) for metric in ("latency", "cost")),
            *((17 * 60,), (18 * 60,)),
        ],
    ),
    "two services": (DEFAULT_RULES, [*OF_SERVICES, (60,)]),
    "new causes and a doubled drift": (
        [DRIFT],
        drifts(
            *((level_pct, "cooling") for level_pct in (1.2, 1.8, 2.5)),
            *[(3.0, "unknown"), (3.5, "neighbour"), (3.5, "cooling"), (12.0, "cooling"), (0.0, "")],
        ),
    ),
    "a level that lasts a day": ([DRIFT], [*drifts((8.0, "cooling")), (86_400 + 120,)]),
    "two series that end, one with a little left": (
        [DRIFT],
        [
            *drifts((30.2, "cooling")),
            drift_event(29.8, "cooling", "latency", 60, subject={"probe": "b"}),
            (60,),
            drift_event(1.2, "cooling", at_s=300, title="cost is -25.0 %", **LATER),
            (300,),
            drift_event(0.0, "", "latency", 360, subject={"probe": "b"}, **LATER),
            (360,),
        ],
    ),
    "no longer measured": ([HOT], hot(90.0, 90.0, 90.0)),
    "back to normal": ([HOT], hot(90.0, 90.0, 80.0)),
    "a shift to the other side": (
        [DRIFT],
        [
            *(drift_event(-20.0, "clock", severity="info"), (0,)),
            *(drift_event(6.0, "cooling", at_s=1), (60,), (90,), drift_event(0.0, "", at_s=100)),
            # The first level after a return is not exact.
            drift_event(-1.2, "clock", at_s=110, severity="info", since_ns=T0 + 95 * NS_PER_S),
            *((120,), (150,)),
        ],
    ),
    "a larger improvement in an incident": (
        [DRIFT],
        [
            *(drift_event(7.0, "neighbour"), (0,)),
            *(drift_event(-23.0, "clock", "latency", severity="info"), (60,)),
        ],
    ),
    "an intermittent drift": (
        [DRIFT],
        [
            step
            for hour in range(0, 120, 8)
            for offset, level_pct in ((0, 35.0), (3, 0.0))
            for seconds in [3600 * (hour + offset)]
            for step in (drift_event(level_pct, "neighbour", at_s=seconds), (seconds,), RESTART)
        ]
        + [(3600 * (115 + 25),)],
    ),
    "a higher severity, and another series": (
        [rule(group_by=["host"])],
        [
            *((0, BEHIND["a"]), (10, *BEHIND.values())),
            *((20, BEHIND["a"], fault("disk_low", "", "critical", x="y")), (30, BEHIND["a"])),
        ],
    ),
    "a cool-down": ([rule(cool_down="10m")], [(0, F), (10,), (20, F), (610, F)]),
    "flapping": (
        [rule()],
        [
            *((60 * minute, *([F] if minute % 2 == 0 else [])) for minute in range(20)),
            *((19 * 60 + 3500,), (19 * 60 + 3600,)),
        ],
    ),
    "silenced": ([rule()], [silence(), (0, F), (590, F), (600, F)]),
    "silenced after it fired": ([rule()], [(0, F), silence(), (10,)]),
    "over while silenced": ([rule()], [silence(), (0, F), (10,)]),
    "in a maintenance window": ([rule()], [(0, F), (1200, F)]),
    "a budget that will be exceeded, and is": (
        DEFAULT_RULES,
        evaluated(
            *(spent(9), spent(10, forecast=True), spent(20, forecast=True)),
            *(spent(30, forecast=True, exceeded=True), spent(1441, ends_minute=2880)),
        ),
    ),
    "a budget without rows after its period": (
        DEFAULT_RULES,
        [*evaluated(spent(10, exceeded=True)), (1469 * 60,), (1471 * 60,)],
    ),
    "a budget that is exceeded in two periods": (
        DEFAULT_RULES,
        [
            *evaluated(spent(1430, exceeded=True), spent(1441, ends_minute=2880, exceeded=True)),
            *((1442 * 60,), *evaluated(spent(1451, ends_minute=2880, exceeded=True))),
        ],
    ),
    "two budgets of which rules match one": (
        [
            rule("forecast", "budget_forecast", **OF_GPU),
            rule("exceeded", "budget_exceeded", **OF_GPU),
        ],
        evaluated(
            spent(10, exceeded=True),
            *(spent(11, budget="gpu", forecast=True), spent(12, budget="gpu", exceeded=True)),
        ),
    ),
    "two budgets": (
        DEFAULT_RULES,
        [spent(10, exceeded=True), spent(10, budget="gpu", exceeded=True), (600,)],
    ),
}


def told(alert):
    raised = f" raised from {alert.raised_from}" if alert.raised_from else ""
    flags = f"{raised}{' flapping' if alert.is_flapping else ''}, revision {alert.revision}"
    labels = " ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))
    lines = [f"{alert.state} {alert.severity} {alert.name} ({labels}){flags}"]
    return [*lines, alert.summary, *filter(None, (alert.detail, alert.cause))]


def test_notices_of_scripted_incidents():
    """The record has notices and rows after each evaluation that has one; see `record_files`."""
    lines = []
    for name, (rules, steps) in SCRIPTS.items():
        more = {"maintenance": [WINDOW] if "window" in name else ()}
        player = Player(engine_of(*rules, **more))
        lines.append(f"{name}:")
        for step in steps:
            sizes = len(player.notified), len(player.rows)
            if isinstance(step, tuple):
                player.tick(*step)
            elif isinstance(step, Silence):
                player.engine.silencing.add(step)
            elif step == RESTART:
                player.restart(*rules, **more)
            else:
                player.engine.observe(step if isinstance(step, Point) else event_point(step, TAGS))
            notices, rows = player.notified[sizes[0] :], player.rows[sizes[1] :]
            if notices or rows:
                states = " ".join(f"{r.tags['state']}{r.fields['silenced'] * 1}" for r in rows)
                lines.append(f"  {step[0]} s, rows: {states}")
            lines += [f"    {text}" for _, alert in notices for text in told(alert)]
            assert len({row.time_ns for row in rows}) == len(rows)
        kept = [f"{alert.state}: {alert.summary}" for alert in player.engine.alerts()]
        lines.append(f"  at the end {'; '.join(kept) or 'none'}")
    check("alert_notices.txt", "\n".join([*lines, ""]))


def test_series_that_is_measured_no_longer_is_not_back_to_normal():
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
