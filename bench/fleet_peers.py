"""GPUs that deviate from their peers, on seeded fleets with a known truth.

    python bench/fleet_peers.py [--seeds 20] [--first 1000] [--jobs 2]

Goal: at most one false report in two fleets of 1,000 GPUs, except with heavy tails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from costprobe.fleet.peers import outliers_of
from peer_fleet import NAMES, FleetRecipe, fleet

FALSE_GOAL = 0.5
LABELS = ("row", "lot")

FLEETS: Mapping[str, Mapping[str, Any]] = {
    **{
        f"{spread:.1%} spread, {excess:.0%} excess"
        if excess
        else f"{spread:.1%} spread, healthy": {
            "spread": spread,
            "excess": excess,
            "sick": 0.01 if excess else 0.0,
        }
        for spread in (0.005, 0.01)
        for excess in (0.0, 0.03, 0.05, 0.1)
    },
    "1.0% heavy tails, healthy": {"spread": 0.01, "heavy": True, "sick": 0.0},
    "1.0% heavy tails, 10% excess": {"spread": 0.01, "heavy": True, "excess": 0.1},
    "0.5% spread, 5% excess, 2 sick hosts": {"sick_hosts": 2},
    "0.5% spread, 5% excess, 8% sick": {"sick": 0.08},
    "0.5% spread, 5% excess, 1 GPU a host": {"hosts": 1000, "gpus": 1},
}


class FleetScore(NamedTuple):
    """What was found in a fleet.

    Attributes:
        sick: Number of sick GPUs and hosts.
        found: Number of them that are reported.
        false: Number of others that are reported.
        covered: Whether each interval of a sick one's time contains the true excess.
        causes: Whether each sick one has the right cause.
    """

    sick: int
    found: int
    false: int
    covered: Sequence[bool]
    causes: Sequence[bool]


def fleet_score(recipe: FleetRecipe) -> FleetScore:
    """Score a fleet."""
    gpus, truth = fleet(recipe)
    reported = outliers_of(gpus, LABELS).outliers
    right = [(one, truth[key]) for one in reported if (key := (one.host, one.device)) in truth]
    return FleetScore(
        len(truth),
        len(right),
        len(reported) - len(right),
        [one.time.low <= recipe.excess <= one.time.high for one, _ in right if one.time],
        [one.explanation.name in NAMES.get(cause, (cause,)) for one, cause in right],
    )


def print_outliers(scores_of: Callable[[Mapping[str, Any]], list[FleetScore]]) -> bool:
    """Print the table of fleets; return whether the goal is met."""
    print(
        "| fleet | found | false, per fleet | false of all reported | interval has the truth",
        end="",
    )
    print(" | cause right |\n" + "| --- " * 6 + "|")
    is_met = True
    for name, changes in FLEETS.items():
        scores = scores_of(changes)
        sick, found, false = (sum(column) for column in list(zip(*scores, strict=True))[:3])
        is_met &= false / len(scores) <= FALSE_GOAL or "heavy" in name
        cells = (
            name,
            f"{found / sick:.0%} of {sick}" if sick else "-",
            f"{false / len(scores):.2f}",
            f"{fmean(one.false / max(1, one.found + one.false) for one in scores):.1%}",
            percent([flag for one in scores for flag in one.covered]),
            percent([flag for one in scores for flag in one.causes]),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return is_met


def percent(flags: Sequence[bool]) -> str:
    """Return the share of true flags in percent; "-" without any."""
    return f"{fmean(flags) * 100:.1f} %" if flags else "-"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    with multiprocessing.Pool(options.jobs) as pool:
        is_met = print_outliers(
            lambda changes: pool.map(
                fleet_score, [FleetRecipe(seed=seed, **changes) for seed in seeds]
            )
        )
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
