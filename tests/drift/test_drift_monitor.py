"""The drift monitor reports drifts, reversals and anomalies in a probe's rows, with causes."""

import json
import random
from dataclasses import replace

import pytest
from costprobe.alerts.rules.changes import DriftRule, DriftRuleConfig
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import event_point, make_point
from costprobe.drift.causes import Explanation
from costprobe.drift.message import ChangeFacts, change_message, with_amounts
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.runs import DetectionRun, factors, run_of, software_change_of
from costprobe.drift.settings import DetectionConfig
from costprobe.unit_costs.change import CostFactors
from fakes.host import newest

T0 = 1_772_323_200 * NS_PER_S
EVERY_NS = 300 * NS_PER_S
TAGS = {"host": "h", "device": "gpu0", "probe": "e"}
QUIET = 2 * 288


class Series:
    """A probe's rows and the drift monitor that evaluates them."""

    def __init__(self, seed=3, every_ns=EVERY_NS, jitter_ns=0):
        self.jitter_ns = jitter_ns
        self.every_ns = every_ns
        self.rng = random.Random(seed)
        self.rows = []
        self.events = []
        self.count = 0
        self.price = 1e-3
        self.monitor = DriftMonitor(DetectionConfig(), self.history)

    def history(self, measurement, device, probe, span_ns, limit):
        assert (device, probe) in {("gpu0", "e"), ("", "")}
        return newest(self.rows, measurement, device, probe, span_ns, limit)

    def run(self, count=1, slow=1.0, **fields):
        found = []
        for _ in range(count):
            late_ns = self.jitter_ns if self.count % 2 else 0
            time_ns = T0 + self.count * self.every_ns + late_ns
            self.count += 1
            known = {
                "latency_p50_ms": 8 * slow * self.rng.lognormvariate(0, 0.008),
                "throughput_per_s": 2000 / slow,
                "fingerprint": "f",
                **fields,
            }
            row = make_point("probe", {**TAGS, "batch": "8"}, known, time_ns)
            each_s = 1 / known["throughput_per_s"]
            priced = {"cost_reference": 1e-3 * each_s, "cost_hardware": self.price * each_s}
            if "contended" in fields:
                priced["contended"] = fields["contended"]
            together = [row, make_point("cost", {**TAGS, "currency": "EUR"}, priced, time_ns)]
            self.rows += together
            found += self.monitor.update(together)
        self.events += found
        return found

    def of(self, kind, metric="latency"):
        return [e for e in self.events if e.kind == kind and e.metric == metric]


def test_explanation_of_a_drift_reads_a_bounded_number_of_rows():
    """A probe that runs every second has a million rows in the two weeks before a drift."""
    series, read = Series(every_ns=60 * NS_PER_S), []

    def counted(*arguments):
        rows = newest(series.rows, *arguments)
        read.append(len(rows))
        return rows

    series.monitor = DriftMonitor(DetectionConfig(), counted)
    series.run(2 * 1440)
    series.run(400, slow=1.3)
    assert series.of("drift")
    assert 0 < max(read) <= 300


def test_drift_event_has_size_start_and_reversal():
    series = Series()
    series.run(QUIET)
    began_ns = T0 + series.count * EVERY_NS
    series.run(30, slow=1.1)
    (drift,) = series.of("drift")
    assert drift.title.startswith("latency of e on gpu0 is +1")
    assert drift.change_pct == pytest.approx(10, abs=2)
    assert drift.level_pct == pytest.approx(10, abs=2)
    assert abs(drift.since_ns - began_ns) <= 2 * EVERY_NS
    assert (drift.severity, drift.device, drift.subject) == ("warning", "gpu0", {"probe": "e"})
    assert "no monitored signal explains it" in drift.detail
    # Its first value is no anomaly.
    assert series.of("anomaly") == []
    series.run(30)
    back = series.of("drift")[-1]
    assert back.title == "latency of e on gpu0 reverted"
    assert (back.severity, back.level_pct) == ("info", pytest.approx(0, abs=1))


