"""Shares of a change: by the physics of each cause, by the series' own runs, and what is left unknown."""

import random
from dataclasses import replace

from costprobe.core.records import NS_PER_S, Point
from costprobe.drift.causes import explain_change
from costprobe.drift.runs import DetectionRun
from record.record_files import check

NORMAL = {
    "sm_clock_mhz": 1980.0,
    "temp_max_c": 64.0,
    "throttled_thermal_pct": 0.0,
    "throttled_power_pct": 0.0,
    "contended": False,
}


def runs(count, start=0, slow=1.0, seed=1, fingerprint="f", batch=16, **device):
    """Runs of a level; a callable value gives one value a run, with which `slow` may be called."""
    rng = random.Random(seed + start)
    found = []
    for index in range(count):
        fields = {
            name: value(index) if callable(value) else value
            for name, value in {**NORMAL, **device}.items()
        }
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


def software_event(at, **keys):
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


REQUEST = {"ttft_mean_ms": 40.0, "tpot_mean_ms": 10.0, "tokens_in": 500.0, "tokens_out": 100.0}
DRIVER = software_event(60, driver="560")
DEPLOYED = Point("event", {"kind": "annotation"}, {"title": "deployed"}, 60 * 300 * NS_PER_S)
RESTARTED = Point("event", {"kind": "annotation"}, {"title": "restarted"}, 48 * 300 * NS_PER_S)
LIMIT = {"power_limit_w": 700.0}
NO_CLOCK, HOT = {"sm_clock_mhz": None, **LIMIT}, {"temp_max_c": 80.0, "throttled_thermal_pct": 32.0}
THROTTLED = {"throttled_power_pct": 32.0}
LIMITED = {"power_limit_w": 700.0, "throttled_thermal_pct": None}
LOWER, SLOWER = {**LIMITED, "power_limit_w": 450.0}, {"sm_clock_mhz": 1440.0}
NO_COUNTER = {"throttled_power_pct": None}
QUIET_HOST = {"cpu_wait_pct": lambda index: index % 3 / 10}


def noisy(noise, factor, rng):
    return lambda _: factor * rng.lognormvariate(0, noise)


def of(was, slow, *rows, count=12, sign=1, **now):
    """The change from 60 runs to some that are slower, with the fields of both."""
    return explained(runs(60, **was), runs(count, 60, slow, **now), *rows, sign=sign)


def recovered(slow, **was):
    """The change back from a level with the signals of a fault."""
    return of(was, slow, sign=-1)


def no_longer(fields):
    return 1.4 if fields["contended"] else 1.0


def by_clock(fields):
    return (1980 / fields["sm_clock_mhz"]) ** 0.3


def within_the_noise(noise, slow):
    """An update without effect on a quiet and on a noisy host, and a step beyond its noise."""
    rng = random.Random(5)
    before = runs(60, 0, noisy(noise, 1.0, rng))
    return explained(before, runs(60, 60, noisy(noise, slow, rng), fingerprint="g"), DRIVER)


def own_history():
    """A model that waits for the memory slows by a third of the clock's fall; an update has the rest: 54 %."""
    rng = random.Random(5)
    before = runs(100, 0, by_clock, sm_clock_mhz=lambda _: rng.uniform(1700, 1980))
    clock = {"sm_clock_mhz": lambda _: 1400.0}
    after = runs(12, 100, lambda f: 1.1 * by_clock(f), fingerprint="g", **clock)
    return explained(before, after, software_event(100, torch="2.13"))


def neighbour_and_update():
    rng = random.Random(7)
    slow, often = (
        (lambda f: 1.15 * (1.3 if f["contended"] else 1.0)),
        (lambda _: rng.random() < 0.6),
    )
    return of({}, slow, DRIVER, count=24, contended=often, fingerprint="g")


def hotter():
    before, after = runs(60), runs(12, 60, temp_max_c=80.0)
    leaking = [replace(run, energy_j=run.energy_j * 1.035) for run in after]
    return explained(before, leaking, metric="energy", sign=0)


