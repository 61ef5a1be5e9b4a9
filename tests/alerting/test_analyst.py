"""The analyst tells drifts, returns and anomalies of a probe's rows, each with what is known."""

import json
import random

import pytest

from agent.alerting.analyst import Analyst
from agent.config_alerting import DetectionConfig
from agent.detection.runs import conditions, factors, run_of, software_change_of
from agent.model import NS_PER_S, Point
from agent.series import make_point

T0 = 1_772_323_200 * NS_PER_S
EVERY_NS = 300 * NS_PER_S
TAGS = {"host": "h", "device": "gpu0", "probe": "e"}
QUIET = 2 * 288


class Series:
    """A probe's rows, and an analyst that looks at them."""

    def __init__(self, seed=3, every_ns=EVERY_NS, jitter_ns=0):
        self.jitter_ns = jitter_ns
        self.every_ns = every_ns
        self.rng = random.Random(seed)
        self.rows = []
        self.events = []
        self.count = 0
        self.analyst = Analyst(DetectionConfig(), self.history)

    def history(self, device, probe, since_ns, until_ns):
        assert (device, probe) == ("gpu0", "e")
        return [row for row in self.rows if since_ns <= row.time_ns < until_ns]

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
            hardware = 1e-3 / known["throughput_per_s"]
            priced = {"cost_reference": hardware, "cost_hardware": hardware}
            together = [row, make_point("cost", TAGS, priced, time_ns)]
            self.rows += together
            found += self.analyst.take(together)
        self.events += found
        return found

    def of(self, kind, metric="latency"):
        return [e for e in self.events if e.kind == kind and e.metric == metric]


def test_a_drift_says_what_by_how_much_since_when_and_its_return_is_told():
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
    assert "nothing else that is watched moved" in drift.detail
    series.run(30)
    back = series.of("drift")[-1]
    assert back.title == "latency of e on gpu0 is back where it was"
    assert (back.severity, back.level_pct) == ("info", pytest.approx(0, abs=1))


def test_a_change_for_the_better_is_info():
    series = Series()
    series.run(QUIET)
    series.run(10, slow=0.9)
    assert [event.severity for event in series.of("drift")] == ["info"]
    (throughput,) = series.of("drift", "throughput")
    assert throughput.severity == "info"
    assert throughput.change_pct > 0


def test_a_ramp_is_told_again_when_it_has_gone_on():
    series = Series()
    series.run(QUIET * 3)
    for index in range(3 * 288):
        series.run(slow=1 + 0.12 * index / 864)
    series.run(100, slow=1.12)
    first, *further = series.of("drift")
    assert first.change_pct < 5
    assert further
    assert all("moved on" in event.title for event in further)
    assert further[-1].level_pct == pytest.approx(12, abs=3)


def test_a_change_is_told_against_the_level_since_the_last_drift():
    """A day and more at a level make it the normal one, whatever held for longer before."""
    series = Series(every_ns=3 * EVERY_NS)
    series.run(QUIET)
    series.run(120, slow=1.1)
    series.run(30)
    up, down = series.of("drift", "cost")
    assert "cost per inference of e on gpu0: +1" in up.detail
    assert down.change_pct == pytest.approx(-9, abs=1)
    assert "cost per inference of e on gpu0: -9." in down.detail


def test_the_level_since_the_last_drift_outlives_a_restart():
    series = Series(every_ns=3 * EVERY_NS)
    series.run(QUIET)
    series.run(120, slow=1.1)
    documents = json.loads(json.dumps(series.analyst.documents()))
    series.analyst = Analyst(DetectionConfig(), series.history)
    series.analyst.restore(documents.values())
    assert "-9." in series.run(30)[-1].detail


def test_runs_that_are_not_exactly_a_period_apart_are_on_the_right_side_of_a_change():
    series = Series(jitter_ns=20 * NS_PER_S)
    series.run(QUIET)
    series.run(30, slow=1.1, fingerprint="g")
    (drift,) = series.of("drift")
    assert drift.cause == "software: fingerprint"


@pytest.mark.parametrize("fingerprint", ["f", "g"])
def test_another_board_is_the_cause_whatever_else_changed(fingerprint):
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