def test_energy_that_rises_with_the_clock_is_no_deterioration():
    series = Series()
    series.run(QUIET, energy_per_inference_j=0.2)
    series.run(10, slow=0.92, energy_per_inference_j=0.213)
    (energy,) = series.of("drift", "energy")
    assert energy.change_pct > 0
    assert energy.severity == "info"
    assert "No action is needed" in energy.detail


def test_drift_of_the_first_day_lasts_as_long_as_its_level():
    series = Series()
    series.run(144)
    series.run(250, slow=1.3, sm_clock_mhz=1520.0)
    assert [round(event.level_pct, -1) for event in series.of("drift")] == [30]
    series.run(30)
    assert series.of("drift")[-1].title == "latency of e on gpu0 reverted"


def test_ramp_is_reported_again_when_it_continues():
    series = Series()
    series.run(QUIET * 3)
    for index in range(3 * 288):
        series.run(slow=1 + 0.12 * index / 864)
    series.run(100, slow=1.12)
    first, *further = series.of("drift")
    assert first.change_pct < 5
    assert further
    assert all(" more since " in event.title for event in further)
    assert {event.since_ns for event in further} == {first.since_ns}
    assert further[-1].level_pct == further[-1].change_pct == pytest.approx(12, abs=1)


def test_slow_ramp_is_one_incident_while_it_grows():
    """The shifts of 0.7 % a day are further apart than the day after which a level counts as normal."""
    series, rule = Series(), DriftRule(DriftRuleConfig(name="drift", kind="drift"))
    for index in range(14 * 288):
        for event in series.run(slow=1 + 0.1 * max(0, index - 864) / 4032):
            rule.observe(event_point(event, {}))
        rule.evaluate(series.rows[-1].time_ns, ())
        shifts = [shift for shift in rule.series.values() if shift["is_over"]]
        assert not shifts, index
    first, *further = series.of("drift", "cost")
    assert {event.since_ns for event in further} == {first.since_ns}
    true_pct = 10 * (14 * 288 - 864) / 4032
    assert further[-1].level_pct == pytest.approx(true_pct, abs=1)


def test_ends_of_a_drift_are_no_drifts_of_their_own():
    """A part of it, all of it, and the opposite; a warning stays one while the cost is higher."""
    found = {}
    for name, later in (("part", 1.12), ("all", 1.0), ("a little", 1.012), ("opposite", 0.92)):
        series = Series()
        series.run(QUIET)
        series.run(60, slow=1.3)
        series.run(60, slow=later)
        found[name] = [
            (event.severity, round(event.level_pct)) for event in series.of("drift", "cost")
        ]
    assert found == {
        "part": [("warning", 30), ("warning", 12)],
        "all": [("warning", 30), ("info", 0)],
        "a little": [("warning", 30), ("info", 0)],
        "opposite": [("warning", 30), ("info", 0), ("info", -8)],
    }


def test_step_that_a_run_had_a_part_of_is_one_event():
    series = Series()
    series.run(QUIET)
    for slow in (1.06, 1.15, 1.24):
        series.run(slow=slow)
    series.run(60, slow=1.3)
    assert [round(event.level_pct) for event in series.of("drift", "cost")] == [30]


def test_larger_batch_that_lowers_the_cost_is_no_deterioration_of_the_latency():
    series = Series()
    series.run(QUIET)
    series.run(30, latency_p50_ms=11.0, throughput_per_s=2115.0)
    (latency,) = series.of("drift", "latency")
    assert (round(latency.change_pct), latency.severity) == (38, "info")
    assert latency.detail.endswith("No action is needed")


def test_shift_below_the_smallest_reported_one_is_no_event():
    series = Series()
    series.run(QUIET)
    series.run(200, slow=1.014)
    assert [event for event in series.events if event.kind == "drift"] == []
    # Together with the next it is more.
    series.run(60, slow=1.03)
    assert [round(event.level_pct) for event in series.of("drift")] == [3]


