"""GPUs that are slower or hungrier than their peers: the likely cause, and what it costs a month.

The deviation of each GPU is without the levels of its host, its slot and its labels. The
logarithm of a value is the sum of a level of the group, a level for each label (a rack, a lot),
one for the host, one for the slot (`gpu3` sits behind `gpu1` in the air), and the GPU's own.
Levels of labels and slots are medians in turn (median polish: Tukey, "Exploratory Data Analysis",
1977). The level of a host is predicted from its other GPUs and shrunk to the level of all hosts
by the ratio of the variances among hosts and among GPUs (a random effect: Robinson, "That BLUP is
a good thing", 1991). A host with one GPU has no others, and its GPU is compared with all hosts; a
host all of whose GPUs deviate is compared with the other hosts.

Of many deviations a bounded share of the reported ones is false, and intervals allow for the
selection. The excess of time and energy is known of each GPU, listed as an outlier or not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import combinations
from statistics import median, median_low
from types import MappingProxyType
from typing import Literal

from costprobe.core.statistics import spread_of, student_quantile, student_tail, tail_degrees
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.drift.before_after import Levels
from costprobe.drift.causes import UNKNOWN, Explanation, causes, explanation_of
from costprobe.drift.runs import DetectionRun, factors
from costprobe.unit_costs.change import CostFactors

# Fewer GPUs are no group of peers; of fewer hosts the spread among them is unknown.
LEAST_PEERS = 8
# A level of a label is known from so many hosts, that of a slot likewise.
LEAST_HOSTS = 5
ROUNDS = 3
# Readings are no finer.
LEAST_SPREAD = 0.002
# A host further from the others, in spreads, is an outlier itself: its GPUs are compared with each other.
FAR_HOST = 3.0

# Expected share of false ones among the reported.
FALSE_SHARE = 0.05
# Smallest deviation that is reported.
LEAST_EFFECT = 0.02

# Peers whose conditions are compared, the nearest first.
PEERS_COMPARED = 24

FleetMetric = Literal["time", "energy"]
_METRICS: Sequence[FleetMetric] = ("time", "energy")


@dataclass(frozen=True, slots=True)
class PeerValue:
    """A value of a GPU.

    Attributes:
        host: Its host.
        device: Its device id, which is its slot.
        log_value: Logarithm of the value.
        labels: The host's values of the labels whose levels are removed, in one order for all.
    """

    host: str
    device: str
    log_value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deviation:
    """How much more than its peers a GPU has, or the GPUs of a host.

    Attributes:
        host: The host.
        device: The device; empty for all of the host.
        log_excess: Logarithm of its value over what its peers would have in its place.
        error: Standard deviation of that for a healthy one.
        degrees: Degrees of freedom of its distribution.
        metric: What is compared.
        peers: What the peers share.
    """

    host: str
    device: str
    log_excess: float
    error: float
    degrees: float
    metric: FleetMetric = "time"
    peers: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """Return the excess in standard deviations."""
        return self.log_excess / self.error


@dataclass(frozen=True, slots=True)
class LabelLevel:
    """What the hosts with a value of a label have more than the others.

    Attributes:
        label: Number of the label.
        value: Its value.
        log_excess: Logarithm of the level over the median level.
        hosts: Number of hosts.
    """

    label: int
    value: str
    log_excess: float
    hosts: int


@dataclass(frozen=True, slots=True)
class Excess:
    """How much more than its peers, as a share: 0.05 for 5 % more.

    Attributes:
        mean: Estimate.
        low: Lower end of its interval.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class GpuLevel:
    """The level of a probe on a GPU over a period.

    Attributes:
        host: Its host.
        device: Its device id.
        peers: What peers share: GPU model, probe, batch, execution mode, software.
        run: Medians over the period as one run: time, energy, prices, and conditions of the device.
        runs: Number of runs.
        labels: The host's labels, such as its rack.
        busy_share: Share of the period in which the GPU worked; None if unknown.
    """

    host: str
    device: str
    peers: tuple[str, ...]
    run: DetectionRun
    runs: int
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class ExcessCost(Excess):
    """What an excess or a change costs in a month of 730 h, in currency; negative if it saves.

    Attributes:
        currency: ISO 4217 code.
    """

    currency: str


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
    tests: tuple[Deviation, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuExcess:
    """What a GPU needs more than its peers, as shares: 0.05 for 5 % more.

    Attributes:
        time: Time per inference; None if it was not compared.
        energy: Energy per inference; None if it was not compared.
        is_listed: Whether the GPU, or its host, is an outlier.
    """

    time: float | None
    energy: float | None
    is_listed: bool


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
    tests: list[Deviation] = []
    levels = []
    tested: set[tuple[str, str]] = set()
    for peers, members in groups.items():
        for metric in _METRICS:
            found = deviations_of(_values(members, metric, without))
            if found is not None:
                deviations, of_labels = found
                tests += [replace(one, metric=metric, peers=peers) for one in deviations]
                tested |= {(one.host, one.device) for one in deviations if one.device}
                levels += [(peers, level) for level in of_labels if metric == "time"]
    chosen = [tests[n] for n in discoveries(tests)]
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
    chosen: Sequence[Deviation],
    tested: int,
    groups: Mapping[tuple[str, ...], Sequence[GpuLevel]],
    with_details: Callable[[Sequence[GpuLevel]], Sequence[GpuLevel]],
) -> list[Outlier]:
    """Return an outlier for each GPU or host and group of peers."""
    found: dict[tuple[tuple[str, ...], str, str], dict[FleetMetric, Excess]] = defaultdict(dict)
    for one in chosen:
        excess = interval_of(one, len(chosen), tested)
        found[one.peers, one.host, one.device][one.metric] = excess
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
    metric: Literal["throughput", "energy"] = "throughput" if is_slower else "energy"
    levels = Levels(metric, nearest, runs, nearest, 1 if is_slower else 0)
    return explanation_of(causes(levels), levels)


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


