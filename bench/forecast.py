"""Coverage of the forecast's 80 % interval on seeded hourly costs, or on real demand.

Each series has daily and weekly seasonality and AR(1) noise, and some have bursts, a persistent
step, or hours without rows. The rest of a period is forecast at a seeded instant and compared with
the actual cost. Exit code 1 if the interval, on series without a step, contains the
actual cost in less than 70 % or more than 95 % of trials.

`--real FOLDER` judges it on recorded demand instead, with the cost of an hour as its amount: files of
`timestamp,value` (numenta/NAB: realKnownCause/nyc_taxi.csv, realTweets/) and of `tenant,time_s,
requests_per_s` in steps of 600 s (alibaba/ServeGen), gzipped. A forecast begins every 31 hours. Exit code 1
if the intervals of a horizon, on average over kinds and lengths of history, contain less than 75 %.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

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


class Trial(NamedTuple):
    """Whether an interval contains the actual cost, its width and the error, as shares of that cost."""

    is_inside: bool
    width: float
    error: float


def judged(history: Sequence[HourRate], actual: Sequence[float], usual: float) -> Trial:
    """Forecast the hours after a history, and compare them with the actual ones.

    Args:
        history: Past hours.
        actual: Costs of the hours after the last one.
        usual: Cost of an hour, by which width and error are divided.
    """
    begin_ns = history[-1].start_ns + HOUR_NS
    rest = remaining_hours(begin_ns, begin_ns + len(actual) * HOUR_NS)
    found = robust_forecast(history, rest, "UTC")
    if found is None:
        raise ValueError("the history is too short")
    total, scale = math.fsum(actual), usual * len(actual)
    width, error = found.high - found.low, abs(found.expected - total)
    return Trial(found.low <= total <= found.high, width / scale, error / scale)


def trial(kind: str, rng: random.Random, weeks: int, rest_hours: int) -> Trial:
    """Return the result of a seeded series."""
    values = hours_of(kind, rng, weeks + math.ceil(rest_hours / 168))
    now = weeks * 168
    history = [
        HourRate(START_NS + hour * HOUR_NS, values[hour])
        for hour in range(now)
        if kind != "gaps" or (hour // 24) % 9 != 4 or hour == now - 1
    ]
    actual = values[now : now + rest_hours]
    return judged(history, actual, statistics.fmean(actual))


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


class Demand(NamedTuple):
    """A recorded series: its kind, hours since 1970 at its begin, amount and highest value of each hour."""

    kind: str
    first: int
    amounts: list[float]
    peaks: list[float]


def real_demand(folder: Path) -> Iterator[Demand]:
    """Yield the recorded series of a folder."""
    for path in sorted(folder.glob("*.csv.gz")):
        series: dict[str, dict[int, list[float]]] = {}
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                if "requests_per_s" in row:
                    name, hour = row["tenant"], int(row["time_s"]) // 3600
                    amount = 600 * float(row["requests_per_s"])
                elif "timestamp" in row:
                    moment = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
                    name, hour, amount = "", int(moment.timestamp()) // 3600, float(row["value"])
                else:
                    break
                series.setdefault(name, {}).setdefault(hour, []).append(amount)
        for name, hours in series.items():
            first, last = min(hours) + (not name), max(hours) + bool(name)
            kind = "tenants" if name else path.name.removesuffix(".csv.gz").rpartition("_")[0]
            values = [hours.get(hour, [0.0]) for hour in range(first, last)]
            yield Demand(kind, first, list(map(math.fsum, values)), list(map(max, values)))


def real_table(folder: Path) -> bool:
    """Print the table of recorded demand, and return whether its goal is met."""
    results: dict[tuple[str, int, int], list[Trial]] = {}
    for kind, first, amounts, _ in real_demand(folder):
        usual = statistics.fmean(amounts)
        hours = [HourRate((first + at) * HOUR_NS, amount) for at, amount in enumerate(amounts)]
        for weeks in (1, 2, 4, 8):
            for rest in (24, 168, 600) if weeks > 1 else (24, 168):
                for now in range(weeks * 168, len(amounts) - rest + 1, 31):
                    result = judged(
                        hours[now - weeks * 168 : now], amounts[now : now + rest], usual
                    )
                    results.setdefault((kind, weeks, rest), []).append(result)
    print("demand          weeks  hours count  in interval  mean width  median error")
    coverages: dict[int, list[float]] = {}
    for (kind, weeks, rest), trials in sorted(results.items()):
        inside, widths, errors = zip(*trials, strict=True)
        coverage = statistics.fmean(inside)
        coverages.setdefault(rest, []).append(coverage)
        print(
            f"{kind:15s} {weeks:5d} {rest:6d} {len(trials):5d} {coverage:12.0%}"
            f" {statistics.fmean(widths):11.0%} {statistics.median(errors):13.0%}"
        )
    for rest, shares in sorted(coverages.items()):
        print(f"{rest} h: {statistics.fmean(shares):.0%} in the interval")
    return all(statistics.fmean(shares) >= 0.75 for shares in coverages.values())


def main() -> None:
    """Print the table of the forecast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", type=Path, metavar="FOLDER", help="judge recorded demand")
    options = parser.parse_args()
    if options.real is not None:
        sys.exit(0 if real_table(options.real) else 1)
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
