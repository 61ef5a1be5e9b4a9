"""Shares of a change: by the physics of each cause, by the series' own runs, and what is left unknown."""

import json
import random
from dataclasses import replace
from functools import partial

from costprobe.core.records import NS_PER_S, Point
from costprobe.drift.before_after import Levels
from costprobe.drift.causes import causes, explain_change
from costprobe.drift.runs import DetectionRun
from record.record_files import check, input_text

NORMAL = {
    "sm_clock_mhz": 1980.0,
    "temp_max_c": 64.0,
    "throttled_thermal_pct": 0.0,
    "throttled_power_pct": 0.0,
    "contended": False,
}


def of_run(value, index):
    if callable(value):
        return value(index)
    return value[index % len(value)] if isinstance(value, list) else value


def runs(count, start=0, slow=1.0, seed=1, fingerprint="f", batch=16, **device):
    """Runs of a level; a function or a list has a value for each, and `slow` may be called with them."""
    rng = random.Random(seed + start)
    found = []
    for index in range(count):
        fields = {name: of_run(value, index) for name, value in {**NORMAL, **device}.items()}
        time_s = 1e-3 * (slow(fields) if callable(slow) else slow) * rng.lognormvariate(0, 0.005)
        found.append(
            DetectionRun(
                (start + index) * 300 * NS_PER_S,
                batch,
                time_s,
                400 * time_s,
                1e-3,
                0.0,
                fingerprint,
                fields,
            )
        )
    return found


def software_event(at, *keys):
    fields = {
        "cause": ", ".join(keys),
        "before": ", ".join(f"{key} old" for key in keys),
        "after": ", ".join(f"{key} new" for key in keys),
    }
    return Point("event", {"kind": "software"}, fields, at * 300 * NS_PER_S)


def explained(before, after, *rows, metric="throughput", sign=1):
    def events(from_ns, until_ns):
        return [row for row in rows if from_ns <= row.time_ns < until_ns]

    return explain_change(before, after, events, metric, sign)


def noisy(noise, factor, rng):
    return lambda _: factor * rng.lognormvariate(0, noise)


def scripted(slow, was=None, now=None, *, count=12, sign=1, update=(), annotated=None):
    """The change from 60 runs to `count` that are slower, with the fields of both.

    Args:
        slow: Their time in terms of those before; {"contended": it} is of runs beside a neighbour only.
        was: Fields of the runs before; a list has those of one run after another, again and again.
        now: Fields of the runs since.
        count: Their number.
        sign: As of `explain_change`.
        update: Software that changed with the first of them.
        annotated: Titles of annotations, each with the number of its run.
    """
    rows = [
        Point("event", {"kind": "annotation"}, {"title": title}, run * 300 * NS_PER_S)
        for title, run in (annotated or {}).items()
    ]
    if update:
        rows.append(software_event(60, *update))
    each = slow
    if isinstance(slow, dict):
        each = lambda fields: slow["contended"] if fields["contended"] else 1.0  # noqa: E731
    after = runs(count, 60, each, **(now or {}))
    return explained(runs(60, **(was or {})), after, *rows, sign=sign)


def by_clock(fields):
    return (1980 / fields["sm_clock_mhz"]) ** 0.3


def within_the_noise(noise, slow):
    """An update without effect on a quiet and on a noisy host, and a step beyond its noise."""
    rng = random.Random(5)
    before = runs(60, 0, noisy(noise, 1.0, rng))
    return explained(
        before, runs(60, 60, noisy(noise, slow, rng), fingerprint="g"), software_event(60, "driver")
    )


def own_history():
    """A model that waits for the memory slows by a third of the clock's fall; an update has the rest: 54 %."""
    rng = random.Random(5)
    before = runs(100, 0, by_clock, sm_clock_mhz=lambda _: rng.uniform(1700, 1980))
    clock = {"sm_clock_mhz": lambda _: 1400.0}
    after = runs(12, 100, lambda f: 1.1 * by_clock(f), fingerprint="g", **clock)
    return explained(before, after, software_event(100, "torch"))


