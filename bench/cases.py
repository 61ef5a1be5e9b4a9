"""Scripted histories of a device with their causes, and the true share of each.

    for case in cases(240, seed=1):
        rows = rows_of(case)      # rows of `probe`, `cost` and `event`, oldest first (case_rows.py)
        case.shares("cost")       # {"cooling": 0.7, "software: driver": 0.3}

Nothing here imports the detectors: the generator can be used to compare others (`cause_cases.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from case_device import HARMLESS, SCRIPTS, physics_of
from scripted_case import RUNS_PER_H, ScriptedCase, ScriptedChange

SUDDEN = tuple(name for name in SCRIPTS if name not in (*HARMLESS, "prompt lengths", "energy"))
GRADUAL = ("cooling", "thermal throttling", "power limit", "clock", "unknown")
PHYSICAL = ("cooling", "thermal throttling", "lower power limit", "clock", "neighbour")
DEPLOYED = ("software: driver", "software: model", "batch", "annotation", "unknown")
# What a cause is called if fields are missing.
MISSING = (
    ("cooling", {"throttled_thermal_pct", "throttled_power_pct"}, "cooling"),
    ("cooling", {"temp_max_c"}, "thermal throttling"),
    ("power limit", {"throttled_power_pct", "throttled_thermal_pct"}, "clock"),
    ("lower power limit", {"throttled_power_pct", "throttled_thermal_pct"}, "power limit"),
    ("lower power limit", {"sm_clock_mhz", "throttled_power_pct"}, "power limit"),
    ("lower power limit", {"power_limit_w"}, "power limit"),
    ("clock", {"sm_clock_mhz", "throttled_power_pct"}, "unknown"),
    ("neighbour", {"contended"}, "unknown"),
    ("cooling", {"sm_clock_mhz"}, "cooling"),
)


def cases(count: int, seed: int = 1) -> Iterator[ScriptedCase]:
    """Yield cases of all families in turn, with seeded parameters."""
    return _in_turn(_FAMILIES, count, seed * 100_000)


def large_cases(count: int, seed: int = 1) -> Iterator[ScriptedCase]:
    """Yield changes by a factor of 3, 5 or 10 that no signal measures, alone and beside something small.

    Nothing that is known changes time or energy so much: the first cause is "unknown" unless an update or an
    annotation came in the same run.
    """
    return _in_turn(_LARGE_FAMILIES, count, seed * 100_000 + 50_000)


Family = Callable[[random.Random, int, int], ScriptedCase]


def _in_turn(families: Sequence[Family], count: int, first: int) -> Iterator[ScriptedCase]:
    for index in range(count):
        number = first + index
        rng = random.Random(number)
        yield families[index % len(families)](rng, number, index // len(families))


def _case(rng: random.Random, number: int, family: str, hour: float, **more: Any) -> ScriptedCase:
    device = physics_of(rng)
    if any(change.name == "memory clock" for change in more.get("changes", ())):
        # Without any wait for the memory its clock has no effect.
        device = replace(device, compute=rng.uniform(0.3, 0.7))
    values: dict[str, Any] = {
        "hours": hour + 18,
        "device": device,
        "onset_h": hour,
        "noise": rng.uniform(0.004, 0.012),
        "phi": rng.choice((0.0, 0.0, 0.4)),
        "outliers": rng.choice((0.0, 0.005)),
        "electricity_per_kwh": rng.choice((0.0, 0.0, rng.uniform(0.1, 0.4))),
        **more,
    }
    return ScriptedCase(family, number, **values)


def _settled_h(rng: random.Random) -> float:
    return rng.randrange(60 * RUNS_PER_H, 110 * RUNS_PER_H) / RUNS_PER_H


def _size(rng: random.Random) -> float:
    return rng.uniform(0.4, 1)


def _at(rng: random.Random, hour: float, *names: str) -> tuple[ScriptedChange, ...]:
    return tuple(ScriptedChange(name, hour, _size(rng)) for name in names)


def _single(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    name = SUDDEN[(nth + number * 5) % len(SUDDEN)]
    return _case(rng, number, "single", hour, changes=_at(rng, hour, name))


def _prompts(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    names = ("prompt lengths",) if nth % 2 else ("prompt lengths", DEPLOYED[nth // 2 % 5])
    changes = _at(rng, hour, *names)
    return _case(rng, number, "prompt lengths", hour, changes=changes, is_server=True)


def _slow(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), GRADUAL[nth % len(GRADUAL)]
    change = ScriptedChange(name, hour, rng.uniform(0.6, 1), rng.uniform(4, 18))
    return _case(rng, number, "slow", hour, changes=(change,), hours=hour + 40)


def _first_hours(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = rng.randrange(4 * RUNS_PER_H, 22 * RUNS_PER_H) / RUNS_PER_H
    name = SUDDEN[nth % len(SUDDEN)]
    return _case(rng, number, "first day", hour, changes=_at(rng, hour, name), hours=80)


def _first_days(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = rng.randrange(27 * RUNS_PER_H, 60 * RUNS_PER_H) / RUNS_PER_H
    name = SUDDEN[(nth + 7) % len(SUDDEN)]
    return _case(rng, number, "first days", hour, changes=_at(rng, hour, name))


def _noisy_baseline(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    changes = _at(rng, hour, SUDDEN[(nth + 3) % len(SUDDEN)])
    return _case(rng, number, "noisy signals", hour, changes=changes, is_noisy=True)


def _two_at_once(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, names = _settled_h(rng), (PHYSICAL[nth % 5], DEPLOYED[(nth // 5 + nth) % 5])
    return _case(rng, number, "two at once", hour, changes=_at(rng, hour, *names))


def _two_physical(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    pairs = (("cooling", "neighbour"), ("power limit", "neighbour"), ("cooling", "power limit"))
    hour = _settled_h(rng)
    return _case(rng, number, "two physical", hour, changes=_at(rng, hour, *pairs[nth % 3]))


def _known_clock(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return a device whose clock varies, so that the history shows how much of the time follows it."""
    del nth
    hour = _settled_h(rng)
    device = replace(physics_of(rng), compute=rng.uniform(0.2, 0.6), clock_noise=0.001)
    changes = _at(rng, hour, "clock", "software: driver")
    return _case(rng, number, "known clock", hour, changes=changes, device=device, wander=0.1)


