"""Expected effects of causes on time and power: from the series' own runs, by physics where these vary too little.

Effects are logarithms of the ratio after over before; energy is time x power. Each is a mixture, because the
physics has a range: what part of the time follows the clock depends on the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from costprobe.domain.detection.attribution import (
    NONE,
    Component,
    Effect,
    Estimate,
    scaled,
    updated,
)
from costprobe.domain.detection.causes import Cause
from costprobe.domain.detection.levels import Levels
from costprobe.domain.detection.robust_slope import slope_of

# Smallest distance of two runs of a regression: above the noise of a reading.
CLOCK_DISTANCE = 0.03
TEMPERATURE_DISTANCE_C = 2.0

# Time over 1/clock: 1 for a compute-bound pass, less where it waits for the memory (roofline model,
# Williams et al. 2009).
TIME_OF_CLOCK: Effect = (
    Component(0.4, 1.0, 0.04),
    Component(0.3, 0.85, 0.1),
    Component(0.2, 0.6, 0.15),
    Component(0.1, 0.3, 0.15),
)
TIME_OF_MEMORY_CLOCK: Effect = (Component(0.5, 0.2, 0.15), Component(0.5, 0.7, 0.2))
# Power over clock: static power does not follow it, dynamic power follows clock x voltage squared.
POWER_OF_CLOCK: Effect = (
    Component(0.4, 0.7, 0.2),
    Component(0.4, 1.2, 0.4),
    Component(0.2, 2.0, 0.5),
)
# Leakage per degree Celsius.
POWER_OF_TEMPERATURE: Effect = (Component(1.0, 0.002, 0.0015),)
# Time of a run beside another process: alone half as often (two processes share in turns), rarely
# more, little where the other one is mostly idle.
TIME_OF_CONTENTION: Effect = (
    Component(0.1, 0.0, 0.0),
    Component(0.2, 0.1, 0.08),
    Component(0.45, 0.3, 0.15),
    Component(0.25, 0.6, 0.25),
)
POWER_OF_CONTENTION: Effect = (Component(1.0, 0.0, 0.15),)
# Time over throttled share of the time, where the clock is unknown or hardly fell.
LEAST_CLOCK_OF_THROTTLING = 0.1
TIME_OF_THROTTLING: Effect = (Component(0.7, 0.35, 0.2), Component(0.3, 0.8, 0.4))
# Time over 1/power limit, where neither the clock nor the throttled time is known: the limit may be above
# the power; the clock goes with the power to the 1/3 (voltage follows it) to 1.
TIME_OF_LIMIT: Effect = (Component(0.3, 0.0, 0.0), Component(0.7, 0.5, 0.25))
# Time per inference over 1/batch: the fixed part of a pass.
TIME_OF_BATCH: Effect = (
    Component(0.2, 0.1, 0.08),
    Component(0.4, 0.35, 0.2),
    Component(0.3, 0.7, 0.2),
    Component(0.1, 1.0, 0.05),
)
POWER_OF_BATCH: Effect = (Component(1.0, 0.0, 0.2),)
# Time of a request over its tokens, where the times to and between tokens are unknown.
TIME_OF_OUTPUT: Effect = (Component(1.0, 0.85, 0.2),)
TIME_OF_INPUT: Effect = (Component(1.0, 0.15, 0.15),)
TOKENS_ERROR = 0.1


# A part of the unmeasured effects has no usual size. Without it a change by a factor of five would be
# attributed to the cause whose effects vary most, instead of the one that coincides.
RARE, ANY_SIZE = 0.1, 1.0


def _possible(probability: float, error: float, mean: float = 0.0) -> Effect:
    """Return an effect that may be absent, and is rarely of any size."""
    return (
        Component(1 - probability, 0.0, 0.0),
        Component(probability * (1 - RARE), mean, error),
        Component(probability * RARE, mean, ANY_SIZE),
    )


# What changed without any signal: rare, and of any size.
UNKNOWN_TIME = _possible(0.05, 0.2)
UNKNOWN_POWER = _possible(0.1, 0.1)
# Causes whose size no signal measures: probability of an effect, and its standard deviation.
UNMEASURED: Mapping[str, Effect] = {
    "software": _possible(0.5, 0.15),
    "software: model": _possible(0.8, 0.4),
    "software: weights": _possible(0.6, 0.3),
    "software: dtype": _possible(0.9, 0.5),
    "software: inputs": _possible(0.8, 0.4),
    "annotation": _possible(0.5, 0.25),
    "board": _possible(0.5, 0.12),
    "memory errors": _possible(0.2, 0.1),
    "memory pressure": _possible(0.6, 0.15, 0.15),
    "temperature": _possible(0.2, 0.1),
}
UNMEASURED_POWER = _possible(0.4, 0.08)
# What changed before the series did has had its effect already.
EARLY_PROBABILITY = 0.15

Method = Literal["history", "physics", "remainder"]


@dataclass(frozen=True, slots=True)
class ExpectedEffect:
    """The effect that a cause should have.

    Attributes:
        time: On the time per inference, or on the latency.
        power: On the power.
        method: Where it comes from.
    """

    time: Effect
    power: Effect
    method: Method


def expected_effect(cause: Cause, levels: Levels, chain_share: float) -> ExpectedEffect:
    """Return the effect that a cause should have between two levels.

    Args:
        cause: The cause.
        levels: Runs of both levels.
        chain_share: Part of the effect of the SM clock that belongs to it: thermal and power
            throttling act through the same clock, and no effect counts twice.
    """
    kind = cause.name.partition(":")[0]
    measure = _MEASURES.get(kind)
    found = None if measure is None else measure(levels)
    if found is None:
        time = UNMEASURED.get(cause.name, UNMEASURED.get(kind, UNMEASURED["software"]))
        found = ExpectedEffect(time, UNMEASURED_POWER, "remainder")
    time, power = scaled(found.time, chain_share), scaled(found.power, chain_share)
    if cause.coincides is False:
        time, power = _early(time), _early(power)
    return ExpectedEffect(time, power, found.method)


def _early(effect: Effect) -> Effect:
    absent = Component(1 - EARLY_PROBABILITY, 0.0, 0.0)
    likely = (Component(c.weight * EARLY_PROBABILITY, c.mean, c.error) for c in effect)
    return absent, *likely


def _of_clock(levels: Levels) -> ExpectedEffect | None:
    slower = levels.log_fall("sm_clock_mhz")
    hotter_c = levels.rise("temp_c") or 0.0
    counters = ("throttled_thermal_pct", "throttled_power_pct")
    throttled = math.fsum(levels.rise(counter) or 0.0 for counter in counters) / 100
    if slower is None or abs(slower) < LEAST_CLOCK_OF_THROTTLING * abs(throttled):
        # A few readings of the clock may miss what the counters of the driver do not.
        if throttled:
            return ExpectedEffect(
                scaled(TIME_OF_THROTTLING, throttled), UNMEASURED_POWER, "physics"
            )
        lower = levels.log_fall("power_limit_w")
        return (
            ExpectedEffect(scaled(TIME_OF_LIMIT, lower), UNMEASURED_POWER, "physics")
            if lower
            else None
        )
    # Power that follows the clock shows that its variation is real, also where time hardly does.
    is_real = slope_of(_clock_and_power(levels), CLOCK_DISTANCE) is not None
    slope = slope_of(_inverse_clock(levels), CLOCK_DISTANCE, is_exact=is_real)
    time, method = _measured(TIME_OF_CLOCK, slope)
    warmer = _sum_of(POWER_OF_CLOCK, -slower, scaled(POWER_OF_TEMPERATURE, hotter_c)[0])
    return ExpectedEffect(scaled(time, slower), warmer, method)


def _of_memory_clock(levels: Levels) -> ExpectedEffect | None:
    slower = levels.log_fall("mem_clock_mhz")
    if slower is None:
        return None
    return ExpectedEffect(scaled(TIME_OF_MEMORY_CLOCK, slower), UNMEASURED_POWER, "physics")


def _of_contention(levels: Levels) -> ExpectedEffect | None:
    waited = levels.means("cpu_wait_pct")
    if waited is not None and max(waited) < 100:  # noqa: PLR2004 - percent
        # A processor's probe measures how long its threads waited.
        longer = math.log((100 - waited[0]) / (100 - waited[1]))
        time: Effect = (Component(1.0, longer, 0.02 + 0.2 * abs(longer)),)
        return ExpectedEffect(time, POWER_OF_CONTENTION, "physics")
    shares = levels.means("contended_share")
    if shares is None:
        return None
    # Another neighbour has another effect: each level has its own.
    was = levels.contended_slowdown(levels.before)
    slower, method = _measured(TIME_OF_CONTENTION, levels.contended_slowdown(levels.after))
    more = shares[1] - shares[0]
    power = scaled(POWER_OF_CONTENTION, more)
    if was is None:
        return ExpectedEffect(scaled(slower, more), power, method)
    former = Component(1.0, -shares[0] * was.mean, shares[0] * was.error)
    return ExpectedEffect(_sum_of(slower, shares[1], former), power, "history")


def _of_batch(levels: Levels) -> ExpectedEffect | None:
    before, after = levels.before[-1].batch, levels.after[-1].batch
    if not before or not after:
        return None
    smaller = math.log(before / after)
    # A pass of a smaller batch is shorter, though an inference takes longer.
    shift = -smaller if levels.metric == "latency" else 0.0
    return ExpectedEffect(scaled(TIME_OF_BATCH, smaller, shift), POWER_OF_BATCH, "physics")


def _of_tokens(levels: Levels) -> ExpectedEffect | None:
    inputs, outputs = levels.means("tokens_in"), levels.means("tokens_out")
    first, between = levels.means("ttft_mean_ms"), levels.means("tpot_mean_ms")
    more_in = math.log(inputs[1] / inputs[0]) if inputs and min(inputs) > 0 else 0.0
    more_out = math.log(outputs[1] / outputs[0]) if outputs and min(outputs) > 0 else 0.0
    if first is None or between is None or outputs is None:
        time = _sum_of(TIME_OF_OUTPUT, more_out, scaled(TIME_OF_INPUT, more_in)[0])
        return ExpectedEffect(time, NONE, "physics")
    # At the speed of the level before: the first token goes with the input, the others with the output.
    was_ms = first[0] + between[0] * outputs[0]
    is_ms = first[0] * math.exp(more_in) + between[0] * outputs[1]
    longer = math.log(is_ms / was_ms) if was_ms > 0 else 0.0
    time = (Component(1.0, longer, TOKENS_ERROR * abs(longer)),)
    return ExpectedEffect(time, NONE, "physics")


def _of_heat(levels: Levels) -> ExpectedEffect | None:
    hotter_c = levels.rise("temp_c")
    if hotter_c is None:
        return None
    slope = slope_of(_temperature_and_power(levels), TEMPERATURE_DISTANCE_C)
    power, method = _measured(POWER_OF_TEMPERATURE, slope)
    # Heat alone does not slow a device whose clock and counters are known.
    is_known = levels.means("sm_clock_mhz") is not None
    time = NONE if is_known else UNMEASURED["temperature"]
    return ExpectedEffect(time, scaled(power, hotter_c), method)


_MEASURES: Mapping[str, Callable[[Levels], ExpectedEffect | None]] = {
    "cooling": _of_clock,
    "thermal throttling": _of_clock,
    "power limit": _of_clock,
    "clock": _of_clock,
    "memory clock": _of_memory_clock,
    "neighbour": _of_contention,
    "batch": _of_batch,
    "prompt lengths": _of_tokens,
    "temperature": _of_heat,
}


def _inverse_clock(levels: Levels) -> list[list[tuple[float, float]]]:
    """Return ln(1/clock) and ln(time) of the runs of each level."""
    return [
        [(-math.log(x), y) for x, y in levels.log_times("sm_clock_mhz", runs) if x > 0]
        for runs in (levels.history, levels.after)
    ]


def _clock_and_power(levels: Levels) -> list[list[tuple[float, float]]]:
    """Return ln(clock) and ln(power) of the runs of each level."""
    return [
        [(math.log(x), y) for x, y in levels.log_powers("sm_clock_mhz", runs) if x > 0]
        for runs in (levels.history, levels.after)
    ]


def _temperature_and_power(levels: Levels) -> list[list[tuple[float, float]]]:
    """Return temperature and ln(power) of the runs of each level."""
    return [levels.log_powers("temp_c", runs) for runs in (levels.history, levels.after)]


def _measured(physics: Effect, slope: Estimate | None) -> tuple[Effect, Method]:
    """Return an effect per unit of its signal, with the regression over the series' own runs."""
    return (physics, "physics") if slope is None else (updated(physics, slope), "history")


def _sum_of(effect: Effect, factor: float, other: Component) -> Effect:
    """Return a scaled effect plus an independent normal one."""
    return tuple(
        Component(c.weight, c.mean * factor + other.mean, math.hypot(c.error * factor, other.error))
        for c in effect
    )
