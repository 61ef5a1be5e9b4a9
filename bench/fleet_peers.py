"""GPUs that deviate from their peers, on seeded fleets with a known truth.

    python bench/fleet_peers.py [--seeds 20] [--first 1000] [--jobs 2]

Goal: at most one false report in two fleets of 1,000 GPUs, except with heavy tails. For comparison a GPU is reported
whose modified z-score among all peers exceeds 3.5 (Iglewicz and Hoaglin, 1993), hosts, rows and lots regardless.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from costprobe.fleet.peers import LEAST_EFFECT, GpuLevel, outliers_of
from peer_fleet import NAMES, FleetRecipe, fleet

FALSE_GOAL = 0.5
LABELS = ("row", "lot")
Z_LIMIT = 3.5

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
        unlabelled: Number of sick ones that are reported without labels.
        plain: Number of sick ones, and of others, by the plain z-score.
    """

    sick: int
    found: int
    false: int
    covered: Sequence[bool]
    causes: Sequence[bool]
    unlabelled: int
    plain: tuple[int, int]


def fleet_score(recipe: FleetRecipe) -> FleetScore:
    """Score a fleet."""
    gpus, truth = fleet(recipe)
    reported = outliers_of(gpus, LABELS).outliers
    right = [one for one in reported if (one.host, one.device) in truth]
    causes = [truth[one.host, one.device] for one in right]
    unlabelled = {(one.host, one.device) for one in outliers_of(gpus).outliers}
    plain = plain_outliers(gpus)
    return FleetScore(
        len(truth),
        len(right),
        len(reported) - len(right),
        [one.time.low <= recipe.excess <= one.time.high for one in right if one.time],
        [
            one.explanation.name in NAMES.get(cause, (cause,))
            for one, cause in zip(right, causes, strict=True)
        ],
        len(unlabelled & truth.keys()),
        (len(plain & truth.keys()), len(plain - truth.keys())),
    )


def plain_outliers(gpus: Sequence[GpuLevel]) -> set[tuple[str, str]]:
    """Return the GPUs whose modified z-score of time or energy exceeds the limit, by 2 % at least."""
    found = set()
    for values in (
        [gpu.run.time_s for gpu in gpus],
        [gpu.run.energy_j or math.nan for gpu in gpus],
    ):
        logs = [math.log(value) for value in values]
        center = median(logs)
        spread = median(abs(one - center) for one in logs) / 0.6745
        for gpu, one in zip(gpus, logs, strict=True):
            if one - center > max(Z_LIMIT * spread, LEAST_EFFECT):
                found.add((gpu.host, gpu.device))
    return found


def share(flags: Iterable[bool]) -> float:
    """Return the share of true flags; NaN without any."""
    known = list(flags)
    return fmean(known) if known else math.nan


def print_outliers(scores_of: Callable[[Mapping[str, Any]], list[FleetScore]]) -> bool:
    """Print the table of fleets; return whether the goal is met."""
    heads = (
        "fleet",
        "found",
        "false, per fleet",
        "false of all reported",
        "interval has the truth",
        "cause right",
        "found without labels",
        "plain z-score: found",
        "false, per fleet",
    )
    print("| " + " | ".join(heads) + " |\n" + "| --- " * len(heads) + "|")
    is_met = True
    for name, changes in FLEETS.items():
        scores = scores_of(changes)
        sick, found = sum(one.sick for one in scores), sum(one.found for one in scores)
        false = sum(one.false for one in scores)
        share_false = fmean(one.false / max(1, one.found + one.false) for one in scores)
        is_met &= false / len(scores) <= FALSE_GOAL or "heavy" in name
        cells: tuple[str, ...] = (
            name,
            f"{found / sick:.0%} of {sick}" if sick else "-",
            f"{false / len(scores):.2f}",
            f"{share_false:.1%}",
            percent(share(flag for one in scores for flag in one.covered)),
            percent(share(flag for one in scores for flag in one.causes)),
            f"{sum(one.unlabelled for one in scores) / sick:.0%}" if sick else "-",
            f"{sum(one.plain[0] for one in scores) / sick:.0%}" if sick else "-",
            f"{sum(one.plain[1] for one in scores) / len(scores):.2f}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    return is_met


def percent(value: float) -> str:
    """Return a share in percent; "-" for NaN."""
    return "-" if math.isnan(value) else f"{value * 100:.1f} %"


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