def test_a_board_that_was_changed_and_changed_back_is_no_cause():
    series = Series()
    series.run(QUIET)
    for before, after in (("GPU-1", "GPU-2"), ("GPU-2", "GPU-1")):
        series.run(1, slow=1.1)
        fields = {"cause": "board", "before": f"board {before}", "after": f"board {after}"}
        event = make_point("event", {**TAGS, "kind": "software"}, fields, series.rows[-1].time_ns)
        series.rows.append(event)
    series.run(30, slow=1.1)
    assert [drift.cause for drift in series.of("drift")] == ["unknown"]


def test_a_single_value_is_an_anomaly_one_run_later():
    series = Series()
    series.run(QUIET)
    assert series.run(slow=2.0, contended=True) == []
    anomalies = [event for event in series.run() if event.metric == "latency"]
    assert [event.kind for event in anomalies] == ["anomaly"]
    assert anomalies[0].time_ns == T0 + QUIET * EVERY_NS
    assert anomalies[0].cause == "neighbour"
    assert anomalies[0].change_pct == pytest.approx(100, abs=5)


def test_the_beginning_of_a_step_is_no_anomaly():
    series = Series()
    series.run(QUIET)
    series.run(20, slow=1.5)
    assert series.of("anomaly") == []
    assert len(series.of("drift")) == 1


def test_energy_that_was_not_measured_is_not_watched():
    series = Series()
    series.run(50, energy_per_inference_j=1.0, energy_method="last_known")
    assert not any("energy" in name for name in series.analyst.documents())
    series.run(1, energy_per_inference_j=1.0, energy_method="counter")
    assert any("energy" in name for name in series.analyst.documents())


def test_a_restored_analyst_goes_on():
    one, other = Series(), Series()
    for series in (one, other):
        series.run(QUIET + 100)
    documents = json.loads(json.dumps(other.analyst.documents()))
    other.analyst = Analyst(DetectionConfig(), other.history)
    assert other.analyst.restore(documents.values()) == []
    for series in (one, other):
        series.run(30, slow=1.08)
    assert one.of("drift")
    assert other.events == one.events


def test_a_damaged_state_is_said_and_learnt_anew():
    series = Series()
    series.run(100)
    documents = list(series.analyst.documents().values())
    damaged = [{**documents[0], "state": "AAAA"}, {"key": ["a", "b"]}, documents[1]]
    other = Analyst(DetectionConfig(), series.history)
    problems = other.restore(damaged)
    assert len(problems) == 2
    assert all("learns anew" in problem for problem in problems)
    assert len(other.documents()) == 1


def test_other_settings_begin_anew():
    series = Series()
    series.run(100)
    other = Analyst(DetectionConfig(least_effect=0.1), series.history)
    assert other.restore(series.analyst.documents().values()) == []
    assert other.documents() == {}


def test_detection_can_be_switched_off():
    series = Series()
    series.analyst = Analyst(DetectionConfig(enabled=False), series.history)
    series.run(QUIET)
    assert series.run(30, slow=2.0) == []


def software_event(**fields):
    return Point("event", {**TAGS, "kind": "software"}, fields, T0)


def test_versions_are_read_from_a_software_event_even_with_commas():
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


def test_a_run_is_its_factors_and_conditions():
    probe = make_point(
        "probe",
        {**TAGS, "batch": "8"},
        {
            "throughput_per_s": 500.0,
            "energy_per_inference_j": 0.5,
            "sm_clock_mhz": 1900.0,
            "mem_used_pct": 40.0,
            "contended": True,
            "ecc_uncorrected": 2,
        },
        T0,
    )
    cost = make_point("cost", TAGS, {"cost_hardware": 2e-6, "cost_energy": 1e-7}, T0)
    run = run_of(probe, cost)
    found = factors([run])
    assert found.time_s == pytest.approx(0.002)
    assert found.price_per_s == pytest.approx(0.001)
    assert found.electricity_per_j == pytest.approx(2e-7)
    assert found.cost == pytest.approx(2.1e-6)
    told = conditions([run], {})
    assert (told.batch, told.sm_clock_mhz, told.contended_share) == (8, 1900.0, 1.0)
    assert (told.mem_used_share, told.ecc_uncorrected) == (0.4, 2)
    assert factors([run_of(probe, None)]).price_per_s == 1.0
    assert run_of(make_point("probe", TAGS, {"samples": 3}, T0), None) is None
