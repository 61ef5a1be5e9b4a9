"""Drift detection on seeded streams: false alarms, delays and anomalies, and its cost compared with river's detectors.

    python bench/detection.py [--seeds 20] [--jobs 2] [--cost] [--json FILE]

river's detectors are included if river is installed; they receive the logarithm of each value.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

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
from table import Table, add_json, finish

VALUES_PER_MONTH = 30 * VALUES_PER_DAY
# A persistent shift that is detected later than this counts as missed.
MAX_DELAY_VALUES = 3 * VALUES_PER_DAY
UPDATES_PER_S_GOAL = 10_000
SPEED_VALUES = 20_000
# A thousand states of 16 kB, plus half of that for the Python objects.
MEMORY_MB_GOAL = 24
COST_NOTE = (
    "ours classifies drifts and anomalies, removes the daily pattern and estimates the start;"
    " river's report only that a drift occurred"
)
RIVER = ("ADWIN", "Page-Hinkley", "KSWIN")
SHIFTS = ("2 %", "5 %", "10 %", "30 %", "ramp 3 d", "ramp 14 d")
NON_STATIONARY = {"weekends", "weekends, daily", "wander"}
PAGE_BYTES = 4096
STREAM_DAYS = 4
ROUNDS = 3
SERIES = 200
TRACED_SERIES = 10
WARM_UP_VALUES = 36

# Processes a value at a time in s, and returns the kinds of the findings.
Update = Callable[[float, float], list[str]]


def own_detector() -> Update:
    """Return the update function of a new detector of costprobe."""
    detector = Detector.new(DetectionConfig().detector)
    return lambda time_s, value: [finding.kind for finding in detector.update(time_s, value)]


def river_builder(name: str) -> Callable[[], Update]:
    """Return a builder of one of river's detectors."""

    def build() -> Update:
        from river import drift

        kinds = {
            "ADWIN": drift.ADWIN,
            "Page-Hinkley": drift.PageHinkley,
            "KSWIN": lambda: drift.KSWIN(seed=1),
        }
        detector = kinds[name]()

        def update(_: float, value: float) -> list[str]:
            detector.update(math.log(value))
            return ["drift"] if detector.drift_detected else []

        return update

    return build


def builders_of(*, only_own: bool) -> dict[str, Callable[[], Update]]:
    """Return the builders of all available detectors by name."""
    with_river = RIVER if find_spec("river") and not only_own else ()
    return {"costprobe": own_detector, **{name: river_builder(name) for name in with_river}}


def detect(stream: Stream) -> tuple[list[int], set[int]]:
    """Return the indices at which our detector reported drifts and anomalies."""
    update, drifts, anomalies = own_detector(), [], set()
    for index, (time_s, value) in enumerate(stream.points):
        for kind in update(time_s, value):
            if kind == "drift":
                drifts.append(index)
            else:
                anomalies.add(index)
    return drifts, anomalies


def run_stationary_job(seed: int) -> list[tuple[str, float, float, int, int, int]]:
    """Return the false drifts and the anomalies of one seed's stationary streams."""
    rng = random.Random(seed)
    rows: list[tuple[str, float, float, int, int, int]] = []
    for family, recipe in stationary_recipes(rng):
        stream = generate(recipe, rng)
        drifts, anomalies = detect(stream)
        spikes = {index for index in stream.spikes if index >= WARM_UP_VALUES}
        hits = len(spikes & anomalies)
        months = len(stream.points) / VALUES_PER_MONTH
        rows.append((family, len(drifts), months, len(spikes), hits, len(anomalies)))
    return rows


def run_shift_job(seed: int) -> list[tuple[str, int | None, int]]:
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


def median_text(delays: list[int | None]) -> str:
    """Format the median delay; missed shifts count as infinitely late."""
    median = statistics.median(math.inf if delay is None else delay for delay in delays)
    return "never" if median == math.inf else f"{median:g}"


def count_missed(delays: list[int | None]) -> int:
    """Return the number of shifts that were missed or detected too late."""
    return sum(delay is None or delay > MAX_DELAY_VALUES for delay in delays)


