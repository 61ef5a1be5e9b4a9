"""Seeded streams of values as a probe produces them, 288 a day, with their known content."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

VALUES_PER_DAY = 288
STEP_S = 86400 / VALUES_PER_DAY
START_S = 1_767_225_600.0  # 2026-01-01, a Thursday


@dataclass(frozen=True)
class Stream:
    """Values, and the shifts and outliers that they contain.

    Attributes:
        points: (time in s, value).
        shift_at: Index of the first value after a persistent shift; None in a stationary stream.
        spikes: Indices of single outliers.
    """

    points: list[tuple[float, float]]
    shift_at: int | None = None
    spikes: frozenset[int] = field(default_factory=frozenset)


@dataclass
class Recipe:
    """Parameters of a stream; shares are relative to the value.

    Attributes:
        days: Length in days.
        sigma: Standard deviation of the noise's logarithm.
        phi: AR(1) coefficient of the noise.
        outliers: Share of the values that are multiplied by 1.2 to 3.
        daily: Amplitude of the daily pattern.
        shape: Shape of the daily pattern: "sine", "office" (a plateau) or "peaks" (two of them).
        weekend: Share by which weekends are lower.
        wander: Standard deviation of an Ornstein-Uhlenbeck process with a memory of `wander_days`.
        quantum: Values are rounded to multiples of this share of the level.
        gaps: Whether to omit hours and days, and 5 % of the values.
        shift: Size of a persistent shift; 0.02 is +2 %.
        shift_day: Start of the shift, in days.
        ramp_days: Duration of its ramp; 0 is a step.
        returns_days: Time after which it ends; 0 is never.
        base: Level of the stream.
    """

    days: float = 60
    sigma: float = 0.01
    phi: float = 0.0
    outliers: float = 0.0
    daily: float = 0.0
    shape: str = "sine"
    weekend: float = 0.0
    wander: float = 0.0
    wander_days: float = 3.0
    quantum: float = 0.0
    gaps: bool = False
    shift: float = 0.0
    shift_day: float = 0.0
    ramp_days: float = 0.0
    returns_days: float = 0.0
    base: float = 1.0


def generate(recipe: Recipe, rng: random.Random) -> Stream:
    """Return a stream with these parameters."""
    count = int(recipe.days * VALUES_PER_DAY)
    shift_index = int(recipe.shift_day * VALUES_PER_DAY)
    innovation = recipe.sigma * math.sqrt(1 - recipe.phi**2)
    noise = rng.gauss(0, recipe.sigma)
    keep = math.exp(-1 / (recipe.wander_days * VALUES_PER_DAY))
    wander = rng.gauss(0, recipe.wander)
    phase = rng.random()
    gaps_days = _gaps(rng, recipe.days) if recipe.gaps else []
    points: list[tuple[float, float]] = []
    spikes = set()
    shift_at = None
    for index in range(count):
        noise = recipe.phi * noise + rng.gauss(0, innovation) if recipe.sigma else 0.0
        wander = keep * wander + rng.gauss(0, recipe.wander * math.sqrt(1 - keep * keep))
        day = index / VALUES_PER_DAY
        if any(begin <= day < end for begin, end in gaps_days):
            continue
        if recipe.gaps and rng.random() < 0.05:
            continue
        value = math.exp(noise + wander + _pattern(recipe, day, phase)) * _shift_factor(recipe, day)
        if recipe.outliers and rng.random() < recipe.outliers:
            value *= rng.uniform(1.2, 3)
            spikes.add(len(points))
        if recipe.quantum:
            value = round(value / recipe.quantum) * recipe.quantum
        if recipe.shift and index >= shift_index and shift_at is None:
            shift_at = len(points)
        points.append((START_S + index * STEP_S, value * recipe.base))
    return Stream(points, shift_at, frozenset(spikes))


def _pattern(recipe: Recipe, day: float, phase: float) -> float:
    day_share = (day + phase) % 1
    shapes: dict[str, Callable[[float], float]] = {
        "sine": lambda t: math.sin(2 * math.pi * t),
        "office": lambda t: 1.0 if 9 / 24 <= t < 18 / 24 else -0.6,
        "peaks": lambda t: math.sin(2 * math.pi * t) * 0.6 + math.sin(4 * math.pi * t) * 0.5,
    }
    value = recipe.daily * shapes[recipe.shape](day_share) if recipe.daily else 0.0
    if recipe.weekend and int(day + 3) % 7 in {5, 6}:  # the first day is a Thursday
        value += math.log(1 - recipe.weekend)
    return value


def _shift_factor(recipe: Recipe, day: float) -> float:
    elapsed_days = day - int(recipe.shift_day * VALUES_PER_DAY) / VALUES_PER_DAY
    if not recipe.shift or elapsed_days < -1e-9:
        return 1.0
    if recipe.returns_days and elapsed_days >= recipe.returns_days:
        return 1.0
    share = min(1.0, elapsed_days / recipe.ramp_days) if recipe.ramp_days else 1.0
    return 1 + recipe.shift * share


def _gaps(rng: random.Random, days: float) -> list[tuple[float, float]]:
    begins = sorted(rng.uniform(0.2, days) for _ in range(int(days / 6)))
    return [(begin, begin + rng.choice((0.1, 0.3, 1.0, 2.5))) for begin in begins]


def stationary_recipes(rng: random.Random, days: float = 60) -> Iterator[tuple[str, Recipe]]:
    """Yield the name and the recipe of each family of stationary streams."""
    sigma = rng.uniform(0.005, 0.02)
    amplitude = rng.uniform(0.03, 0.08)
    phi = rng.uniform(0.3, 0.7)
    outliers = rng.uniform(0.01, 0.03)
    yield "white noise", Recipe(days, sigma)
    yield "outliers", Recipe(days, sigma, outliers=outliers)
    yield "AR(1)", Recipe(days, sigma, phi)
    yield "AR(1), outliers", Recipe(days, sigma, phi, outliers=outliers)
    yield "daily", Recipe(days, sigma, daily=amplitude)
    yield "daily, AR(1), outliers", Recipe(days, sigma, phi, outliers=outliers, daily=amplitude)
    yield "daily, two peaks", Recipe(days, sigma, daily=amplitude, shape="peaks")
    yield "daily, office hours", Recipe(days, sigma, daily=amplitude, shape="office")
    yield "weekends", Recipe(days, sigma, weekend=0.05)
    yield "weekends, daily", Recipe(days, sigma, daily=amplitude, weekend=0.05)
    yield "wander", Recipe(days, sigma, wander=0.01, wander_days=rng.uniform(2, 7))
    yield "quantised", Recipe(days, sigma, quantum=rng.choice((0.001, 0.01, 0.02, 0.05)))
    yield "constant", Recipe(days, 0.0)
    yield "gaps", Recipe(days, sigma, gaps=True)
    yield "gaps, daily", Recipe(days, sigma, daily=amplitude, gaps=True)


def shifted_recipe(rng: random.Random, shift: str) -> Recipe:
    """Return a recipe with a persistent shift ("2 %", "ramp 3 d", ...) and random noise."""
    sizes = {"2 %": 0.02, "5 %": 0.05, "10 %": 0.1, "30 %": 0.3}
    sign = rng.choice((1, -1))
    recipe = Recipe(
        days=21,
        sigma=rng.uniform(0.005, 0.02),
        phi=rng.choice((0.0, 0.0, rng.uniform(0.3, 0.7))),
        outliers=rng.choice((0.0, rng.uniform(0.01, 0.03))),
        daily=rng.choice((0.0, 0.0, rng.uniform(0.03, 0.08))),
        shift_day=rng.uniform(10, 15),
    )
    if shift in sizes:
        recipe.shift = sign * sizes[shift]
    else:
        recipe.shift = sign * 0.1
        recipe.ramp_days = 3.0 if shift == "ramp 3 d" else 14.0
        recipe.days = 32
    return recipe