def test_further_shift_names_a_cause_that_shows_later():
    """The clock of a ramp is within its noise at first."""
    series = Series()
    jitter = random.Random(1)
    for index in range(3 * QUIET):
        share = max(0.0, (index - 2 * QUIET) / QUIET)
        clock_mhz = 1980 * (1 - 0.2 * share) + jitter.gauss(0, 120)
        per_s = 2000 * (1 - 0.2 * share) * jitter.lognormvariate(0, 0.002)
        series.run(sm_clock_mhz=clock_mhz, throughput_per_s=per_s)
    first, *further = series.of("drift", "cost")
    assert first.cause == "unknown"
    assert further[-1].cause == "clock"
    assert " more since " in further[-1].title
    assert "nvidia-smi -q -d CLOCK" in further[-1].detail


def test_drift_is_measured_from_the_level_of_the_last_drift():
    """A level held for more than a day is the reference, even after a longer earlier level."""
    series = Series(every_ns=3 * EVERY_NS)
    series.run(QUIET)
    series.run(120, slow=1.1)
    series.run(30)
    up, down = series.of("drift", "cost")
    assert up.title.startswith("cost per inference of e on gpu0 is +1")
    assert down.change_pct == pytest.approx(-9, abs=1)
    assert down.title.startswith("cost per inference of e on gpu0 is -9.")
    # It is no drift, but the end of the first.
    assert down.title.endswith("it is back at the level before 2026-03-07 00:00 UTC")
    assert (down.level_pct, down.severity) == (0, "info")


def test_level_of_the_last_drift_survives_a_restart():
    series = Series(every_ns=3 * EVERY_NS)
    series.run(QUIET)
    series.run(120, slow=1.1)
    documents = json.loads(json.dumps(series.monitor.documents()))
    series.monitor = DriftMonitor(DetectionConfig(), series.history)
    series.monitor.restore(documents.values())
    assert "back at the level before" in series.run(30)[-1].title


def test_runs_with_jitter_are_assigned_to_the_correct_side_of_a_change():
    series = Series(jitter_ns=20 * NS_PER_S)
    series.run(QUIET)
    series.run(30, slow=1.1, fingerprint="g")
    (drift,) = series.of("drift")
    assert drift.cause == "software: fingerprint"


@pytest.mark.parametrize("fingerprint", ["f", "g"])
def test_replaced_board_is_the_first_cause(fingerprint):
    series = Series()
    series.run(QUIET)
    series.run(1, slow=1.1, fingerprint=fingerprint)
    time_ns = series.rows[-1].time_ns
    fields = {"cause": "board", "before": "board GPU-1", "after": "board GPU-2"}
    series.rows.append(make_point("event", {**TAGS, "kind": "software"}, fields, time_ns))
    series.run(30, slow=1.1, fingerprint=fingerprint)
    (drift,) = series.of("drift")
    assert drift.cause == "board"
    assert "another board: GPU-1 → GPU-2" in drift.detail


def test_board_replaced_and_put_back_is_not_a_cause():
    series = Series()
    series.run(QUIET)
    for before, after in (("GPU-1", "GPU-2"), ("GPU-2", "GPU-1")):
        series.run(1, slow=1.1)
        fields = {"cause": "board", "before": f"board {before}", "after": f"board {after}"}
        event = make_point("event", {**TAGS, "kind": "software"}, fields, series.rows[-1].time_ns)
        series.rows.append(event)
    series.run(30, slow=1.1)
    assert [drift.cause for drift in series.of("drift")] == ["unknown"]


def software_row(series, run, **versions):
    """The event of a change of software, at a run of a series."""
    old, new = ({key: v[i] for key, v in versions.items()} for i in (0, 1))
    texts = [", ".join(f"{key} {value}" for key, value in side.items()) for side in (old, new)]
    fields = {"cause": ", ".join(versions), "before": texts[0], "after": texts[1]}
    tags = {**TAGS, "kind": "software"}
    return make_point("event", tags, fields, T0 + run * EVERY_NS)


def test_software_is_a_cause_only_from_shortly_before_the_effect_until_its_begin():
    names = {}
    for runs_before in (288, 3, 1, 0, -1, -2):
        series = Series()
        series.run(QUIET - max(0, runs_before))
        if runs_before > 0:
            series.run(runs_before, fingerprint="g")
        elif runs_before < 0:
            series.run(-runs_before, slow=1.1)
        series.rows.append(software_row(series, QUIET - runs_before, driver=("550", "560")))
        series.run(30, slow=1.1, fingerprint="g")
        names[runs_before] = {event.cause for event in series.of("drift")}
    late = {-1: {"unknown"}, -2: {"unknown"}, 288: {"unknown"}}
    assert names == {runs: late.get(runs, {"software: driver"}) for runs in names}


