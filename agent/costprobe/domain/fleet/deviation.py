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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from costprobe.domain.fleet.robust import spread_of, tail_degrees

# Fewer GPUs are no group of peers.
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
        hosts: Of each host with several GPUs.
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
    rest, levels = _without_levels(values)
    hosts = _by_host(rest)
    within = _spread_within(hosts)
    medians = {name: _center(members) for name, members in hosts.items()}
    among = spread_of(list(medians.values()), 0.0) ** 2 if len(medians) >= LEAST_PEERS else 0.0
    if within is None:
        # One GPU in each host: both variances are one.
        variance, between = max(spread_of([v.log_value for v in rest], 0.0), LEAST_SPREAD) ** 2, 0.0
    else:
        variance = within**2
        noise = sum(_median_variance(variance, len(one)) for one in hosts.values()) / len(hosts)
        between = max(0.0, among - noise)
    gpus = [_of_gpu(value, hosts[value.host], variance, between) for value in rest]
    several = [
        Deviation(name, "", medians[name], math.sqrt(between + own), 0.0)
        for name, members in hosts.items()
        if len(members) > 1
        for own in (_median_variance(variance, len(members)),)
    ]
    return PeerGroup(_with_degrees(gpus), _with_degrees(several), tuple(levels))


def _of_gpu(
    value: PeerValue, members: Sequence[PeerValue], variance: float, between: float
) -> Deviation:
    """Return the deviation of a GPU from what the other GPUs of its host, and all hosts, predict."""
    others = [one.log_value for one in members if one is not value]
    level, unknown = 0.0, between
    if others:
        noise = _median_variance(variance, len(others))
        host = median(others)
        is_far = abs(host) > FAR_HOST * math.sqrt(between + noise)
        weight = 1.0 if is_far else between / (between + noise)
        level = weight * host
        unknown = noise if is_far else (1 - weight) * between
    error = math.sqrt(variance + unknown)
    return Deviation(value.host, value.device, value.log_value - level, error, 0.0)


def _with_degrees(found: Sequence[Deviation]) -> tuple[Deviation, ...]:
    degrees = min(tail_degrees([one.score for one in found]), max(1.0, len(found) - 1.0))
    return tuple(replace(one, degrees=degrees) for one in found)


def _median_variance(variance: float, count: int) -> float:
    """Return the variance of the median of normal values: that of one, and π/2 of that of the mean of many."""
    return variance * (math.pi / 2) / (count + math.pi / 2 - 1)


def _spread_within(hosts: Mapping[str, Sequence[PeerValue]]) -> float | None:
    """Return the spread of GPUs in one host, from the differences of all pairs; None without pairs."""
    pairs = [
        a.log_value - b.log_value for members in hosts.values() for a, b in combinations(members, 2)
    ]
    return max(spread_of(pairs, 0.0) / math.sqrt(2), LEAST_SPREAD) if pairs else None


def _without_levels(values: Sequence[PeerValue]) -> tuple[list[PeerValue], list[LabelLevel]]:
    """Return the values without the levels of the group, the labels and the slots, and the levels of labels."""
    rest = _centered_values(values)
    removed: dict[tuple[int, str], float] = defaultdict(float)
    counts: dict[tuple[int, str], int] = {}
    for _ in range(ROUNDS):
        rest = _less(rest, [value.device for value in rest], _slot_levels(rest))
        for label in range(len(values[0].labels)):
            found, hosts = _label_levels(rest, label)
            rest = _less(rest, [value.labels[label] for value in rest], found)
            for name, level in found.items():
                removed[label, name] += level
                counts[label, name] = hosts[name]
        rest = _centered_values(rest)
    levels = [
        LabelLevel(label, name, level, counts[label, name])
        for (label, name), level in removed.items()
    ]
    return rest, levels


def _slot_levels(values: Sequence[PeerValue]) -> dict[str, float]:
    """Return the level of each slot within its hosts."""
    within: dict[str, list[float]] = defaultdict(list)
    for members in _by_host(values).values():
        if len(members) > 1:
            center = _center(members)
            for one in members:
                within[one.device].append(one.log_value - center)
    return _centered({name: median(v) for name, v in within.items() if len(v) >= LEAST_HOSTS})


def _label_levels(
    values: Sequence[PeerValue], label: int
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the level of each value of a label that enough hosts have, and the number of these hosts."""
    medians: dict[str, list[float]] = defaultdict(list)
    for members in _by_host(values).values():
        medians[members[0].labels[label]].append(_center(members))
    hosts = {name: len(v) for name, v in medians.items() if len(v) >= LEAST_HOSTS}
    return _centered({name: median(medians[name]) for name in hosts}), hosts


def _centered(levels: Mapping[str, float]) -> dict[str, float]:
    middle = median(levels.values()) if levels else 0.0
    return {name: level - middle for name, level in levels.items()}


def _centered_values(values: Sequence[PeerValue]) -> list[PeerValue]:
    return _less(values, [""] * len(values), {"": _center(values)})


def _less(
    values: Sequence[PeerValue], keys: Iterable[str], levels: Mapping[str, float]
) -> list[PeerValue]:
    """Return the values less the level of each one's key."""
    return [
        replace(value, log_value=value.log_value - levels.get(key, 0.0))
        for value, key in zip(values, keys, strict=True)
    ]


def _center(values: Iterable[PeerValue]) -> float:
    return median(value.log_value for value in values)


def _by_host(values: Iterable[PeerValue]) -> dict[str, list[PeerValue]]:
    hosts: dict[str, list[PeerValue]] = defaultdict(list)
    for value in values:
        hosts[value.host].append(value)
    return hosts