def print_table(*rows: Sequence[str]) -> None:
    """Print rows of cells, the first of them the head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    print("\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:], ""]))


def daily_stream(count: int) -> Stream:
    """Return about `count` values with a daily pattern."""
    return generate(Recipe(count / VALUES_PER_DAY, 0.01, 0.3, daily=0.05), random.Random(1))


def updates_per_s_of(build: Callable[[], Update], count: int) -> float:
    """Return updates per second of CPU time: the fastest round, which other load disturbed least."""
    stream = daily_stream(count)
    fastest_s = float("inf")
    for _ in range(ROUNDS):
        update = build()
        began_s = time.process_time()
        for time_s, value in stream.points:
            update(time_s, value)
        fastest_s = min(fastest_s, time.process_time() - began_s)
    return len(stream.points) / fastest_s


def memory_mb_of(build: Callable[[], Update]) -> float:
    """Return the memory of 1,000 detectors in MB, from a process that builds many and feeds them the same values.

    The growth of its resident memory, or the bytes that Python allocated if they are more: small objects fit
    into memory that the process already had.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()
    child = context.Process(target=_send_bytes_per_detector, args=(build, sender))
    child.start()
    sender.close()
    try:
        bytes_per_detector = float(receiver.recv())
    finally:
        child.join()
    return bytes_per_detector * 1000 / 1e6


def _send_bytes_per_detector(build: Callable[[], Update], sender: Connection) -> None:
    points = daily_stream(STREAM_DAYS * VALUES_PER_DAY).points
    _trained(build, points)  # excludes what is loaded or created only once
    gc.collect()
    before_bytes = _resident_bytes()
    detectors = [_trained(build, points) for _ in range(SERIES)]
    gc.collect()
    resident_bytes = (_resident_bytes() - before_bytes) / SERIES
    tracemalloc.start()
    detectors += [_trained(build, points) for _ in range(TRACED_SERIES)]
    gc.collect()
    traced_bytes = tracemalloc.get_traced_memory()[0] / TRACED_SERIES
    sender.send(max(resident_bytes, traced_bytes))
    del detectors


def _trained(build: Callable[[], Update], points: Sequence[tuple[float, float]]) -> Update:
    update = build()
    for time_s, value in points:
        update(time_s, value)
    return update


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES


def add_cost_rows(table: Table, *, only_own: bool) -> None:
    """Add the speed and the memory of the detectors, ours compared with each of river's."""
    builders = builders_of(only_own=only_own)
    speeds = {name: updates_per_s_of(build, SPEED_VALUES) for name, build in builders.items()}
    memory_mb = {name: memory_mb_of(build) for name, build in builders.items()}
    peers = [name for name in RIVER if name in builders]
    missing = "" if peers or only_own else "river is not installed: pip install river"
    own_speed, own_mb = speeds["costprobe"], memory_mb["costprobe"]
    compared: Sequence[str | None] = peers or [None]
    for name in compared:
        peer_name = f"river {name}" if name else ""
        table.row(
            "updates per second of one core, one series",
            own_speed,
            "/s",
            peer=speeds.get(name or ""),
            peer_name=peer_name,
            goal=f"≥ {UPDATES_PER_S_GOAL:,}",
            note=missing or COST_NOTE,
        )
        table.row(
            "memory of 1,000 series",
            own_mb,
            "MB",
            peer=memory_mb.get(name or ""),
            peer_name=peer_name,
            goal=f"≤ {MEMORY_MB_GOAL}",
            note=missing or f"resident, after {STREAM_DAYS} days of values each",
        )