def monthly_cost(
    own: Sequence[GpuLevel], time: Excess | None, energy: Excess | None
) -> ExcessCost | None:
    """Return what an excess costs a month: price rate times excess time, electricity times excess joules.

    An inference at the measured factors is compared with one at those of the peers, times the inferences of
    a month of 730 h at the GPU's present use. Excess that is not reported counts as 0.

    Args:
        own: Levels of the GPUs of an outlier.
        time: Reported excess of the time per inference.
        energy: Reported excess of the energy per inference.
    """
    currencies = {gpu.run.currency for gpu in own}
    if len(currencies) != 1 or not all(currencies):
        return None
    if any(gpu.run.price_per_s is None or gpu.busy_share is None for gpu in own):
        return None

    def total(end: Literal["mean", "low", "high"]) -> float:
        return math.fsum(
            _gpu_cost(gpu, *(0.0 if one is None else getattr(one, end) for one in (time, energy)))
            for gpu in own
        )

    return ExcessCost(total("mean"), total("low"), total("high"), *currencies)


def _gpu_cost(gpu: GpuLevel, time: float, energy: float) -> float:
    own = factors([gpu.run])
    peer = CostFactors(
        own.price_per_s,
        own.time_s / (1 + time),
        own.electricity_per_j,
        own.energy_j / (1 + energy),
    )
    rate_per_s = (gpu.busy_share or 0.0) / own.time_s
    return (own.cost - peer.cost) * rate_per_s * MONTH_H * HOUR_S


def gpu_excesses(found: FleetOutliers) -> Mapping[tuple[str, str], GpuExcess]:
    """Return the excess of each tested GPU, by host and device.

    A listed GPU has the excess that is listed. Of several probes on another GPU the largest deviation
    counts, whatever its sign. The GPUs of a host that is listed as a whole are compared with each other:
    the excess of their host is added.

    Args:
        found: The outliers, with all tests.
    """
    own: dict[tuple[str, str, FleetMetric], float] = {}
    for one in found.tests:
        key = (one.host, one.device, one.metric)
        if abs(one.log_excess) >= abs(own.get(key, 0.0)):
            own[key] = one.log_excess
    listed: dict[tuple[str, str, FleetMetric], float] = {
        (outlier.host, outlier.device, metric): math.log1p(excess.mean)
        for outlier in found.outliers
        for metric, excess in zip(_METRICS, (outlier.time, outlier.energy), strict=True)
        if excess is not None
    }
    outlying = {(outlier.host, outlier.device) for outlier in found.outliers}

    def share(host: str, device: str, metric: FleetMetric) -> float | None:
        value = listed.get((host, device, metric), own.get((host, device, metric)))
        of_host = listed.get((host, "", metric), 0.0)
        return None if value is None else math.expm1(value + of_host)

    return {
        (host, device): GpuExcess(
            share(host, device, "time"),
            share(host, device, "energy"),
            bool({(host, device), (host, "")} & outlying),
        )
        for host, device, _ in own
        if device
    }