def _update_the_day_before(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), PHYSICAL[nth % 5]
    kind = ("update without effect", "annotation without effect")[nth % 2]
    changes = (ScriptedChange(kind, hour - rng.uniform(10, 24)), *_at(rng, hour, name))
    return _case(rng, number, "update before", hour, changes=changes)


def _update_one_run_before(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return an update whose effect comes with the next load."""
    hour = _settled_h(rng)
    kind = ("update without effect", "annotation without effect")[nth % 2]
    changes = (ScriptedChange(kind, hour - 1 / RUNS_PER_H), *_at(rng, hour, "unknown"))
    named = {"unknown": ("software: driver", "annotation")[nth % 2]}
    return _case(rng, number, "update one run before", hour, changes=changes, named=named)


def _update_one_run_later(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), (*PHYSICAL, "unknown")[nth % 6]
    late = ScriptedChange("update without effect", hour + 1 / RUNS_PER_H)
    changes = (*_at(rng, hour, name), late)
    return _case(rng, number, "update one run later", hour, changes=changes)


def _price_in_the_same_hour(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    price = ScriptedChange("price", hour + rng.choice((-4, 0, 2)) / RUNS_PER_H)
    changes = (*_at(rng, hour, SUDDEN[(nth + 5) % len(SUDDEN)]), price)
    return _case(rng, number, "price too", hour, changes=changes)


def _beside_heat(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return a change of unknown reason, or of another one, on an afternoon that gets hot."""
    hour, name = _settled_h(rng), ("unknown", "software: model", "neighbour")[nth % 3]
    changes = (*_at(rng, hour, name), ScriptedChange("heat without effect", hour))
    return _case(rng, number, "beside heat", hour, changes=changes)


def _beside_a_flag(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return an update, or another change, after which the driver counts throttling at the same clock."""
    hour, name = _settled_h(rng), ("software: driver", "unknown")[nth % 2]
    changes = _at(rng, hour, name, "power flag without effect")
    return _case(rng, number, "beside a flag", hour, changes=changes)


def _missing(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, fields, called) = _settled_h(rng), MISSING[nth % len(MISSING)]
    more = {"changes": _at(rng, hour, name), "named": {name: called}}
    return _case(rng, number, "missing signals", hour, missing=frozenset(fields), **more)


def _recovery(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    name, hour = PHYSICAL[nth % 5], _settled_h(rng)
    change = ScriptedChange(name, 6.0, _size(rng), until_hour=hour)
    return _case(rng, number, "recovery", hour, changes=(change,))


def _intermittent(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    del nth
    changes, hour, first = [], 50.0, 50.0
    while hour < 50 + 5 * 24:
        lasts_h = rng.uniform(1.5, 4)
        changes.append(ScriptedChange("neighbour", hour, _size(rng), until_hour=hour + lasts_h))
        hour += lasts_h + rng.uniform(2, 7)
    more = {"changes": tuple(changes), "hours": hour}
    return _case(rng, number, "intermittent", first, **more)


def _no_signal(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return a change without any signal, sudden or slow."""
    hour = _settled_h(rng)
    ramp_h = rng.uniform(4, 18) if nth % 2 else 0.0
    change = ScriptedChange("unknown", hour, _size(rng), ramp_h)
    return _case(rng, number, "no signal", hour, changes=(change,), hours=hour + 30)


def _quiet(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    more = {"daily": rng.choice((0.0, 0.03)), "is_noisy": nth % 2 == 0, "hours": 10 * 24}
    return _case(rng, number, "quiet", 0.0, **more)


_FAMILIES: Sequence[Family] = (
    *(_single,) * 4,
    _slow,
    _first_hours,
    _first_days,
    _noisy_baseline,
    *(_two_at_once,) * 2,
    _two_physical,
    _known_clock,
    _update_the_day_before,
    _update_one_run_before,
    _update_one_run_later,
    _price_in_the_same_hour,
    _beside_heat,
    _beside_a_flag,
    _prompts,
    _missing,
    _recovery,
    _intermittent,
    _no_signal,
    *(_quiet,) * 4,
)


FACTORS = (3.0, 5.0, 10.0)
# What "unknown" slows down by, at size 1.
UNKNOWN_SLOWER = 0.2
# Without effect, and hours after the large change.
UNRELATED = (
    ("annotation without effect", -4.0),
    ("update without effect", -6.0),
    ("update without effect", 1 / RUNS_PER_H),
    ("heat without effect", 0.0),
    ("annotation without effect", -1.5),
    ("annotation without effect", 1.0),
)
SMALL = ("clock", "thermal throttling", "power limit", "neighbour", "memory clock")
LARGE_DEPLOYED = (
    ("update without effect", "software: driver"),
    ("annotation without effect", "annotation"),
)


def _large_case(
    rng: random.Random, number: int, family: str, hour: float, **more: Any
) -> ScriptedCase:
    # Nothing else explains it: a neighbour that doubles the time of a run is no small change.
    device = replace(physics_of(rng), contended_by=rng.uniform(1.05, 1.3))
    noise, phi = rng.uniform(0.004, 0.03), rng.choice((0.0, 0.4))
    return ScriptedCase(
        family, number, hour + 18, device, onset_h=hour, noise=noise, phi=phi, **more
    )


def _large_hour(rng: random.Random, nth: int) -> float:
    """Return a start on the first day, or later."""
    first, last = ((5, 20), (30, 60), (60, 110))[nth % 3]
    return rng.randrange(first * RUNS_PER_H, last * RUNS_PER_H) / RUNS_PER_H


def _large(rng: random.Random, hour: float) -> ScriptedChange:
    return ScriptedChange("unknown", hour, (rng.choice(FACTORS) - 1) / UNKNOWN_SLOWER)


def _alone(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _large_hour(rng, nth)
    return _large_case(rng, number, "large", hour, changes=(_large(rng, hour),))


def _large_energy(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _large_hour(rng, nth)
    change = ScriptedChange("energy", hour, rng.choice(FACTORS) - 1)
    named = {"energy": "unknown"}
    return _large_case(rng, number, "large, energy", hour, changes=(change,), named=named)


def _beside(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, later_h) = _large_hour(rng, nth), UNRELATED[nth % len(UNRELATED)]
    changes = (_large(rng, hour), ScriptedChange(name, hour + later_h))
    return _large_case(rng, number, "large, unrelated", hour, changes=changes)


def _small(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _large_hour(rng, nth)
    small = ScriptedChange(SMALL[nth % len(SMALL)], hour, rng.uniform(0.1, 0.25))
    return _large_case(rng, number, "large, small signal", hour, changes=(_large(rng, hour), small))


def _deployed(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, called) = _large_hour(rng, nth), LARGE_DEPLOYED[nth % 2]
    changes = (_large(rng, hour), ScriptedChange(name, hour))
    more = {"changes": changes, "named": {"unknown": called}}
    return _large_case(rng, number, "large, deployed", hour, **more)


_LARGE_FAMILIES: Sequence[Family] = (
    _alone,
    _large_energy,
    _beside,
    _small,
    _deployed,
)