class Measured(NamedTuple):
    """Results of all jobs.

    Attributes:
        stationary: False drifts, months, spikes, detected spikes and anomalies of each stream, by family.
        delays: Delay of each shift in values, by shift; None if missed.
        reports: Number of reports of each shift, by shift.
    """

    stationary: dict[str, list[tuple[float, ...]]]
    delays: dict[str, list[int | None]]
    reports: dict[str, list[int]]

    def false_drift_rate(self, *families: str) -> float:
        """Return the false drifts per series and month."""
        rows = [row for family in families for row in self.stationary[family]]
        return float(sum(row[0] for row in rows) / sum(row[1] for row in rows))

    @property
    def steady(self) -> list[str]:
        """The families whose level never changes."""
        return [family for family in self.stationary if family not in NON_STATIONARY]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--base-seed", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ours-only", action="store_true", help="without river")
    parser.add_argument("--cost", action="store_true", help="only speed and memory, about a minute")
    add_json(parser)
    options = parser.parse_args()
    table = Table()
    add_cost_rows(table, only_own=options.ours_only)
    if options.cost:
        sys.exit(finish(table, options.json))
    seeds = range(options.base_seed, options.base_seed + options.seeds)
    measured = Measured(defaultdict(list), defaultdict(list), defaultdict(list))
    with multiprocessing.Pool(options.jobs) as pool:
        for rows in pool.imap_unordered(run_stationary_job, seeds):
            for family, *numbers in rows:
                measured.stationary[family].append(tuple(numbers))
        for shifts in pool.imap_unordered(run_shift_job, range(3 * options.seeds)):
            for shift, delay, reports in shifts:
                measured.delays[shift].append(delay)
                measured.reports[shift].append(reports)
    print_accuracy(measured)
    add_goals(table, measured)
    sys.exit(finish(table, options.json))


def print_accuracy(measured: Measured) -> None:
    """Print the tables of false drifts and of delays."""
    rate = measured.false_drift_rate
    print("False drifts per series and month\n")
    print_table(
        ["family", "false drifts"],
        *([family, f"{rate(family):.3f}"] for family in measured.stationary),
        ["**all except weekends and wander**", f"**{rate(*measured.steady):.3f}**"],
    )
    print("Persistent shifts: median delay in values, missed (not within 3 days) of all, reports\n")

    def cells(shift: str) -> list[str]:
        delays = measured.delays[shift]
        is_ramp = "ramp" in shift
        missed = sum(delay is None for delay in delays) if is_ramp else count_missed(delays)
        mean_reports = statistics.fmean(measured.reports[shift])
        return [shift, median_text(delays), f"{missed} of {len(delays)}", f"{mean_reports:.1f}"]

    print_table(["shift", "delay", "missed", "reports"], *map(cells, SHIFTS))


def add_goals(table: Table, measured: Measured) -> None:
    """Add the accuracy with its goals."""
    delays, rate = measured.delays, measured.false_drift_rate
    rows = [row for of_family in measured.stationary.values() for row in of_family]
    spikes, hits, anomalies = (sum(row[column] for row in rows) for column in (2, 3, 4))
    for name, value, goal in (
        ("false drifts, all stationary", rate(*measured.steady), "≤ 0.05"),
        ("false drifts, worst family", max(map(rate, measured.steady)), "≤ 0.3"),
        ("false drifts, weekends and wander", max(map(rate, NON_STATIONARY)), "< 1"),
        *(
            (f"median delay, {shift}", float(median_text(delays[shift])), f"≤ {limit}")
            for shift, limit in zip(SHIFTS, (12, 4, 3, 3, 130, 480), strict=True)
        ),
        ("missed steps", sum(count_missed(delays[k]) for k in SHIFTS[:4]), "≤ 0"),
        ("anomaly recall", hits / spikes, "≥ 0.99"),
        ("anomaly precision", hits / anomalies, "≥ 0.99"),
        ("state in bytes", len(TypeAdapter(Detector).dump_json(trained_detector())), "≤ 32,768"),
    ):
        table.row(name, value, "", goal=goal)


def trained_detector() -> Detector:
    """Return a detector with 20 days of history."""
    detector = Detector.new(DetectionConfig().detector)
    stream = generate(Recipe(20, 0.01, daily=0.05), random.Random(3))
    for time_s, value in stream.points:
        detector.update(time_s, value)
    return detector


if __name__ == "__main__":
    main()