def deviations_of(
    values: Sequence[PeerValue],
) -> tuple[list[Deviation], list[LabelLevel]] | None:
    """Return the deviations of GPUs from each other, and levels of labels, which they do not contain.

    After the GPUs come the hosts with several of them, in a group of at least LEAST_PEERS hosts.

    Args:
        values: One value of each GPU.

    Returns:
        None if they are too few.
    """
    if len(values) < LEAST_PEERS:
        return None
    members: dict[str, list[int]] = defaultdict(list)
    for number, value in enumerate(values):
        members[value.host].append(number)
    rest, levels = _without_levels(values, list(members.values()))
    hosts = {name: [rest[number] for number in numbers] for name, numbers in members.items()}
    within = _spread_within(hosts.values())
    medians = {name: median(found) for name, found in hosts.items()}
    is_many = len(medians) >= LEAST_PEERS
    among = spread_of(list(medians.values()), 0.0) ** 2 if is_many else 0.0
    if within is None:
        # One GPU in each host: both variances are one.
        variance, between = max(spread_of(rest, 0.0), LEAST_SPREAD) ** 2, 0.0
    else:
        variance = within**2
        noise = math.fsum(_median_variance(variance, len(one)) for one in hosts.values()) / len(
            hosts
        )
        between = max(0.0, among - noise)
    excesses = dict[int, tuple[float, float]]()
    for name, numbers in members.items():
        excesses.update(zip(numbers, _of_gpus(hosts[name], variance, between), strict=True))
    gpus = [(one.host, one.device, *excesses[number]) for number, one in enumerate(values)]
    # Of two GPUs the lower one: one that is sick does not make its host an outlier.
    several = [
        (name, "", median_low(found), math.sqrt(between + own))
        for name, found in hosts.items()
        if is_many and len(found) > 1
        for own in (_median_variance(variance, len(found)),)
    ]
    return _with_degrees(gpus) + _with_degrees(several), levels


def _of_gpus(
    found: Sequence[float], variance: float, between: float
) -> Iterator[tuple[float, float]]:
    """Yield the excess of each GPU of a host over what the others, and all hosts, predict, and its error."""
    for number, value in enumerate(found):
        others = [*found[:number], *found[number + 1 :]]
        level, unknown = 0.0, between
        if others:
            noise = _median_variance(variance, len(others))
            host = median(others)
            is_far = abs(host) > FAR_HOST * math.sqrt(between + noise)
            weight = 1.0 if is_far else between / (between + noise)
            level = weight * host
            unknown = noise if is_far else (1 - weight) * between
        yield value - level, math.sqrt(variance + unknown)


def _with_degrees(found: Sequence[tuple[str, str, float, float]]) -> list[Deviation]:
    degrees = min(
        tail_degrees([excess / error for *_, excess, error in found]), max(1.0, len(found) - 1.0)
    )
    return [Deviation(*one, degrees) for one in found]


def _median_variance(variance: float, count: int) -> float:
    """Return the variance of the median of normal values: that of one, and π/2 of that of the mean of many."""
    return variance * (math.pi / 2) / (count + math.pi / 2 - 1)


def _spread_within(hosts: Iterable[Sequence[float]]) -> float | None:
    """Return the spread of GPUs in one host, from the differences of all pairs; None without pairs."""
    pairs = [a - b for found in hosts for a, b in combinations(found, 2)]
    return max(spread_of(pairs, 0.0) / math.sqrt(2), LEAST_SPREAD) if pairs else None


