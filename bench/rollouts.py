"""Seeded rollouts of an update over a fleet, with a known effect on the time per inference."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from costprobe.fleet.updates import HostSeries

BUCKETS_PER_DAY = 4


@dataclass(frozen=True)
class RolloutRecipe:
    """A rollout.

    Attributes:
        hosts: Number of hosts.
        changed: Number of hosts that change, at different times.
        effect: Logarithm of the ratio with over without the update, on average.
        varies: Standard deviation of the effect from host to host.
        days: Length of the history.
        noise: Standard deviation of a bucket of a host.
        phi: Its autocorrelation from bucket to bucket.
        daily: Half of the range of the daily pattern that all hosts share.
        drift: Standard deviation of the step of a random walk of each cooling row, by bucket.
        by_row: Whether the rollout goes from row to row, so that a row changes at about one time.
        matched: Whether hosts are compared within their row.
        gaps: Share of the buckets without a value.
        seed: Of the random numbers.
    """

    hosts: int = 100
    changed: int = 50
    effect: float = 0.03
    varies: float = 0.0
    days: int = 14
    noise: float = 0.01
    phi: float = 0.6
    daily: float = 0.02
    drift: float = 0.0
    by_row: bool = False
    matched: bool = False
    gaps: float = 0.02
    seed: int = 1


def rollout(recipe: RolloutRecipe) -> tuple[list[HostSeries[float]], float]:
    """Return the series of the hosts, and the mean of the true effects of those that changed."""
    rng = random.Random(recipe.seed)
    buckets, rows = recipe.days * BUCKETS_PER_DAY, 10
    walks = []
    for _ in range(rows):
        level, walk = 0.0, []
        for _ in range(buckets):
            level += rng.gauss(0, recipe.drift)
            walk.append(level)
        walks.append(walk)
    order = sorted(range(recipe.hosts), key=lambda n: n % rows) if recipe.by_row else None
    chosen = order[: recipe.changed] if order else rng.sample(range(recipe.hosts), recipe.changed)
    first, last = 2 * BUCKETS_PER_DAY, buckets - 2 * BUCKETS_PER_DAY
    starts = {}
    for rank, host in enumerate(chosen):
        position = rank / max(1, len(chosen) - 1) if recipe.by_row else rng.random()
        starts[host] = first + int(position * (last - first - 1))
    units, effects = [], []
    innovation = recipe.noise * math.sqrt(1 - recipe.phi**2)
    for host in range(recipe.hosts):
        level, deviation = rng.gauss(-7, 0.2), rng.gauss(0, recipe.noise)
        effect, start = recipe.effect + rng.gauss(0, recipe.varies), starts.get(host)
        if start is not None:
            effects.append(effect)
        values: list[float | None] = []
        for bucket in range(buckets):
            deviation = recipe.phi * deviation + rng.gauss(0, innovation)
            value = level + deviation + walks[host % rows][bucket]
            value += recipe.daily * math.sin(2 * math.pi * bucket / BUCKETS_PER_DAY + 0.5)
            if start is not None and bucket >= start:
                value += effect
            values.append(None if rng.random() < recipe.gaps else value)
        kind = ("encoder", host % rows if recipe.matched else 0)
        units.append(HostSeries(f"host{host:04}", kind, values, start))
    return units, sum(effects) / len(effects)
