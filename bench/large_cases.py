"""Scripted changes by a factor of 3, 5 or 10 that no signal measures, alone and beside something small.

Nothing that is known changes time or energy so much: the first cause is "unknown" unless an update or an
annotation came in the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from case_device import physics_of
from scripted_case import RUNS_PER_H, ScriptedCase, ScriptedChange

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
DEPLOYED = (
    ("update without effect", "software: driver"),
    ("annotation without effect", "annotation"),
)


def large_cases(count: int, seed: int = 1) -> Iterator[ScriptedCase]:
    """Yield cases of all families in turn, with seeded parameters."""
    for index in range(count):
        number = seed * 100_000 + 50_000 + index
        rng = random.Random(number)
        yield _FAMILIES[index % len(_FAMILIES)](rng, number, index // len(_FAMILIES))


def _case(rng: random.Random, number: int, family: str, hour: float, **more: Any) -> ScriptedCase:
    # Nothing else explains it: a neighbour that doubles the time of a run is no small change.
    device = replace(physics_of(rng), contended_by=rng.uniform(1.05, 1.3))
    noise, phi = rng.uniform(0.004, 0.03), rng.choice((0.0, 0.4))
    return ScriptedCase(
        family, number, hour + 18, device, onset_h=hour, noise=noise, phi=phi, **more
    )


def _hour(rng: random.Random, nth: int) -> float:
    """Return a start on the first day, or later."""
    first, last = ((5, 20), (30, 60), (60, 110))[nth % 3]
    return rng.randrange(first * RUNS_PER_H, last * RUNS_PER_H) / RUNS_PER_H


def _large(rng: random.Random, hour: float) -> ScriptedChange:
    return ScriptedChange("unknown", hour, (rng.choice(FACTORS) - 1) / UNKNOWN_SLOWER)


def _alone(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _hour(rng, nth)
    return _case(rng, number, "large", hour, changes=(_large(rng, hour),))


def _energy(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _hour(rng, nth)
    change = ScriptedChange("energy", hour, rng.choice(FACTORS) - 1)
    named = {"energy": "unknown"}
    return _case(rng, number, "large, energy", hour, changes=(change,), named=named)


def _beside(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, later_h) = _hour(rng, nth), UNRELATED[nth % len(UNRELATED)]
    changes = (_large(rng, hour), ScriptedChange(name, hour + later_h))
    return _case(rng, number, "large, unrelated", hour, changes=changes)


def _small(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _hour(rng, nth)
    small = ScriptedChange(SMALL[nth % len(SMALL)], hour, rng.uniform(0.1, 0.25))
    return _case(rng, number, "large, small signal", hour, changes=(_large(rng, hour), small))


def _deployed(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, called) = _hour(rng, nth), DEPLOYED[nth % 2]
    changes = (_large(rng, hour), ScriptedChange(name, hour))
    more = {"changes": changes, "named": {"unknown": called}}
    return _case(rng, number, "large, deployed", hour, **more)


_FAMILIES: Sequence[Callable[[random.Random, int, int], ScriptedCase]] = (
    _alone,
    _energy,
    _beside,
    _small,
    _deployed,
)
