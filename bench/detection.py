"""Drift detection on seeded streams: false alarms, delays and anomalies.

python bench/detection.py [--seeds 20] [--jobs 2]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from costprobe.drift.detector import Detector
from costprobe.drift.settings import DetectionConfig
from pydantic import TypeAdapter
from streams import (
    VALUES_PER_DAY,
    Recipe,
    Stream,
    generate,
    shifted_recipe,
    stationary_recipes,
)

VALUES_PER_MONTH = 30 * VALUES_PER_DAY
# A persistent shift that is detected later than this counts as missed.
MAX_DELAY_VALUES = 3 * VALUES_PER_DAY
SPEED_VALUES, SPEED_ROUNDS = 60_000, 3
SHIFTS = ("2 %", "5 %", "10 %", "30 %", "ramp 3 d", "ramp 14 d")
NON_STATIONARY = {"weekends", "weekends, daily", "wander"}
WARM_UP_VALUES = 36

# False drifts, months, spikes, detected spikes and anomalies of a stream.
Stationary = tuple[int, float, int, int, int]


def new_detector() -> Detector:
    return Detector.new(DetectionConfig().detector)


def detect(stream: Stream) -> tuple[list[int], set[int]]:
    """Return the indices at which drifts and anomalies were reported."""
    drifts, anomalies, detector = [], set(), new_detector()
    for index, (time_s, value) in enumerate(stream.points):
        for finding in detector.update(time_s, value):
            if finding.kind == "drift":
                drifts.append(index)
            else:
                anomalies.add(index)
    return drifts, anomalies


def run_stationary(seed: int) -> list[tuple[str, Stationary]]:
    """Return the false drifts and the anomalies of one seed's stationary streams, by family."""
    rng = random.Random(seed)
    rows: list[tuple[str, Stationary]] = []
    for family, recipe in stationary_recipes(rng):
        stream = generate(recipe, rng)
        drifts, anomalies = detect(stream)
        spikes = {index for index in stream.spikes if index >= WARM_UP_VALUES}
        months = len(stream.points) / VALUES_PER_MONTH
        counts = len(spikes), len(spikes & anomalies), len(anomalies)
        rows.append((family, (len(drifts), months, *counts)))
    return rows


def run_shifts(seed: int) -> list[tuple[str, int | None, int]]:
    """Return the delay and the number of reports for one seed's shifts; None if missed."""
    rows = []
    for shift in SHIFTS:
        rng = random.Random(100_000 + seed)
        rows.append((shift, *delay_of(generate(shifted_recipe(rng, shift), rng))))
    return rows


def delay_of(stream: Stream) -> tuple[int | None, int]:
    """Return the delay from the shift to its report in values, and the number of reports.

    The first shifted value and the one of the report are included in the delay.
    """
    shift_at = stream.shift_at or 0
    reports = [index for index in detect(stream)[0] if index >= shift_at]
    return (reports[0] - shift_at + 1 if reports else None), len(reports)


def run_noise(job: tuple[float, float, int]) -> tuple[float, float, int | None]:
    """Return the delay of a 2 % step in one kind of noise."""
    sigma, phi, seed = job
    rng = random.Random(200_000 + seed)
    recipe = Recipe(16, sigma, phi, shift=rng.choice((0.02, -0.02)), shift_day=rng.uniform(10, 12))
    return sigma, phi, delay_of(generate(recipe, rng))[0]


def updates_per_s() -> float:
    """Return updates per second of CPU time: the fastest round, which other load disturbed least."""
    recipe = Recipe(SPEED_VALUES / VALUES_PER_DAY, 0.01, 0.3, daily=0.05)
    stream, rounds_s = generate(recipe, random.Random(1)), []
    for _ in range(SPEED_ROUNDS):
        began_s = time.process_time()
        detect(stream)
        rounds_s.append(time.process_time() - began_s)
    return len(stream.points) / min(rounds_s)


def median_text(delays: list[int | None]) -> str:
    """Format the median delay; missed shifts count as infinitely late."""
    median = statistics.median(math.inf if delay is None else delay for delay in delays)
    return "never" if median == math.inf else f"{median:g}"


