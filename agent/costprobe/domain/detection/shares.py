"""How much each cause explains of a change, and which of them names it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costprobe.domain.detection.attribution import Estimate, mean_of, parts_of
from costprobe.domain.detection.causes import UNKNOWN, Cause, Explanation, Share
from costprobe.domain.detection.effects import (
    UNKNOWN_POWER,
    UNKNOWN_TIME,
    ExpectedEffect,
    expected_effect,
)
from costprobe.domain.detection.levels import Levels
from costprobe.domain.detection.runs import factors

# Causes that act through the SM clock, and the counter of each.
THROTTLING = {
    "cooling": "throttled_thermal_pct",
    "thermal throttling": "throttled_thermal_pct",
    "power limit": "throttled_power_pct",
}
CLOCK = "clock"
# Throttling for a share of the time reduces the mean clock by at most so many times that share: more is
# a limit of the clock itself. Drivers count the time in throttling differently, hence above 1.
THROTTLING_REACH = 4.0
# Smallest change of the power limit, in log units.
LEAST_LIMIT = 0.01
# Below this share together the causes do not explain the change.
EXPLAINED = 0.5
# Quantile of the normal distribution of an interval of 90 %.
QUANTILE = 1.645
# A smaller counteracting share is noise.
LEAST_COUNTERACTION = 0.1
# A smaller change has no shares.
LEAST_CHANGE = 1e-3


@dataclass(frozen=True, slots=True)
class _Weights:
    """Part of time and of power in the logarithm of a series."""

    time: float
    power: float


def explanation_of(causes: Sequence[Cause], levels: Levels) -> Explanation:
    """Return the causes with their expected effects and shares, the largest share first.

    Args:
        causes: Candidates, in the order of their likelihood without shares.
        levels: Runs of both levels.
    """
    if not causes:
        return Explanation(UNKNOWN)
    causes, chain = _chained(causes, levels)
    effects = [expected_effect(cause, levels, chain.get(cause.name, 1.0)) for cause in causes]
    shares = _shares(levels, effects)
    if shares is None:
        return Explanation(causes[0].name, tuple(causes))
    *found, rest = shares
    explained = Share(1 - rest.mean, 1 - rest.high, 1 - rest.low)
    ranked = sorted(
        (
            _with_effect(cause, effect, share)
            for cause, effect, share in zip(causes, effects, found, strict=True)
        ),
        key=lambda cause: -round(cause.share.mean, 2) if cause.share else 0.0,
    )
    name = ranked[0].name if explained.mean >= EXPLAINED else UNKNOWN
    return Explanation(name, tuple(ranked), explained)


def _chained(
    causes: Sequence[Cause], levels: Levels
) -> tuple[Sequence[Cause], Mapping[str, float]]:
    """Return the causes without a clock that another one limits, and each one's part of the clock's effect."""
    names = [cause.name for cause in causes if cause.name in THROTTLING]
    if not names:
        return causes, {}
    parts = _parts_of_clock(names, levels)
    covered = round(math.fsum(parts.values()), 9)
    clock = next((cause for cause in causes if cause.name == CLOCK), None)
    if clock is None:
        return causes, parts
    if covered < 1:
        return causes, {**parts, CLOCK: 1 - covered}
    first = max(parts, key=parts.__getitem__)
    return [
        replace(cause, text=f"{cause.text}, {clock.text}") if cause.name == first else cause
        for cause in causes
        if cause is not clock
    ], parts


def _parts_of_clock(names: Sequence[str], levels: Levels) -> Mapping[str, float]:
    """Return the part of the clock's effect that each cause has which lowers it; 1 together at most."""
    rises = {name: levels.rise(THROTTLING[name]) for name in names}
    times = {name: abs(rise) / 100 for name, rise in rises.items() if rise is not None}
    uncounted = [name for name in names if name not in times]
    total = math.fsum(times.values())
    means = levels.means("sm_clock_mhz")
    fall = abs(1 - means[1] / means[0]) if means and means[0] > 0 else 0.0
    covered = min(1.0, THROTTLING_REACH * total / fall if fall else 1.0) if total else 0.0
    is_limited = abs(levels.log_fall("power_limit_w") or 0.0) > LEAST_LIMIT
    if is_limited and times.get("power limit"):
        # The limit itself moved, and held the clock.
        covered = 1.0
    parts = {name: covered * time / total if total else 0.0 for name, time in times.items()}
    # Without a counter there is one reason for what the others leave.
    return {**parts, **{name: (1 - covered) / len(uncounted) for name in uncounted}}


def _shares(levels: Levels, effects: Sequence[ExpectedEffect]) -> list[Share] | None:
    """Return the share of each effect and of what is unknown; None without a change."""
    time = levels.time_change()
    times = parts_of(time, [*(effect.time for effect in effects), UNKNOWN_TIME])
    weights = _weights(levels)
    total = weights.time * time.mean
    power = levels.power_change() if weights.power else None
    powers = [Estimate(0.0, 0.0)] * len(times)
    if power is not None:
        powers = parts_of(power, [*(effect.power for effect in effects), UNKNOWN_POWER])
        total += weights.power * power.mean
    if abs(total) < LEAST_CHANGE:
        return None
    shares = [
        _share(
            (weights.time * slow.mean + weights.power * watts.mean) / total,
            math.hypot(weights.time * slow.error, weights.power * watts.error) / abs(total),
        )
        for slow, watts in zip(times, powers, strict=True)
    ]
    return _complete(shares)


def _weights(levels: Levels) -> _Weights:
    if levels.metric == "energy":
        return _Weights(1.0, 1.0)
    if levels.metric != "cost":
        return _Weights(1.0, 0.0)
    sides = [factors(runs) for runs in (levels.before, levels.after)]
    costs = math.fsum(side.cost for side in sides)
    return _Weights(
        1.0, math.fsum(side.electricity for side in sides) / costs if costs > 0 else 0.0
    )


def _share(mean: float, error: float) -> Share:
    return Share(mean, mean - QUANTILE * error, mean + QUANTILE * error)


def _complete(shares: Sequence[Share]) -> list[Share]:
    """Return shares that add up to 1, the last of which is the remainder.

    A counteracting cause has a negative share, and the others together more than 1; otherwise all are
    between 0 and 1.
    """
    if any(share.mean < -LEAST_COUNTERACTION for share in shares[:-1]):
        rest = 1 - math.fsum(share.mean for share in shares[:-1])
        last = shares[-1]
        shift = rest - last.mean
        return [*shares[:-1], Share(rest, last.low + shift, last.high + shift)]
    positive = [max(0.0, share.mean) for share in shares]
    total = math.fsum(positive)
    if total <= 0:
        positive, total = [*[0.0] * (len(shares) - 1), 1.0], 1.0
    return [
        Share(
            mean / total,
            _bounded(share.low, mean / total, 0),
            _bounded(share.high, mean / total, 1),
        )
        for share, mean in zip(shares, positive, strict=True)
    ]


def _bounded(quantile: float, mean: float, side: int) -> float:
    """Return a quantile between 0 and 1 on its side of the mean."""
    return min(max(0.0, quantile), mean) if side == 0 else max(min(1.0, quantile), mean)


def _with_effect(cause: Cause, effect: ExpectedEffect, share: Share) -> Cause:
    if effect.method == "remainder":
        return replace(cause, share=share, method=effect.method)
    time, power = mean_of(effect.time), mean_of(effect.power)
    return replace(
        cause, time_effect=time, energy_effect=time + power, share=share, method=effect.method
    )