def test_signal_that_moved_after_the_drift_began_is_not_its_cause():
    series = Series()
    series.run(QUIET, sm_clock_mhz=1980.0)
    series.run(8, slow=1.03, sm_clock_mhz=1980.0)
    series.run(30, slow=1.03, sm_clock_mhz=1500.0)
    (drift,) = series.of("drift")
    assert drift.cause == "unknown"


def test_price_change_beside_a_drift_is_stated_apart_in_money():
    series = Series()
    series.run(QUIET)
    series.price = 0.8e-3
    series.run(4)
    series.run(30, slow=1.1)
    (drift,) = series.of("drift", "cost")
    assert drift.title == (
        "cost per inference of e on gpu0 is +10.0 % at constant price (+€0.05 per million) since"
        " 00:20 UTC, worth €239 a month of this device's capacity if it is fully used; the price changed"
        " at 00:00 UTC: its own part is -€0.11 per million, both together -€0.06 per million, -€287"
        " a month if this device is fully used"
    )
    # An hour at 3.6 costs as much as before at 2.88, where 1.1 times the device did the same.
    assert drift.cost_per_month == pytest.approx((2.88 - 3.6 / 1.1) * 730, rel=1e-3)
    assert "price" not in drift.cause


def test_amount_agrees_with_the_percentage_where_single_runs_do_not():
    """A neighbour that comes each day is a part of the daily pattern, but not of the runs just before."""
    facts = ChangeFacts("cost", 7.0, 0, 0, is_worse=True, explanation=Explanation("neighbour"))
    levels = [CostFactors(time_s=time_s, price_per_s=1.0) for time_s in (2.0, 2.8, 2.8)]
    run = DetectionRun(0, 1, 2.0, None, 1.0, 0.0, "", {}, "EUR", is_assumed=True)
    found = with_amounts(facts, tuple(levels), run, None)
    assert "(+€0.14 per inference, price assumed)" in change_message(found).headline
    assert found.money.amount == pytest.approx(0.14)
    assert found.split == "100 % of it is time per inference"
    assert with_amounts(replace(facts, change_pct=-7.0), tuple(levels), run, None).split == ""


def test_single_outlier_is_reported_as_an_anomaly_one_run_later():
    series = Series()
    series.run(QUIET)
    assert series.run(slow=2.0, throttled_power_pct=40.0) == []
    anomalies = [event for event in series.run() if event.metric == "latency"]
    assert [event.kind for event in anomalies] == ["anomaly"]
    assert anomalies[0].time_ns == T0 + QUIET * EVERY_NS
    assert anomalies[0].cause == "power limit"
    assert anomalies[0].change_pct == pytest.approx(100, abs=5)


def test_throttling_names_an_outlier_only_if_it_lasted_for_half_of_it():
    causes = {}
    for throttled_pct in (5.0, 60.0):
        series = Series()
        series.run(QUIET)
        series.run(slow=2.0, throttled_power_pct=throttled_pct)
        causes[throttled_pct] = {event.cause for event in series.run() if event.metric == "latency"}
    assert causes == {5.0: {""}, 60.0: {"power limit"}}


