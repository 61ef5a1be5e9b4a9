"""GPUs that are slower or hungrier than their peers, with the likely cause and what it costs a month."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Literal

from costprobe.domain.detection.causes import UNKNOWN, Explanation, causes
from costprobe.domain.detection.conditions import Comparison
from costprobe.domain.detection.levels import Levels
from costprobe.domain.detection.runs import conditions
from costprobe.domain.detection.shares import explanation_of
from costprobe.domain.fleet.deviation import (
    Deviation,
    LabelLevel,
    PeerValue,
    deviations_of,
)
from costprobe.domain.fleet.discoveries import Excess, discoveries, interval_of
from costprobe.domain.fleet.excess_cost import ExcessCost, GpuLevel, monthly_cost

# Peers whose conditions are compared, the nearest first.
PEERS_COMPARED = 24

FleetMetric = Literal["time", "energy"]
_METRICS: Sequence[FleetMetric] = ("time", "energy")


@dataclass(frozen=True, slots=True)
class Outlier:
    """A GPU, or all GPUs of a host, that needs more time or energy than its peers.

    Attributes:
        host: The host.
        device: The device; empty for the whole host.
        peers: What it shares with its peers.
        peer_count: Number of GPUs that it was compared with.
        time: Excess time per inference; None if it is not reported.
        energy: Excess energy per inference; None if it is not reported.
        explanation: What differs from the peers.
        cost: What the excess costs a month at the present use; None without prices or without a
            known use.
        runs: Number of runs.
        probes: Peers' keys of the other probes of this GPU that deviate too.
    """

    host: str
    device: str
    peers: tuple[str, ...]
    peer_count: int
    time: Excess | None
    energy: Excess | None
    explanation: Explanation
    cost: ExcessCost | None
    runs: int
    probes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PeerTest:
    """The deviation of a GPU, or of all GPUs of a host, from its peers.

    Attributes:
        metric: What is compared.
        peers: What the peers share.
        deviation: The deviation.
    """

    metric: FleetMetric
    peers: tuple[str, ...]
    deviation: Deviation


@dataclass(frozen=True, slots=True)
class FleetOutliers:
    """The outliers of a fleet.

    Attributes:
        outliers: The most expensive first, then the largest excess.
        tested: Number of GPUs that have enough peers.
        untested: Number of GPUs that have not.
        updated: Number of GPUs whose software or model changed in the period, so that they have no one level.
        tests: The deviation of every GPU and host, listed or not.
        levels: Levels of the labels in the time per inference that are not counted as a deviation,
            by the peers' key.
    """

    outliers: tuple[Outlier, ...]
    tested: int
    untested: int
    levels: tuple[tuple[tuple[str, ...], LabelLevel], ...] = ()
    updated: int = 0
    tests: tuple[PeerTest, ...] = ()


def outliers_of(
    gpus: Sequence[GpuLevel],
    without: Sequence[str] = (),
    with_details: Callable[[Sequence[GpuLevel]], Sequence[GpuLevel]] = lambda gpus: gpus,
) -> FleetOutliers:
    """Return the GPUs that need more time or energy than their peers.

    All groups and both metrics are tested together, so that at most 5 % of all that is reported is false.

    Args:
        gpus: Levels of every probe on every GPU.
        without: Labels whose levels are removed, such as a cooling row or a lot.
        with_details: Adds prices and the conditions of the devices to the outliers and the peers that explain them,
            in the same order; called once, and only with outliers.
    """
    groups: dict[tuple[str, ...], list[GpuLevel]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu.peers].append(gpu)
    tests: list[PeerTest] = []
    levels = []
    tested: set[tuple[str, str]] = set()
    for peers, members in groups.items():
        for metric in _METRICS:
            found = deviations_of(_values(members, metric, without))
            if found is not None:
                tests += [PeerTest(metric, peers, one) for one in (*found.gpus, *found.hosts)]
                tested |= {(one.host, one.device) for one in found.gpus}
                levels += [(peers, level) for level in found.levels if metric == "time"]
    chosen = [tests[n] for n in discoveries([test.deviation for test in tests])]
    outliers = _joined(_outliers(chosen, len(tests), groups, with_details))
    every = {(gpu.host, gpu.device) for gpu in gpus}
    return FleetOutliers(
        tuple(sorted(outliers, key=_rank)),
        len(tested),
        len(every - tested),
        tuple(levels),
        tests=tuple(tests),
    )


def _values(
    members: Sequence[GpuLevel], metric: FleetMetric, without: Sequence[str]
) -> list[PeerValue]:
    return [
        PeerValue(
            gpu.host,
            gpu.device,
            math.log(value),
            tuple(gpu.labels.get(name, "") for name in without),
        )
        for gpu in members
        if (value := gpu.run.time_s if metric == "time" else gpu.run.energy_j)
    ]


def _outliers(
    chosen: Sequence[PeerTest],
    tested: int,
    groups: Mapping[tuple[str, ...], Sequence[GpuLevel]],
    with_details: Callable[[Sequence[GpuLevel]], Sequence[GpuLevel]],
) -> list[Outlier]:
    """Return an outlier for each GPU or host and group of peers."""
    found: dict[tuple[tuple[str, ...], str, str], dict[FleetMetric, Excess]] = defaultdict(dict)
    for test in chosen:
        one = test.deviation
        excess = interval_of(one, len(chosen), tested)
        found[test.peers, one.host, one.device][test.metric] = excess
    outlying = {(host, device) for _, host, device in found}
    asked = {peers for peers, _, _ in found}
    healthy = {peers: _healthy(groups[peers], outlying) for peers in asked}
    by_host = {peers: _by_host(groups[peers]) for peers in asked}
    own = {
        (peers, host, device): [gpu for gpu in by_host[peers][host] if device in ("", gpu.device)]
        for peers, host, device in found
    }
    nearest = {key: _nearest(gpus[0], healthy[key[0]]) for key, gpus in own.items()}
    needed = {_key(gpu): gpu for key in found for gpu in (*own[key], *nearest[key])}
    known = dict(zip(needed, with_details(list(needed.values())) if needed else (), strict=True))
    outliers = []
    for key, excesses in found.items():
        peers, host, device = key
        gpus, compared = ([known[_key(gpu)] for gpu in side[key]] for side in (own, nearest))
        outliers.append(
            Outlier(
                host,
                device,
                peers,
                len(groups[peers]) - len(gpus),
                excesses.get("time"),
                excesses.get("energy"),
                _explanation(gpus, compared, "time" in excesses),
                monthly_cost(gpus, excesses.get("time"), excesses.get("energy")),
                min(gpu.runs for gpu in gpus),
            )
        )
    return outliers


def _key(gpu: GpuLevel) -> tuple[str, str, tuple[str, ...]]:
    return gpu.host, gpu.device, gpu.peers


def _healthy(
    members: Sequence[GpuLevel], outlying: Container[tuple[str, str]]
) -> dict[str, list[GpuLevel]]:
    """Return the GPUs that are no outliers, by host."""
    return _by_host(
        gpu
        for gpu in sorted(members, key=lambda gpu: gpu.device)
        if (gpu.host, gpu.device) not in outlying and (gpu.host, "") not in outlying
    )


def _by_host(members: Iterable[GpuLevel]) -> dict[str, list[GpuLevel]]:
    hosts: dict[str, list[GpuLevel]] = defaultdict(list)
    for gpu in members:
        hosts[gpu.host].append(gpu)
    return hosts


def _nearest(own: GpuLevel, healthy: Mapping[str, Sequence[GpuLevel]]) -> list[GpuLevel]:
    """Return the peers whose conditions are compared: of the host, then of hosts with the most equal labels."""

    def distance(host: str) -> tuple[bool, int, str]:
        labels = healthy[host][0].labels
        different = sum(labels.get(name) != value for name, value in own.labels.items())
        return host != own.host, different, host

    hosts = nsmallest(PEERS_COMPARED, healthy, key=distance)
    return [gpu for host in hosts for gpu in healthy[host]][:PEERS_COMPARED]


def _explanation(
    own: Sequence[GpuLevel],
    peers: Sequence[GpuLevel],
    is_slower: bool,  # noqa: FBT001 - of each outlier
) -> Explanation:
    """Return the conditions in which an outlier differs from its nearest healthy peers.

    The same signals, least differences and effects explain a drift, where the runs before take the place of
    the peers.
    """
    if not peers:
        return Explanation(UNKNOWN)
    nearest, runs = [gpu.run for gpu in peers], [gpu.run for gpu in own]
    found = causes(Comparison(conditions(nearest, {}), conditions(runs, {}), 1 if is_slower else 0))
    metric: Literal["throughput", "energy"] = "throughput" if is_slower else "energy"
    return explanation_of(found, Levels(metric, nearest, runs, nearest))


def _joined(outliers: Sequence[Outlier]) -> list[Outlier]:
    """Return one outlier for each GPU: that of the probe with the largest excess, with the other probes."""
    by_gpu: dict[tuple[str, str], list[Outlier]] = defaultdict(list)
    for one in outliers:
        by_gpu[one.host, one.device].append(one)
    joined = []
    for found in by_gpu.values():
        first, *others = sorted(found, key=lambda one: (-largest(one), one.peers))
        joined.append(replace(first, probes=tuple(one.peers for one in others)))
    return joined


def largest(outlier: Outlier) -> float:
    """Return the larger excess of an outlier, as a share."""
    return max(one.mean for one in (outlier.time, outlier.energy) if one is not None)


def _rank(outlier: Outlier) -> tuple[float, float, str, str]:
    cost = outlier.cost.mean if outlier.cost else -math.inf
    return -cost, -largest(outlier), outlier.host, outlier.device
