"""The drift monitor reports drifts, reversals and anomalies in a probe's rows, with causes."""

import json
import random

import pytest
from costprobe.alerts.rules.changes import DriftRule, DriftRuleConfig
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import event_point, make_point
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.settings import DetectionConfig
from fakes.host import newest
from record.record_files import check, input_text

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


def ramp(last, runs, fields_of=lambda _: {}):
    return [(1, 1 + last * run / runs, fields_of(run / runs)) for run in range(runs)]


JITTER = random.Random(1)
# Steps of a series: runs, their slowness and fields; or what happens at the last run.
SCRIPTS = json.loads(input_text("drift_scripts.json"))
SCRIPTS["a ramp"] = [(3 * QUIET // 2,), *ramp(0.12, 864), (100, 1.12)]
SCRIPTS["a ramp whose clock shows later"] = [
    *[(1, 1, {"sm_clock_mhz": 1980 + JITTER.gauss(0, 120)}) for _ in range(2 * QUIET)],
    *ramp(0.25, QUIET, lambda by: {"sm_clock_mhz": 1980 - 396 * by + JITTER.gauss(0, 120)}),
]


def play(series, count, slow=1.0, fields=None):
    series.run(count, slow, **(fields or {}))


def happen(series, *, price=None, software=None, annotation=None, tags=TAGS):
    """A price of a second from now on, or a row of `event` at the last run."""
    series.price = price or series.price
    fields = {"title": annotation}
    if software:
        before, after = software
        fields = {"cause": before.split()[0], "before": before, "after": after}
    if software or annotation:
        kind = "software" if software else "annotation"
        time_ns = series.rows[-1].time_ns
        series.rows.append(make_point("event", {**tags, "kind": kind}, fields, time_ns))


def test_events_of_scripted_series():
    """The record has what each script reports, by the number of the run; see `record_files`."""
    lines = []
    for name, steps in SCRIPTS.items():
        series = Series()
        for step in steps:
            happen(series, **step) if isinstance(step, dict) else play(series, *step)
        lines.append(f"{name}:")
        for found in series.events:
            run = (found.time_ns - T0) // EVERY_NS
            lines += [
                f"  {run} {found.kind} {found.severity}, cause {found.cause!r}: {found.title}"
            ]
            lines += [f"    {found.detail}"] if found.detail else []
    check("drift_events.txt", "\n".join([*lines, ""]))


def restart(series, documents=None):
    """Restores documents, or those of the series, in a new monitor; returns the problems."""
    documents = documents or json.loads(json.dumps(series.monitor.documents())).values()
    series.monitor = DriftMonitor(DetectionConfig(), series.history)
    return series.monitor.restore(documents)


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


def test_monitor_continues_after_a_restart_with_the_level_of_the_last_drift_and_contended_runs():
    """Of an older version there are no contended runs, and their number was a part of each series."""
    one, other, old = Series(), Series(), Series()
    for series in (one, other, old):
        series.run(QUIET, contended=False)
        series.run(4, slow=1.2, contended=True)
    documents = json.loads(json.dumps(old.monitor.documents())).values()
    of_old = [d for d in documents if d["kind"] == "series"]
    damaged = [{**d, "state": {**d["state"], "flags": 3}} for d in documents if d["kind"] == "runs"]
    restart(other)
    assert len(restart(old, [*of_old, *damaged])) == 1
    for series in (one, other, old):
        series.run(60, slow=1.2, contended=True)
    assert {event.metric for event in old.events} <= {"contention"}
    assert [event.metric for event in one.events] == ["contention"]
    for series in (one, other):
        series.run(60, slow=1.1, contended=False)
    restart(other)
    before = len(one.events)
    for series in (one, other):
        series.run(60, contended=False)
    assert {event.metric for event in one.events[before:]} >= {"latency", "cost"}
    assert other.events == one.events


def test_detection_can_be_disabled():
    series = Series()
    series.monitor = DriftMonitor(DetectionConfig(enabled=False), series.history)
    series.run(QUIET)
    assert series.run(30, slow=2.0) == []
