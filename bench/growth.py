"""Coverage of the 80 % interval of `costprobe forecast` on seeded daily loads.

Each load has a weekly pattern and noise of 10 %, and grows, drifts or stays by its kind; some have
bursts, unknown days, idle weekends, or a step. The days of the last week of a forecast are compared
with those of the load. Exit code 1 if the interval contains less than 75 % or more than 95 % of them,
on average over the loads without a step.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator

from costprobe.savings.growth import WEEK_DAYS, damped_forecast

KINDS = (
    "flat",
    "linear",
    "exponential",
    "saturating",
    "random walk",
    "random trend",
    "autocorrelated",
    "bursts",
    "gaps",
    "idle weekend",
    "step",
)
# Days of history and of the forecast.
LENGTHS = ((28, 30), (56, 30), (56, 90), (120, 90), (240, 90))
START, LEAST = 1000.0, 50.0


def load_of(kind: str, rng: random.Random, days: int) -> list[float]:
    """Return the daily loads of a seeded series."""
    share, slope, phi = rng.uniform(-0.003, 0.01), rng.uniform(-3, 10), rng.uniform(0.95, 0.99)
    step_at, memory = rng.randrange(days), 0.8 if kind == "autocorrelated" else 0.2
    weekend, weekday = (0.02, 1.39) if kind == "idle weekend" else (0.6, 1.16)
    level, trend, deviation = START, 0.0, 0.0
    loads = []
    for day in range(days):
        if kind == "exponential":
            level *= math.exp(share)
        elif kind == "saturating":
            level += 2 * slope * phi**day
        elif kind == "random walk":
            level *= math.exp(rng.gauss(0, 0.015))
        elif kind == "random trend":
            trend = 0.99 * trend + rng.gauss(0, 0.4)
            level += trend
        elif kind == "step":
            level = START * (1.4 if day >= step_at else 1)
        elif kind != "flat":
            level += slope
        deviation = memory * deviation + math.sqrt(1 - memory**2) * rng.gauss(0, 0.1)
        load = max(LEAST, level) * math.exp(deviation)
        load *= weekend if day % WEEK_DAYS >= WEEK_DAYS - 2 else weekday
        if kind == "bursts" and rng.random() < 0.03:
            load *= 3
        loads.append(load)
    return loads


def trial(kind: str, rng: random.Random, days: int, horizon: int) -> tuple[float, float, float]:
    """Return the share of the last week in the interval, the interval's width and the error.

    Width and error are shares of the load.
    """
    loads = load_of(kind, rng, days + horizon)
    known = [
        None if kind == "gaps" and day % 11 == 4 else load for day, load in enumerate(loads[:days])
    ]
    last = damped_forecast(known, horizon)[-WEEK_DAYS:]
    actual = loads[-WEEK_DAYS:]
    inside = [day.low <= load <= day.high for day, load in zip(last, actual, strict=True)]
    total = math.fsum(actual)
    width = math.fsum(day.high - day.low for day in last) / total
    error = abs(math.fsum(day.expected for day in last) / total - 1)
    return statistics.fmean(inside), width, error


def table(trials: int, seed: int) -> Iterator[tuple[str, int, int, float, float, float]]:
    """Yield kind, days of history, days of the forecast, coverage, median width and median error."""
    for kind in KINDS:
        for days, horizon in LENGTHS:
            rng = random.Random(f"{seed} {kind} {days} {horizon}")
            inside, widths, errors = zip(
                *(trial(kind, rng, days, horizon) for _ in range(trials)), strict=True
            )
            medians = statistics.median(widths), statistics.median(errors)
            yield kind, days, horizon, statistics.fmean(inside), *medians


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began_s = time.perf_counter()
    print(f"growth of load, {options.trials} trials each, nominal coverage 80 %")
    print("load            days horizon in interval  width  error")
    coverages = []
    for kind, days, horizon, coverage, width, error in table(options.trials, options.seed):
        print(f"{kind:15s} {days:4d} {horizon:7d} {coverage:11.0%} {width:6.0%} {error:6.0%}")
        if kind != "step":
            coverages.append(coverage)
    share = statistics.fmean(coverages)
    duration_s = time.perf_counter() - began_s
    print(f"without steps {share:.1%} in the interval; {duration_s:.1f} s in total")
    sys.exit(0 if 0.75 <= share <= 0.95 else 1)


if __name__ == "__main__":
    main()
