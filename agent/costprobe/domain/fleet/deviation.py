"""The deviation of each GPU from its peers, without the levels of its host, its slot and its labels.

The logarithm of a value is the sum of a level of the group, a level for each label (a rack, a lot), one for
the host, one for the slot (`gpu3` sits behind `gpu1` in the air), and the GPU's own. Levels of labels and
slots are medians in turn (median polish: Tukey, "Exploratory Data Analysis", 1977). The level of a host is
predicted from its other GPUs and shrunk to the level of all hosts by the ratio of the variances among
hosts and among GPUs (a random effect: Robinson, "That BLUP is a good thing", 1991). A host with one GPU
has no others, and its GPU is compared with all hosts; a host all of whose GPUs deviate is compared with the
other hosts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, median_low

from costprobe.domain.fleet.robust import spread_of, tail_degrees

# Fewer GPUs are no group of peers; of fewer hosts the spread among them is unknown.
LEAST_PEERS = 8
# A level of a label is known from so many hosts, that of a slot likewise.
LEAST_HOSTS = 5
ROUNDS = 3
# Readings are no finer.
LEAST_SPREAD = 0.002
# A host further from the others, in spreads, is an outlier itself: its GPUs are compared with each other.
FAR_HOST = 3.0


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
    """

    host: str
    device: str
    log_excess: float
    error: float
    degrees: float

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
class PeerGroup:
    """The deviations within a group of peers.

    Attributes:
        gpus: Of each GPU.
        hosts: Of each host with several GPUs, in a group of at least LEAST_PEERS hosts.
        levels: Levels of the labels, which the deviations do not contain.
    """

    gpus: tuple[Deviation, ...]
    hosts: tuple[Deviation, ...] = ()
    levels: tuple[LabelLevel, ...] = ()


def deviations_of(values: Sequence[PeerValue]) -> PeerGroup | None:
    """Return the deviations of GPUs from each other; None if they are too few.

    Args:
        values: One value of each GPU.
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
    return PeerGroup(_with_degrees(gpus), _with_degrees(several), tuple(levels))


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


def _with_degrees(found: Sequence[tuple[str, str, float, float]]) -> tuple[Deviation, ...]:
    degrees = min(
        tail_degrees([excess / error for *_, excess, error in found]), max(1.0, len(found) - 1.0)
    )
    return tuple(Deviation(*one, degrees) for one in found)


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