def test_occasional_contention_does_not_enter_the_baseline():
    quiet, disturbed = Series(), Series()
    for _ in range(QUIET // 4):
        for series in (quiet, disturbed):
            series.run(3)
        disturbed.run(slow=2.0, contended=True)
    assert disturbed.of("drift") == disturbed.of("drift", "cost") == []
    # Both have the same level: a later drift has the same size.
    changes = []
    for series in (quiet, disturbed):
        series.run(30, slow=1.1)
        changes.append(series.of("drift")[0].change_pct)
    assert changes[0] == pytest.approx(changes[1], abs=1)


def test_runs_beside_a_neighbour_are_one_change_from_when_they_are_more_until_they_are_as_rare_as_before():
    patterns = {
        "lasting": lambda run, _: 0 <= run < 200,
        "three of ten": lambda run, chance: 0 <= run < 600 and chance < 0.3,
        "by day": lambda run, _: run >= 0 and 96 <= run % 288 < 216,
        "bursts": lambda run, _: run >= 0 and run % 100 < 12,
    }
    found = {}
    for name, pattern in patterns.items():
        series = Series()
        series.run(QUIET, contended=False)
        for run in range(1000):
            is_contended = pattern(run, series.rng.random())
            series.run(slow=1.12 if is_contended else 1.0, contended=is_contended)
        assert {event.metric for event in series.events} == {"contention"}, name
        first, *others = series.events
        found[name] = [event.level_pct for event in others]
        assert (first.cause, first.severity) == ("neighbour", "warning"), name
        assert first.level_pct == pytest.approx(12, abs=1.5), name
        assert f"{first.title.split('(')[1].split(' %')[0]} %" in first.title
    assert found == {name: [0.0] for name in patterns}
    assert series.events[0].title.startswith("cost per inference of e on gpu0 beside a neighbour (")
    assert "move the other process" in series.events[0].detail


def test_rule_on_the_cost_fires_for_runs_beside_a_neighbour():
    fired = {}
    for metrics, at_least in ((("cost",), 0.1), (("cost",), 0.3), (("energy",), 0.1)):
        series = Series()
        config = DriftRuleConfig(name="r", kind="drift", metrics=metrics, at_least=at_least)
        rule = DriftRule(config)
        series.run(QUIET, contended=False)
        for _ in range(30):
            for event in series.run(slow=1.2, contended=True):
                rule.observe(event_point(event, {}))
        fired[metrics[0], at_least] = [
            symptom.cause for symptom in rule.evaluate(series.rows[-1].time_ns, ())
        ]
    assert fired == {("cost", 0.1): ["neighbour"], ("cost", 0.3): [], ("energy", 0.1): []}


def test_device_that_is_always_contended_is_monitored():
    series = Series()
    series.run(QUIET, contended=True)
    series.run(30, slow=1.1, contended=True)
    assert [drift.change_pct for drift in series.of("drift")] == [pytest.approx(10, abs=2)]


def test_neighbour_is_no_outlier():
    series = Series()
    series.run(QUIET, contended=False)
    for count in (1, 30, 3):
        series.run(count, slow=2.0, contended=True)
        series.run(1, contended=False)
    assert series.of("anomaly", "cost") == series.of("anomaly") == []


def test_estimated_energy_is_not_monitored():
    series = Series()
    series.run(50, energy_per_inference_j=1.0, energy_method="last_known")
    assert not any("energy" in name for name in series.monitor.documents())
    series.run(1, energy_per_inference_j=1.0, energy_method="counter")
    assert any("energy" in name for name in series.monitor.documents())


def test_small_drift_of_energy_alone_needs_a_cause():
    reported = []
    for joules, temp_c in ((1.022, 64.0), (1.022, 76.0), (1.05, 64.0)):
        series = Series()
        known = {"sm_clock_mhz": 1980.0, "energy_per_inference_j": 1.0, "temp_max_c": 64.0}
        series.run(QUIET, **known)
        series.run(40, **{**known, "energy_per_inference_j": joules, "temp_max_c": temp_c})
        reported.append([event.cause for event in series.of("drift", "energy")])
    assert reported == [[], ["temperature"], ["unknown"]]


def test_restored_drift_monitor_continues():
    one, other = Series(), Series()
    for series in (one, other):
        series.run(QUIET + 100)
    documents = json.loads(json.dumps(other.monitor.documents()))
    other.monitor = DriftMonitor(DetectionConfig(), other.history)
    assert other.monitor.restore(documents.values()) == []
    for series in (one, other):
        series.run(30, slow=1.08)
    assert one.of("drift")
    assert other.events == one.events


def test_contended_runs_survive_a_restart():
    """Of an older version there are none, and their number was a part of each series."""
    one, other, old = Series(), Series(), Series()
    for series in (one, other, old):
        series.run(QUIET, contended=False)
        series.run(4, slow=1.2, contended=True)
    documents = json.loads(json.dumps(other.monitor.documents()))
    of_old = [d for d in documents.values() if d["kind"] == "series"]
    damaged = [
        {**d, "state": {**d["state"], "flags": 3}}
        for d in documents.values()
        if d["kind"] == "runs"
    ]
    for series, states, problems in ((other, documents.values(), 0), (old, [*of_old, *damaged], 1)):
        series.monitor = DriftMonitor(DetectionConfig(), series.history)
        assert len(series.monitor.restore(states)) == problems
    for series in (one, other, old):
        series.run(60, slow=1.2, contended=True)
    assert [event.metric for event in one.events] == ["contention"]
    assert other.events == one.events
    assert {event.metric for event in old.events} <= {"contention"}


def test_damaged_state_is_reported_and_discarded():
    series = Series()
    series.run(100)
    documents = list(series.monitor.documents().values())
    damaged = [{**documents[0], "state": {"detector": "AAAA"}}, {"key": ["a", "b"]}, documents[1]]
    other = DriftMonitor(DetectionConfig(), series.history)
    problems = other.restore(damaged)
    assert len(problems) == 2
    assert all("is trained again" in problem for problem in problems)
    assert len(other.documents()) == 1


def test_changed_settings_discard_the_state():
    series = Series()
    series.run(100)
    other = DriftMonitor(DetectionConfig(least_effect=0.1), series.history)
    assert other.restore(series.monitor.documents().values()) == []
    assert not any(document["kind"] == "series" for document in other.documents().values())


def test_detection_can_be_disabled():
    series = Series()
    series.monitor = DriftMonitor(DetectionConfig(enabled=False), series.history)
    series.run(QUIET)
    assert series.run(30, slow=2.0) == []


def software_event(**fields):
    return Point("event", {**TAGS, "kind": "software"}, fields, T0)


def test_software_versions_with_commas_are_parsed_from_an_event():
    change = software_change_of(
        software_event(
            cause="driver, flags, torch",
            before="driver 550.54, flags a, b, torch 2.12",
            after="driver 560.1, flags none, torch 2.13",
        )
    )
    assert change.before == {"driver": "550.54", "flags": "a, b", "torch": "2.12"}
    assert change.after == {"driver": "560.1", "flags": "none", "torch": "2.13"}
    assert software_change_of(Point("event", {"kind": "price"}, {}, T0)) is None


def test_annotation_of_the_device_or_of_all_is_a_candidate():
    causes = {}
    for name, tags, runs_before in (
        ("of all", {}, 1),
        ("of the device", {"device": "gpu0"}, 1),
        ("of another device", {"device": "gpu1"}, 1),
        ("the day before", {}, 288),
    ):
        series = Series()
        series.run(QUIET)
        time_ns = T0 + (QUIET - runs_before) * EVERY_NS + 1
        annotation = Point(
            "event", {"kind": "annotation", **tags}, {"title": "deployed v42"}, time_ns
        )
        series.rows.append(annotation)
        series.run(20, slow=1.3)
        (drift,) = series.of("drift")
        causes[name] = drift.cause
        assert ("deployed v42" in drift.detail) == (drift.cause == "annotation")
    assert causes == {
        "of all": "annotation",
        "of the device": "annotation",
        "of another device": "unknown",
        "the day before": "unknown",
    }


def test_run_has_cost_factors():
    fields = {"throughput_per_s": 500.0, "energy_per_inference_j": 0.5}
    probe = make_point("probe", {**TAGS, "batch": "8"}, fields, T0)
    cost = make_point("cost", TAGS, {"cost_hardware": 2e-6, "cost_energy": 1e-7}, T0)
    found = factors([run_of(probe, cost)])
    known = (found.time_s, found.price_per_s, found.electricity_per_j, found.cost)
    assert known == pytest.approx((0.002, 0.001, 2e-7, 2.1e-6))
    assert factors([run_of(probe, None)]).price_per_s == 1.0
    assert run_of(make_point("probe", TAGS, {"samples": 3}, T0), None) is None