def count_missed(delays: list[int | None]) -> int:
    """Return the number of shifts that were missed or detected too late."""
    return sum(delay is None or delay > MAX_DELAY_VALUES for delay in delays)


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"{title}\n\n| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--base-seed", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    stationary: dict[str, list[Stationary]] = defaultdict(list)
    delays: dict[str, list[int | None]] = defaultdict(list)
    reports: dict[str, list[int]] = defaultdict(list)
    noise: dict[tuple[float, float], list[int | None]] = defaultdict(list)
    noise_jobs = [
        (sigma, phi, seed)
        for sigma in (0.005, 0.01, 0.02)
        for phi in (0.0, 0.5)
        for seed in range(options.seeds)
    ]
    seeds = range(options.base_seed, options.base_seed + options.seeds)
    with multiprocessing.Pool(options.jobs) as pool:
        for rows in pool.imap(run_stationary, seeds):
            for family, counts in rows:
                stationary[family].append(counts)
        for shifts in pool.imap_unordered(run_shifts, range(3 * options.seeds)):
            for shift, delay, count in shifts:
                delays[shift].append(delay)
                reports[shift].append(count)
        for sigma, phi, delay in pool.imap_unordered(run_noise, noise_jobs):
            noise[sigma, phi].append(delay)

    def rate(*families: str) -> float:
        rows = [row for family in families for row in stationary[family]]
        return sum(row[0] for row in rows) / sum(row[1] for row in rows)

    all_stationary = set(stationary) - NON_STATIONARY
    print_table(
        "False drifts per series and month",
        ("family", "false drifts"),
        [
            *((family, f"{rate(family):.3f}") for family in stationary),
            ("**all except weekends and wander**", f"**{rate(*all_stationary):.3f}**"),
        ],
    )
    print_table(
        "Persistent shifts",
        ("shift", "median delay in values", "missed (steps: not within 3 days)", "reports"),
        (
            (
                shift,
                median_text(found),
                f"{found.count(None) if 'ramp' in shift else count_missed(found)} of {len(found)}",
                f"{statistics.fmean(reports[shift]):.1f}",
            )
            for shift, found in delays.items()
        ),
    )
    print_table(
        "2 % steps by noise",
        ("noise", "AR(1)", "median delay in values", "missed"),
        (
            (f"{sigma * 100:g} %", f"{phi:g}", median_text(found), str(count_missed(found)))
            for (sigma, phi), found in noise.items()
        ),
    )
    streams = [row for of_family in stationary.values() for row in of_family]
    spikes, hits, anomalies = (sum(row[column] for row in streams) for column in (2, 3, 4))
    goals = [
        ("false drifts, all stationary", rate(*all_stationary), "≤", 0.05),
        ("false drifts, worst family", max(map(rate, all_stationary)), "≤", 0.3),
        ("false drifts, weekends and wander", max(map(rate, NON_STATIONARY)), "<", 1),
        *(
            (f"median delay, {shift}", float(median_text(delays[shift])), "≤", limit)
            for shift, limit in zip(SHIFTS, (12, 4, 3, 3, 130, 480), strict=True)
        ),
        ("missed steps", sum(count_missed(delays[shift]) for shift in SHIFTS[:4]), "≤", 0),
        ("anomaly recall", hits / spikes, "≥", 0.99),
        ("anomaly precision", hits / anomalies, "≥", 0.99),
        ("price changes reported as drift", count_price_drifts(), "≤", 0),
        ("updates per second", updates_per_s(), "≥", 10_000),
        ("state in bytes", len(TypeAdapter(Detector).dump_json(trained_detector())), "≤", 32_768),
    ]
    print_table(
        "Goals",
        ("goal", "measured", "limit", "met"),
        (
            (name, f"{value:,.4g}", f"{sign} {limit:,g}", "yes" if met else "**no**")
            for name, value, sign, limit in goals
            for met in [is_within(value, sign, limit)]
        ),
    )
    sys.exit(not all(is_within(value, sign, limit) for _, value, sign, limit in goals))


def is_within(value: float, sign: str, limit: float) -> bool:
    """Return whether `value sign limit` holds."""
    return {"≤": value <= limit, "<": value < limit, "≥": value >= limit}[sign]


def trained_detector() -> Detector:
    """Return a detector with 20 days of history."""
    detector = new_detector()
    stream = generate(Recipe(20, 0.01, daily=0.05), random.Random(3))
    for time_s, value in stream.points:
        detector.update(time_s, value)
    return detector


def count_price_drifts() -> int:
    """Return the drifts of the reference cost when only the price changes.

    The price doubles, returns, and rises by 10 %. The drift monitor watches `cost_reference`, the
    cost at the first price.
    """
    drifts = 0
    for seed in range(10):
        rng = random.Random(300_000 + seed)
        detector = new_detector()
        for index, (time_s, time_per_inference) in enumerate(generate(Recipe(30), rng).points):
            price = (1.0, 2.0, 1.0, 1.1)[index * 4 // (30 * VALUES_PER_DAY)]
            cost, reference_price = price * time_per_inference, 1.0
            reference = cost * reference_price / price
            drifts += sum(f.kind == "drift" for f in detector.update(time_s, reference))
    return drifts


if __name__ == "__main__":
    main()
