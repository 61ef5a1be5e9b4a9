"""GPUs that deviate from their peers, and the effect of rollouts, on seeded fleets with a known truth.

    python bench/fleet_peers.py outliers [--seeds 20] [--first 1000] [--jobs 2]
    python bench/fleet_peers.py changes [--seeds 300] [--first 1000] [--jobs 2]

Goals: at most one false report in two fleets of 1,000 GPUs, except with heavy tails; the 95 % intervals of
rollouts contain the true effect in 93 % of the seeds or more, except where rows drift and the rollout goes
from row to row, unless hosts are compared within their row. For comparison a GPU is reported
whose modified z-score among all peers exceeds 3.5 (Iglewicz and Hoaglin, 1993), hosts, rows and lots regardless.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from costprobe.fleet.peers import LEAST_EFFECT, GpuLevel, outliers_of  # noqa: E402 - as above
from costprobe.fleet.updates import adoption_effect  # noqa: E402 - the path first
from peer_fleet import NAMES, FleetRecipe, fleet  # noqa: E402 - as above
from rollouts import BUCKETS_PER_DAY, RolloutRecipe, rollout  # noqa: E402 - as above

FALSE_GOAL = 0.5
COVERAGE_GOAL = 0.93
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
ROLLOUTS: Mapping[str, Mapping[str, Any]] = {
    "half of 100 hosts": {},
    "without effect": {"effect": 0.0},
    "effect varies by 2 points": {"varies": 0.02},
    "1 host changed": {"changed": 1},
    "2 hosts changed": {"changed": 2},
    "5 hosts changed": {"changed": 5},
    "95 of 100 hosts changed": {"changed": 95},
    "6 of 12 hosts changed": {"hosts": 12, "changed": 6},
    "noise with autocorrelation 0.9": {"phi": 0.9},
    "rows drift": {"drift": 0.002},
    "rows drift, rollout by row, all hosts compared": {"drift": 0.002, "by_row": True},
    "rows drift, rollout by row, --within row": {
        "drift": 0.002,
        "by_row": True,
        "matched": True,
    },
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


def rollout_score(recipe: RolloutRecipe) -> tuple[bool, bool, float, bool]:
    """Score a rollout.

    Returns:
        Whether the interval contains the true effect, whether it excludes 0, half of it, and whether the
        interval before the change contains 0.
    """
    units, truth = rollout(recipe)
    found = adoption_effect(units, BUCKETS_PER_DAY)
    before = adoption_effect(units, BUCKETS_PER_DAY, BUCKETS_PER_DAY + 1)
    if found is None or before is None:
        raise ValueError(f"{recipe}: nothing to compare with")
    return (
        abs(found.mean - truth) <= found.half_width,
        abs(found.mean) > found.half_width,
        found.half_width,
        abs(before.mean) <= before.half_width,
    )


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


def print_changes(
    scores_of: Callable[[Mapping[str, Any]], list[tuple[bool, bool, float, bool]]],
) -> bool:
    """Print the table of rollouts; return whether the goal is met."""
    names = ("rollout", "interval has the truth", "excludes 0", "±", "0 before the change")
    print("| " + " | ".join(names) + " |\n" + "| --- " * len(names) + "|")
    is_met = True
    for name, changes in ROLLOUTS.items():
        scores = scores_of(changes)
        covered, certain, half, before = zip(*scores, strict=True)
        is_met &= share(covered) >= COVERAGE_GOAL or "all hosts compared" in name
        width = f"{100 * fmean(half):.2f} %"
        figures = (percent(share(covered)), percent(share(certain)), width, percent(share(before)))
        print("| " + " | ".join((name, *figures)) + " |", flush=True)
    return is_met


def percent(value: float) -> str:
    """Return a share in percent; "-" for NaN."""
    return "-" if math.isnan(value) else f"{value * 100:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("outliers", "changes"))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    with multiprocessing.Pool(options.jobs) as pool:
        if options.what == "outliers":
            seeds = range(options.first, options.first + (options.seeds or 20))
            is_met = print_outliers(
                lambda changes: pool.map(
                    fleet_score, [FleetRecipe(seed=seed, **changes) for seed in seeds]
                )
            )
        else:
            seeds = range(options.first, options.first + (options.seeds or 300))
            is_met = print_changes(
                lambda changes: pool.map(
                    rollout_score, [RolloutRecipe(seed=seed, **changes) for seed in seeds]
                )
            )
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
