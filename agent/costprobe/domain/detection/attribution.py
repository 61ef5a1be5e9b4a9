"""Shares of a change: expected effects of several causes, corrected by the change that was observed.

Bayesian variable selection with normal mixtures: a cause's effect is a mixture, in which "no effect" is
a component without width, and the change is the sum of all effects and of the noise. The few components
are enumerated, so that the posterior is exact (George and McCulloch, "Variable selection via Gibbs
sampling", 1993, describe the model; no sampling is needed at this size).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

# A measurement without noise would let rounding errors decide.
LEAST_ERROR = 1e-4


@dataclass(frozen=True, slots=True)
class Component:
    """A normal component of an expected effect.

    Attributes:
        weight: Its probability.
        mean: Expected effect, in log units.
        error: Standard deviation.
    """

    weight: float
    mean: float
    error: float

    def scaled(self, factor: float, shift: float = 0.0) -> Component:
        """Return the effect of a signal that moved by a factor of its unit, plus a constant."""
        return Component(self.weight, self.mean * factor + shift, abs(self.error * factor))


# The weights add up to 1.
Effect = tuple[Component, ...]
NONE: Effect = (Component(1.0, 0.0, 0.0),)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard deviation."""

    mean: float
    error: float


def scaled(effect: Effect, factor: float, shift: float = 0.0) -> Effect:
    """Return an effect times a factor, plus a constant."""
    return tuple(component.scaled(factor, shift) for component in effect)


def mean_of(effect: Effect) -> float:
    """Return the expected value of an effect."""
    return math.fsum(component.weight * component.mean for component in effect)


def updated(effect: Effect, measured: Estimate) -> Effect:
    """Return an effect after an independent measurement of it."""
    variance = measured.error**2
    found = []
    for component in effect:
        total = component.error**2 + variance
        gain = component.error**2 / total
        distance = measured.mean - component.mean
        weight = component.weight * math.exp(-distance * distance / total / 2) / math.sqrt(total)
        mean = component.mean + gain * distance
        found.append(Component(weight, mean, math.sqrt(gain * variance)))
    total_weight = math.fsum(component.weight for component in found)
    if total_weight <= 0:  # A measurement far outside of everything expected.
        return (Component(1.0, measured.mean, measured.error),)
    return tuple(Component(c.weight / total_weight, c.mean, c.error) for c in found)


def parts_of(change: Estimate, effects: Sequence[Effect]) -> list[Estimate]:
    """Return the part of a change that each effect has, given that they and the noise add up to it.

    Args:
        change: The observed change and the standard error of its measurement, in log units.
        effects: Expected effects; at least one.
    """
    noise = max(change.error, LEAST_ERROR) ** 2
    weights, means, variances = [], [], []
    for chosen in product(*effects):
        total = noise + math.fsum(component.error**2 for component in chosen)
        rest = change.mean - math.fsum(component.mean for component in chosen)
        weights.append(
            math.fsum(math.log(component.weight) for component in chosen if component.weight)
            - math.log(total) / 2
            - rest * rest / total / 2
        )
        gains = [component.error**2 / total for component in chosen]
        means.append([c.mean + gain * rest for c, gain in zip(chosen, gains, strict=True)])
        variances.append([c.error**2 * (1 - gain) for c, gain in zip(chosen, gains, strict=True)])
    top = max(weights)
    likely = [math.exp(weight - top) for weight in weights]
    total = math.fsum(likely)
    parts = []
    for index in range(len(effects)):
        mean = math.fsum(w * m[index] for w, m in zip(likely, means, strict=True)) / total
        square = math.fsum(
            w * (v[index] + (m[index] - mean) ** 2)
            for w, m, v in zip(likely, means, variances, strict=True)
        )
        parts.append(Estimate(mean, math.sqrt(square / total)))
    return parts
