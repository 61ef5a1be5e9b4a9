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
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, NamedTuple

from cases import SCRIPTS, Physics, ScriptedHost, physics_of
from costprobe.drift.runs import DetectionRun
from costprobe.fleet.peers import LEAST_EFFECT, GpuLevel, outliers_of
from costprobe.fleet.updates import HostSeries, adoption_effect

PEERS = ("NVIDIA H100 80GB HBM3", "encoder", "batch 16")
# Scripts whose size is set so that the time per inference rises by the excess.
SCRIPTED = ("cooling", "thermal throttling", "power limit", "clock", "memory clock")
ROWS, LOTS = 10, 4
PRICE_PER_H, PER_KWH = 3.6, 0.2
CURRENCY = "EUR"
MOST_SCRIPTED = 1.5


@dataclass(frozen=True)
class FleetRecipe:
    """A fleet.

    Attributes:
        hosts: Number of hosts.
        gpus: GPUs of a host.
        sick: Share of the GPUs that are sick.
        excess: Excess of time (or, for one cause, of power) of a sick GPU, as a share.
        spread: Standard deviation of healthy GPUs among each other.
        host_spread: The same of hosts.
        row_spread: Half of the range of the levels of cooling rows.
        lot_spread: The same of lots.
        heavy: Whether the healthy GPUs follow Student's distribution with 5 degrees of freedom.
        sick_hosts: Number of hosts all of whose GPUs are sick.
        seed: Of the random numbers.
    """

    hosts: int = 125
    gpus: int = 8
    sick: float = 0.01
    excess: float = 0.05
    spread: float = 0.005
    host_spread: float = 0.005
    row_spread: float = 0.02
    lot_spread: float = 0.015
    heavy: bool = False
    sick_hosts: int = 0
    seed: int = 1


def _scaled(cause: str, device: Physics, excess: float) -> ScriptedHost:
    """Return a device whose time per inference a cause raises by an excess."""

    def changed(size: float) -> ScriptedHost:
        host = ScriptedHost()
        SCRIPTS[cause](host, size)
        return host

    low, high = 0.0, MOST_SCRIPTED
    for _ in range(30):
        middle = (low + high) / 2
        is_more = changed(middle).time_s(device) > ScriptedHost().time_s(device) * (1 + excess)
        low, high = (low, middle) if is_more else (middle, high)
    return changed(high)


def _neighbour(_: Physics, excess: float) -> ScriptedHost:
    return ScriptedHost(neighbour=1.0, slowdown=1 + excess)


def _lower_limit(device: Physics, excess: float) -> ScriptedHost:
    low, high = 0.2, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        host = ScriptedHost(power_limit=middle)
        is_more = host.time_s(device) > ScriptedHost().time_s(device) * (1 + excess)
        low, high = (middle, high) if is_more else (low, middle)
    return ScriptedHost(power_limit=low)


def _errors(_: Physics, excess: float) -> ScriptedHost:
    return ScriptedHost(ecc=7, slowdown=1 + excess)


def _unknown(_: Physics, excess: float) -> ScriptedHost:
    return ScriptedHost(slowdown=1 + excess)


def _hungry(_: Physics, excess: float) -> ScriptedHost:
    return ScriptedHost(power_factor=1 + excess)


CAUSES: Mapping[str, Callable[[Physics, float], ScriptedHost]] = {
    "neighbour": _neighbour,
    "lower power limit": _lower_limit,
    "memory errors": _errors,
    "unknown": _unknown,
    "hungry": _hungry,
}
# The names that are right for each, if not only its own.
NAMES: Mapping[str, tuple[str, ...]] = {
    # The excess of a few degrees is within the spread of healthy ones.
    "cooling": ("cooling", "thermal throttling"),
    "thermal throttling": ("thermal throttling", "cooling"),
    "lower power limit": ("power limit", "clock"),
    "hungry": ("unknown",),
}


def sick_gpu(cause: str, device: Physics, excess: float) -> ScriptedHost:
    """Return the state of a sick GPU."""
    make = CAUSES.get(cause)
    state = make(device, excess) if make else _scaled(cause, device, excess)
    if cause in SCRIPTED:
        # A device that hardly follows what the cause changes is slower for another reason beside it.
        wanted = ScriptedHost().time_s(device) * (1 + excess)
        state.slowdown *= wanted / state.time_s(device)
    return state


def fleet(recipe: FleetRecipe) -> tuple[list[GpuLevel], dict[tuple[str, str], str]]:
    """Return the levels of a fleet's GPUs, and the cause of each sick one by host and device.

    A host that is sick as a whole is under the device "".
    """
    rng = random.Random(recipe.seed)
    device = replace(physics_of(rng), clock_noise=0.002)
    rows = {f"row{n}": rng.uniform(-1, 1) for n in range(ROWS)}
    lots = {f"lot{n}": rng.uniform(-1, 1) for n in range(LOTS)}
    slots = [rng.uniform(-0.005, 0.005) for _ in range(recipe.gpus)]
    names = [*SCRIPTED, *CAUSES]
    places = [(host, slot) for host in range(recipe.hosts) for slot in range(recipe.gpus)]
    ill = rng.sample(places, round(recipe.sick * len(places)))
    causes = {place: names[n % len(names)] for n, place in enumerate(ill)}
    ill_hosts = rng.sample(range(recipe.hosts), recipe.sick_hosts)
    gpus = []
    for number in range(recipe.hosts):
        row = f"row{number * ROWS // recipe.hosts}"
        lot = f"lot{rng.randrange(LOTS)}"
        level = recipe.row_spread * rows[row] + recipe.lot_spread * lots[lot]
        level += rng.gauss(0, recipe.host_spread)
        for slot in range(recipe.gpus):
            cause = "cooling" if number in ill_hosts else causes.get((number, slot), "")
            state = sick_gpu(cause, device, recipe.excess) if cause else ScriptedHost()
            state.temp_c += 4 * rows[row] + slot / 2 + rng.gauss(0, 1)
            own = _spread(rng, recipe)
            run = _run(state, device, level + slots[slot] + own, rng)
            gpus.append(
                GpuLevel(
                    f"host{number:04}",
                    f"gpu{slot}",
                    PEERS,
                    run,
                    168,
                    {"row": row, "lot": lot},
                    0.6,
                )
            )
    truth = {(f"host{host:04}", f"gpu{slot}"): cause for (host, slot), cause in causes.items()}
    truth |= {(f"host{host:04}", ""): "cooling" for host in ill_hosts}
    return gpus, truth


