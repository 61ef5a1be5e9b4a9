"""Detection of changes of production on seeded demand: false drifts and delays.

    python bench/production_drift.py [--seeds 60] [--base-seed 1] [--decoding] [--jobs 2]

Goals: at most 0.1 false drifts of efficiency per series and month; a lasting change by 10 % found
within 6 hours of windows. A change in the same hours as a launch that brings other requests is listed
apart: nobody can tell them apart before their device time is known.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections import defaultdict
from statistics import median
from typing import NamedTuple

import demand
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.production import LEAST_REQUESTS
from costprobe.drift.settings import DetectionConfig
from demand import DAY_S, START_S, WINDOW_S, DemandRecipe

SERVERS = ("additive", "batching", "always busy")
# Of servers whose engine counts the time of decode a third series is watched.
DECODING = "decoding"
EFFICIENCY = ("serving_time", "serving_energy", "serving_tpot")
FALSE_GOAL = 0.1
DELAY_GOAL_H = 6.0
# Requests of a window at the least traffic that is judged.
LEAST_PER_WINDOW = LEAST_REQUESTS * WINDOW_S / DetectionConfig().serving_window_s
SHIFTS = (1.1, 1 / 1.1, 1.35)


class Found(NamedTuple):
    """An event: its metric, hours after the start of the history, and size in percent."""

    metric: str
    hour: float
    change_pct: float


class ServiceResult(NamedTuple):
    """The changes found in a history, and the hours of windows that count until the right one."""

    recipe: DemandRecipe
    found: list[Found]
    hours: float
    delay_h: float

    @property
    def series(self) -> int:
        """Number of its series of efficiency."""
        return len(EFFICIENCY) - (self.recipe.server != DECODING)

    @property
    def is_separable(self) -> bool:
        """Whether no other requests began or ceased to arrive within the hours of the goal.

        Their device time is unknown: what is due to them and to the server cannot be told apart so soon.
        """
        from_s = self.recipe.slower_from_s
        changes_s = demand.request_changes_s(self.recipe)
        return not any(abs(at_s - from_s) < DELAY_GOAL_H * 3600 for at_s in changes_s)


def run(recipe: DemandRecipe) -> ServiceResult:
    """Return what the detectors of a service find in a history."""
    monitor = DriftMonitor(DetectionConfig(), lambda *_: [])
    found, windows, delay_h = [], 0, math.inf
    since_windows = 0
    for row in demand.rows(recipe):
        windows += 1
        time_s = row.time_ns / 1e9 - START_S
        is_counted = float(row.fields["requests"]) >= LEAST_PER_WINDOW
        since_windows += is_counted and time_s > recipe.slower_from_s
        for event in monitor.update([row]):
            change_pct = event.change_pct or 0.0
            found.append(Found(event.metric, time_s / 3600, change_pct))
            right = (change_pct > 0) == (recipe.slower > 1)
            if (
                event.metric in {"serving_time", "serving_tpot"}
                and time_s > recipe.slower_from_s
                and right
            ):
                delay_h = min(delay_h, since_windows * WINDOW_S / 3600)
    return ServiceResult(recipe, found, windows * WINDOW_S / 3600, delay_h)


def recipes(seeds: range, *, is_decoding: bool) -> list[DemandRecipe]:
    """Return histories without a change of efficiency, and with one."""
    made = []
    for seed in seeds:
        server, has_tokens = SERVERS[seed % 3], seed % 4 != 3
        if is_decoding:
            server, has_tokens = DECODING, True
        made.append(DemandRecipe(seed, server=server, has_tokens=has_tokens))
        factor = SHIFTS[seed // 3 % 3]
        at_s = 8 * DAY_S + (seed * 7919 % (12 * DAY_S))
        made.append(
            DemandRecipe(
                seed + 100_000, 24, server, has_tokens=has_tokens, slower_from_s=at_s, slower=factor
            )
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--base-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--decoding", action="store_true", help="servers that count its time")
    options = parser.parse_args()
    seeds = range(options.base_seed, options.base_seed + options.seeds)
    made = recipes(seeds, is_decoding=options.decoding)
    with multiprocessing.Pool(options.jobs) as pool:
        results = pool.map(run, made, chunksize=1)
    sys.exit(0 if print_results(results) else 1)


def print_results(results: list[ServiceResult]) -> bool:
    """Print the tables; return whether the goals are met."""
    print("Without a change of efficiency: events per series and month\n")
    print("| server | series-months | device time | energy | per output token | demand | mix |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rates = []
    servers = list(dict.fromkeys(result.recipe.server for result in results))
    for server in (*servers, "all"):
        own = [r for r in results if r.recipe.slower == 1 and server in (r.recipe.server, "all")]
        months = sum(result.hours for result in own) / 24 / 30 or 1.0
        monitored = sum(result.hours * result.series for result in own) / 24 / 30 or 1.0
        counts: dict[str, int] = defaultdict(int)
        for result in own:
            for found in result.found:
                counts[found.metric] += 1
        cells = " | ".join(
            f"{counts[metric] / months:.3f}" for metric in (*EFFICIENCY, "demand", "mix")
        )
        print(f"| {server} | {months:.0f} | {cells} |")
        rates.append(sum(counts[metric] for metric in EFFICIENCY) / monitored)
    print("\nA lasting change of efficiency: hours of windows until it is reported\n")
    print("| server | change | histories | median | within 6 h | not found |")
    print("| --- | --- | --- | --- | --- | --- |")
    late = total = 0
    confounded = [r for r in results if r.recipe.slower != 1 and not r.is_separable]
    for server in servers:
        for factor in sorted({r.recipe.slower for r in results} - {1.0}):
            own = [
                r
                for r in results
                if (r.recipe.server, r.recipe.slower) == (server, factor) and r.is_separable
            ]
            delays = [result.delay_h for result in own]
            if not delays:
                continue
            in_time = sum(delay <= DELAY_GOAL_H for delay in delays)
            late, total = late + len(delays) - in_time, total + len(delays)
            print(
                f"| {server} | {(factor - 1) * 100:+.0f} % | {len(delays)} | {median(delays):.1f}"
                f" | {in_time / len(delays) * 100:.0f} % | {sum(map(math.isinf, delays))} |"
            )
    quiet = [result for result in results if result.recipe.slower == 1]
    false = sum(found.metric in EFFICIENCY for result in quiet for found in result.found)
    months = sum(result.hours * result.series for result in quiet) / 24 / 30 or 1.0
    print(f"\nfalse drifts of efficiency {rates[-1]:.3f} per series and month (goal {FALSE_GOAL}):")
    services = sum(any(f.metric in EFFICIENCY for f in result.found) for result in quiet)
    print(f"{false} (of {services} services) in {months:.0f} series-months;")
    print(f"{total - late} of {total} changes found within {DELAY_GOAL_H:.0f} h")
    in_time = sum(r.delay_h <= DELAY_GOAL_H for r in confounded)
    at_all = sum(r.delay_h < math.inf for r in confounded)
    print(
        f"not counted: {len(confounded)} in the same hours as a launch with other requests,"
        f" {in_time} of them found within {DELAY_GOAL_H:.0f} h, {at_all} at all"
    )
    return rates[-1] <= FALSE_GOAL and late == 0


if __name__ == "__main__":
    main()