def _without_levels(
    values: Sequence[PeerValue], hosts: Sequence[Sequence[int]]
) -> tuple[list[float], list[LabelLevel]]:
    """Return the logarithms without the levels of the group, the labels and the slots, and the levels of labels.

    Args:
        values: One value of each GPU.
        hosts: The numbers of the values of each host.
    """
    slots = [value.device for value in values]
    labels = list(zip(*(value.labels for value in values), strict=True))
    rest = _less_median([value.log_value for value in values])
    removed: dict[tuple[int, str], float] = defaultdict(float)
    counts: dict[tuple[int, str], int] = {}
    for _ in range(ROUNDS):
        rest = _less(rest, slots, _slot_levels(rest, slots, hosts))
        for label, names in enumerate(labels):
            found, known = _label_levels(rest, names, hosts)
            rest = _less(rest, names, found)
            for name, level in found.items():
                removed[label, name] += level
                counts[label, name] = known[name]
        rest = _less_median(rest)
    levels = [
        LabelLevel(label, name, level, counts[label, name])
        for (label, name), level in removed.items()
    ]
    return rest, levels


def _slot_levels(
    logs: Sequence[float], slots: Sequence[str], hosts: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Return the level of each slot within its hosts."""
    within: dict[str, list[float]] = defaultdict(list)
    for numbers in hosts:
        if len(numbers) > 1:
            center = median([logs[number] for number in numbers])
            for number in numbers:
                within[slots[number]].append(logs[number] - center)
    return _centered({name: median(v) for name, v in within.items() if len(v) >= LEAST_HOSTS})


def _label_levels(
    logs: Sequence[float], names: Sequence[str], hosts: Sequence[Sequence[int]]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the level of each value of a label that enough hosts have, and the number of these hosts."""
    medians: dict[str, list[float]] = defaultdict(list)
    for numbers in hosts:
        medians[names[numbers[0]]].append(median([logs[number] for number in numbers]))
    known = {name: len(v) for name, v in medians.items() if len(v) >= LEAST_HOSTS}
    return _centered({name: median(medians[name]) for name in known}), known


def _centered(levels: Mapping[str, float]) -> dict[str, float]:
    middle = median(levels.values()) if levels else 0.0
    return {name: level - middle for name, level in levels.items()}


def _less_median(logs: Sequence[float]) -> list[float]:
    center = median(logs)
    return [log_value - center for log_value in logs]


def _less(logs: Sequence[float], keys: Sequence[str], levels: Mapping[str, float]) -> list[float]:
    """Return the logarithms less the level of each one's key."""
    return [log_value - levels.get(key, 0.0) for log_value, key in zip(logs, keys, strict=True)]


def discoveries(tests: Sequence[Deviation]) -> list[int]:
    """Return which deviations are reported: at least 2 % more than peers, and at most 5 % of them false.

    Source: Benjamini and Hochberg, "Controlling the false discovery rate", 1995, which holds for these tests
    too, whose dependence within a host is weak (Storey et al. 2004). The p-values are two-sided, like the
    intervals; smaller deviations count as tested and are never reported.

    Args:
        tests: Every deviation that is tested, reported or not.

    Returns:
        Their indices, the smallest p-value first.
    """
    ranked = sorted(
        (2 * student_tail(one.score, one.degrees), n)
        for n, one in enumerate(tests)
        if math.expm1(one.log_excess) >= LEAST_EFFECT
    )
    allowed = FALSE_SHARE / max(1, len(tests))
    last = max((rank for rank, (p, _) in enumerate(ranked, 1) if p <= allowed * rank), default=0)
    return [n for _, n in ranked[:last]]


def interval_of(deviation: Deviation, reported: int, tested: int) -> Excess:
    """Return a reported deviation with an interval that allows for its selection.

    The largest of many are too large. With R of m reported, intervals at the level 1 - 0.05 R / m miss at
    most 5 % of the reported (Benjamini and Yekutieli, "False discovery rate-adjusted multiple confidence
    intervals", 2005). The spread of healthy GPUs is part of the interval.

    Args:
        deviation: The deviation.
        reported: Number of reported ones, at least 1.
        tested: Number of all.
    """
    missed = FALSE_SHARE * reported / tested
    half = student_quantile(1 - missed / 2, deviation.degrees) * deviation.error
    mean = deviation.log_excess
    return Excess(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))
