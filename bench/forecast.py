"""Coverage of the forecast's 80 % interval on seeded hourly costs.

Each series has daily and weekly seasonality and AR(1) noise, and some have bursts, a persistent
step, or hours without rows. The rest of a period is forecast at a seeded instant and compared with
the actual cost. Exit code 1 if the interval, on series without a step, contains the
actual cost in less than 70 % or more than 95 % of trials.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator

from costprobe.core.periods import HOUR_NS
from costprobe.spend.forecast import HourRate, remaining_hours, robust_forecast

START_NS = 1_767_571_200_000_000_000  # Monday, 5 January 2026, 00:00 UTC
KINDS = ("steady", "seasonal", "autocorrelated", "bursts", "gaps", "step")


def hours_of(kind: str, rng: random.Random, weeks: int) -> list[float]:
    """Return the hourly costs of a seeded series."""
    values, deviation, level = [], 0.0, 10.0
    memory = 0.95 if kind == "autocorrelated" else 0.5
    step_at = rng.randrange(weeks * 168) if kind == "step" else None
    for hour in range(weeks * 168):
        if hour == step_at:
            level = 14.0
        day = 1 + 0.4 * math.sin(2 * math.pi * (hour % 24 - 8) / 24)
        week = 0.6 if hour % 168 >= 120 else 1.0
        deviation = memory * deviation + math.sqrt(1 - memory**2) * rng.gauss(0, 0.15)
        value = level if kind == "steady" else level * day * week
        value *= math.exp(deviation)
        if kind == "bursts" and rng.random() < 0.02:
            value *= 3
        values.append(value)
    return values


def trial(kind: str, rng: random.Random, weeks: int, rest_hours: int) -> tuple[bool, float, float]:
    """Return whether a forecast's interval contains the actual cost, its relative width and error."""
    values = hours_of(kind, rng, weeks + math.ceil(rest_hours / 168))
    now = weeks * 168
    history = [
        HourRate(START_NS + hour * HOUR_NS, values[hour])
        for hour in range(now)
        if kind != "gaps" or (hour // 24) % 9 != 4
    ]
    rest = remaining_hours(START_NS + now * HOUR_NS, START_NS + (now + rest_hours) * HOUR_NS)
    actual = sum(values[now : now + rest_hours])
    result = robust_forecast(history, rest, "UTC")
    if result is None:
        raise ValueError("the history is too short")
    is_inside = result.low <= actual <= result.high
    return is_inside, (result.high - result.low) / actual, abs(result.expected - actual) / actual


def table(
    trials: int, seed: int, lengths: Iterable[tuple[int, int]]
) -> Iterator[tuple[str, int, int, int, float, float, float]]:
    """Yield kind, weeks of history, forecast hours, forecasts, coverage, median width, median error."""
    for kind in KINDS:
        for weeks, rest_hours in lengths:
            rng = random.Random(f"{seed} {kind} {weeks} {rest_hours}")
            results = [trial(kind, rng, weeks, rest_hours) for _ in range(trials)]
            coverage = sum(is_inside for is_inside, _, _ in results) / len(results)
            medians = [sorted(column)[len(results) // 2] for column in zip(*results, strict=True)]
            yield kind, weeks, rest_hours, len(results), coverage, medians[1], medians[2]


def main() -> None:
    """Print the table of the forecast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lengths = [(1, 12), (2, 12), (8, 12), (2, 240), (8, 240), (8, 600)]
    began_s = time.perf_counter()
    print(f"{options.trials} trials each, nominal coverage 80 %")
    print("series         weeks  hours count  in interval  width  error")
    coverages = []
    for kind, weeks, hours, count, coverage, width, error in table(
        options.trials, options.seed, lengths
    ):
        print(
            f"{kind:14s} {weeks:5d} {hours:6d} {count:5d} {coverage:12.0%} {width:6.1%} {error:6.1%}"
        )
        if kind != "step":
            coverages.append(coverage)
    share = sum(coverages) / len(coverages)
    duration_s = time.perf_counter() - began_s
    print(f"without steps {share:.1%} in the interval; {duration_s:.1f} s in total")
    sys.exit(0 if 0.7 <= share <= 0.95 else 1)


if __name__ == "__main__":
    main()