def neighbour_and_update():
    rng = random.Random(7)
    slow, often = (
        (lambda f: 1.15 * (1.3 if f["contended"] else 1.0)),
        (lambda _: rng.random() < 0.6),
    )
    after = runs(24, 60, slow, contended=often, fingerprint="g")
    return explained(runs(60), after, software_event(60, "driver"))


def hotter():
    before, after = runs(60), runs(12, 60, temp_max_c=80.0)
    leaking = [replace(run, energy_j=run.energy_j * 1.035) for run in after]
    return explained(before, leaking, metric="energy", sign=0)


def signal_of_hours_before():
    before = [*runs(60, mem_used_pct=40.0), *runs(12, 60, mem_used_pct=97.0)]
    after = runs(12, 72, 1.2, mem_used_pct=97.0, fingerprint="g")
    return explained(before, after, software_event(72, "driver"))


def outlier_before():
    """Two runs before the change one run is slow; the clock falls with the change."""
    after = [*runs(1, 58, 1.3), *runs(1, 59), *runs(4, 60, 1.2, sm_clock_mhz=1640.0)]
    return explained(runs(58), after)


CASES = {
    name: partial(scripted, **case)
    for name, case in json.loads(input_text("drift_causes.json")).items()
}
CASES |= {
    "own history instead of the physics": own_history,
    "neighbour, measured by the runs without it, and an update": neighbour_and_update,
    "memory pressure of hours before": signal_of_hours_before,
    "energy of a hotter device": hotter,
    "within the noise of a quiet host": partial(within_the_noise, 0.0, 1.004),
    "within that of a noisy one": partial(within_the_noise, 0.2, 1.02),
    "beyond the noise": partial(within_the_noise, 0.05, 1.2),
    "an outlier before the change": outlier_before,
}


def percent(share):
    return " to ".join(f"{100 * value:.0f}" for value in (share.low, share.mean, share.high)) + " %"


def test_causes_and_their_shares():
    """The record has the causes of each change: low, mean and high share; see `record_files`."""
    lines = []
    for name, made in CASES.items():
        found = made()
        total = "" if found.explained is None else f", {percent(found.explained)} explained"
        noise = "" if found.noise is None else f", within {100 * found.noise:.1f} % of noise"
        action = found.action_on("gpu0")
        lines += [f"{name}: {found.name}{total}{noise}", f"  {action}"]
        for cause in found.causes:
            share = "no share" if cause.share is None else percent(cause.share)
            timing = {True: "coincides", False: "apart", None: "-"}[cause.coincides]
            lines += [f"  {cause.name} {share} {cause.method or '-'} {timing}: {cause.text}"]
    check("drift_causes.txt", "\n".join([*lines, ""]))


def test_without_shares_what_is_deployed_precedes_what_the_device_does_and_a_cause_its_effect():
    was = {"ecc_uncorrected": 0, "mem_used_pct": 40.0, "power_limit_w": 700.0, "tokens_in": 500.0}
    now = {"ecc_uncorrected": 3, "mem_used_pct": 97.0, "power_limit_w": 500.0, "tokens_in": 900.0}
    now |= {"throttled_thermal_pct": 30.0, "temp_max_c": 89.0, "sm_clock_mhz": 1500.0}
    before, after = runs(12, **was), runs(12, 60, batch=8, contended=True, **now)
    software = {"board": "a", "driver": "550"}, {"board": "b", "driver": "560"}
    found = causes(Levels("throughput", before, after, before, 1, software))
    device = ["neighbour", "memory errors", "cooling", "power limit", "clock"]
    expected = ["board", "software: driver", "batch", *device, "prompt lengths", "memory pressure"]
    assert [cause.name for cause in found] == expected
    back = causes(Levels("throughput", after, before, after, -1, software))
    assert [cause.name for cause in back] == [name for name in expected if name != "memory errors"]