def signal_of_hours_before():
    before = [*runs(60, mem_used_pct=40.0), *runs(12, 60, mem_used_pct=97.0)]
    after = runs(12, 72, 1.2, mem_used_pct=97.0, fingerprint="g")
    return explained(before, after, software_event(72, driver="550"))


def outlier_before():
    """Two runs before the change one run is slow; the clock falls with the change."""
    after = [*runs(1, 58, 1.3), *runs(1, 59), *runs(4, 60, 1.2, sm_clock_mhz=1640.0)]
    return explained(runs(58), after)


def counted(count, *indices):
    return lambda index: (index in indices) != (count == "all but")


CASES = {
    "thermal throttling lowers the clock: one cause": lambda: of(
        {}, 1980 / 1600, sm_clock_mhz=1600.0, throttled_thermal_pct=30.0, temp_max_c=88.0
    ),
    "clock, and an update with less": lambda: of(
        {}, 1.1 * 1980 / 1700, software_event(60, model="3f"), sm_clock_mhz=1700.0, fingerprint="g"
    ),
    "clock, and an update with more": lambda: of(
        {}, 1.6 * 1980 / 1700, software_event(60, model="3f"), sm_clock_mhz=1700.0, fingerprint="g"
    ),
    "mostly unexplained": lambda: of({}, 1.4, sm_clock_mhz=1880.0),
    "own history instead of the physics": own_history,
    "neighbour, measured by the runs without it, and an update": neighbour_and_update,
    "memory pressure of hours before": signal_of_hours_before,
    "five times as slow by an update, after an annotation": lambda: of(
        {}, 5.0, RESTARTED, software_event(60, server_version="2"), fingerprint="g"
    ),
    "half of the batch": lambda: of({}, 1.25, batch=8),
    "answers half as long again": lambda: of(
        REQUEST, 1540 / 1040, **{**REQUEST, "tokens_out": 150.0}
    ),
    "energy of a hotter device": hotter,
    "answers twice as long, and a faster model": lambda: of(
        REQUEST,
        1.2,
        software_event(60, model="3f"),
        **{**REQUEST, "tokens_out": 200.0, "fingerprint": "g"},
    ),
    "a driver raises the flag": lambda: of(
        LIMIT, 1.12, DRIVER, fingerprint="g", **LIMIT, **THROTTLED
    ),
    "the flag alone": lambda: of(LIMIT, 1.12, **LIMIT, **THROTTLED),
    "heat without a lower clock": lambda: of(LIMIT, 1.28, **LIMIT, **HOT),
    "a small fall": lambda: of(LIMIT, 1.28, **LIMIT, **THROTTLED, sm_clock_mhz=1940.0),
    "throttled without a known clock": lambda: of(NO_CLOCK, 1.15, **NO_CLOCK, **THROTTLED),
    "throttled too shortly": lambda: of(NO_CLOCK, 1.28, **NO_CLOCK, throttled_power_pct=5.0),
    "a clock that fell further": lambda: of(
        LIMIT, 1.25, **LIMIT, throttled_power_pct=5.0, sm_clock_mhz=1584.0
    ),
    "within the noise of a quiet host": lambda: within_the_noise(0.0, 1.004),
    "within that of a noisy one": lambda: within_the_noise(0.2, 1.02),
    "beyond the noise": lambda: within_the_noise(0.05, 1.2),
    "an update and an annotation in one run": lambda: of(
        {}, 1.2, DEPLOYED, DRIVER, fingerprint="g"
    ),
    "a lower limit that throttles": lambda: of(
        LIMITED, 1.3, **LOWER, **SLOWER, throttled_power_pct=5.0
    ),
    "a lower limit above the power": lambda: of(LIMITED, 1.3, **LOWER, **SLOWER),
    "a lower limit without a counter": lambda: of(
        {**LIMITED, **NO_COUNTER}, 1.3, **LOWER, **SLOWER, **NO_COUNTER
    ),
    "a lower limit without a clock": lambda: of(
        {**LIMITED, **NO_COUNTER, "sm_clock_mhz": None},
        1.3,
        **LOWER,
        **NO_COUNTER,
        sm_clock_mhz=None,
    ),
    "a neighbour without effect, and an update": lambda: of(
        {"contended": lambda index: index % 9 == 0},
        1.12,
        DRIVER,
        count=3,
        contended=counted("all but", 1),
        fingerprint="g",
    ),
    "a busy host": lambda: of(QUIET_HOST, 1.25, count=6, cpu_wait_pct=20.0, contended=True),
    "a shared GPU": lambda: of(
        QUIET_HOST, no_longer, count=6, contended=counted("all but", 1), **QUIET_HOST
    ),
    "a neighbour among runs of another": lambda: of(
        {"contended": counted("", 20, 41, 59)}, no_longer, count=6, contended=counted("all but", 1)
    ),
    "an outlier before the change": outlier_before,
    "memory errors": lambda: of({"ecc_uncorrected": 0}, 1.2, ecc_uncorrected=3),
    "memory pressure": lambda: of({"mem_used_pct": 40.0}, 1.2, mem_used_pct=97.0),
    "another board": lambda: of({}, 1.2, software_event(60, board="GPU-1")),
    "all software at once": lambda: of(
        {},
        1.2,
        software_event(
            60, **dict.fromkeys(("flags", "cudnn", "cuda", "torch", "weights", "driver"))
        ),
        fingerprint="g",
    ),
    "signals that hardly move": lambda: of(
        {"mem_used_pct": 40.0},
        1.2,
        mem_used_pct=60.0,
        sm_clock_mhz=1965.0,
        temp_max_c=66.0,
        throttled_power_pct=0.5,
        contended=counted("", 5),
    ),
    "signals that move within their noise": lambda: of(
        {
            "throttled_power_pct": lambda index: (1.0, 7.0)[index % 2],
            "throttled_thermal_pct": lambda index: (0.0, 4.0)[index % 2],
            "temp_max_c": lambda index: (60.0, 68.0)[index % 2],
            "contended": lambda index: index % 10 == 0,
        },
        1.3,
        count=3,
        throttled_power_pct=lambda index: 8.0 + 2 * (-1) ** index,
        throttled_thermal_pct=lambda index: 5.0 + 2 * (-1) ** index,
        temp_max_c=lambda index: 70.0 + (-1) ** index,
        contended=counted("", 1),
        sm_clock_mhz=1500.0,
    ),
    "heat of a device without a counter": lambda: of(
        {"throttled_thermal_pct": None},
        1.2,
        throttled_thermal_pct=None,
        temp_max_c=87.0,
        sm_clock_mhz=1600.0,
    ),
    "a cold device without a counter": lambda: of(
        {"throttled_thermal_pct": None},
        1.2,
        throttled_thermal_pct=None,
        temp_max_c=55.0,
        sm_clock_mhz=1600.0,
    ),
    "cooled again": lambda: recovered(
        0.8, throttled_thermal_pct=30.0, temp_max_c=89.0, sm_clock_mhz=1500.0
    ),
    "no longer throttled": lambda: recovered(
        0.8, throttled_power_pct=40.0, sm_clock_mhz=1600.0, power_limit_w=700.0
    ),
    "no longer shared": lambda: recovered(0.75, contended=True),
    "a clock raised again": lambda: recovered(0.8, sm_clock_mhz=1400.0),
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
        lines += [f"{name}: {found.name}{total}{noise}", f"  {found.action}"]
        for cause in found.causes:
            share = "no share" if cause.share is None else percent(cause.share)
            timing = {True: "coincides", False: "apart", None: "-"}[cause.coincides]
            lines += [f"  {cause.name} {share} {cause.method or '-'} {timing}: {cause.text}"]
    check("drift_causes.txt", "\n".join([*lines, ""]))