def _spread(rng: random.Random, recipe: FleetRecipe) -> float:
    normal = rng.gauss(0, recipe.spread)
    if not recipe.heavy:
        return normal
    # Of the same variance: 5 degrees of freedom have one of 5/3.
    return normal * math.sqrt(5 / (2 * rng.gammavariate(2.5, 1))) / math.sqrt(5 / 3)


def _run(state: ScriptedHost, device: Physics, slower: float, rng: random.Random) -> DetectionRun:
    time_s = state.time_s(device) * math.exp(slower + rng.gauss(0, 0.001))
    # The power of a GPU does not follow what makes it slower than its peers by nature.
    power_w = state.power_w(device, state.temp_c) * math.exp(rng.gauss(0, 0.004))
    return DetectionRun(
        time_ns=0,
        batch=state.batch,
        time_s=time_s,
        energy_j=power_w * time_s,
        price_per_s=PRICE_PER_H / 3600,
        electricity_per_j=PER_KWH / 3.6e6,
        fingerprint="",
        currency=CURRENCY,
        device={
            "throughput_per_s": 1 / time_s,
            "latency_p50_ms": time_s * state.batch * 1000,
            "sm_clock_mhz": state.clock_mhz(device) * (1 + rng.gauss(0, device.clock_noise)),
            "mem_clock_mhz": float(state.memory_mhz()),
            "power_limit_w": float(state.power_limit_w(device)),
            "throttled_thermal_pct": 100 * state.throttled_thermal + abs(rng.gauss(0, 0.1)),
            "throttled_power_pct": 100 * state.power_throttled(device) + abs(rng.gauss(0, 0.1)),
            "temp_max_c": state.temp_c,
            "contended": state.neighbour,
            "ecc_uncorrected": state.ecc,
        },
    )


BUCKETS_PER_DAY = 4


@dataclass(frozen=True)
class RolloutRecipe:
    """A rollout.

    Attributes:
        hosts: Number of hosts.
        changed: Number of hosts that change, at different times.
        effect: Logarithm of the ratio with over without the update, on average.
        varies: Standard deviation of the effect from host to host.
        days: Length of the history.
        noise: Standard deviation of a bucket of a host.
        phi: Its autocorrelation from bucket to bucket.
        daily: Half of the range of the daily pattern that all hosts share.
        drift: Standard deviation of the step of a random walk of each cooling row, by bucket.
        by_row: Whether the rollout goes from row to row, so that a row changes at about one time.
        matched: Whether hosts are compared within their row.
        gaps: Share of the buckets without a value.
        seed: Of the random numbers.
    """

    hosts: int = 100
    changed: int = 50
    effect: float = 0.03
    varies: float = 0.0
    days: int = 14
    noise: float = 0.01
    phi: float = 0.6
    daily: float = 0.02
    drift: float = 0.0
    by_row: bool = False
    matched: bool = False
    gaps: float = 0.02
    seed: int = 1


def rollout(recipe: RolloutRecipe) -> tuple[list[HostSeries[float]], float]:
    """Return the series of the hosts, and the mean of the true effects of those that changed."""
    rng = random.Random(recipe.seed)
    buckets, rows = recipe.days * BUCKETS_PER_DAY, 10
    walks = []
    for _ in range(rows):
        level, walk = 0.0, []
        for _ in range(buckets):
            level += rng.gauss(0, recipe.drift)
            walk.append(level)
        walks.append(walk)
    order = sorted(range(recipe.hosts), key=lambda n: n % rows) if recipe.by_row else None
    chosen = order[: recipe.changed] if order else rng.sample(range(recipe.hosts), recipe.changed)
    first, last = 2 * BUCKETS_PER_DAY, buckets - 2 * BUCKETS_PER_DAY
    starts = {}
    for rank, host in enumerate(chosen):
        position = rank / max(1, len(chosen) - 1) if recipe.by_row else rng.random()
        starts[host] = first + int(position * (last - first - 1))
    units, effects = [], []
    innovation = recipe.noise * math.sqrt(1 - recipe.phi**2)
    for host in range(recipe.hosts):
        level, deviation = rng.gauss(-7, 0.2), rng.gauss(0, recipe.noise)
        effect, start = recipe.effect + rng.gauss(0, recipe.varies), starts.get(host)
        if start is not None:
            effects.append(effect)
        values: list[float | None] = []
        for bucket in range(buckets):
            deviation = recipe.phi * deviation + rng.gauss(0, innovation)
            value = level + deviation + walks[host % rows][bucket]
            value += recipe.daily * math.sin(2 * math.pi * bucket / BUCKETS_PER_DAY + 0.5)
            if start is not None and bucket >= start:
                value += effect
            values.append(None if rng.random() < recipe.gaps else value)
        kind = ("encoder", host % rows if recipe.matched else 0)
        units.append(HostSeries(f"host{host:04}", kind, values, start))
    return units, sum(effects) / len(effects)


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
