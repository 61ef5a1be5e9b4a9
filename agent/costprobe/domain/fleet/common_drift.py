"""Drift that most hosts share: one workload on one GPU model costs more, or less, on most of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

# Fewer hosts are no fleet.
LEAST_HOSTS = 3
# More than this share of the hosts must have moved in one direction.
LEAST_SHARE = 0.5
# A drift ends below this share of the change at which it begins.
CLEAR_SHARE = 0.5


class DriftKey(NamedTuple):
    """What hosts with the same cost have in common.

    Attributes:
        workload: Name of the probe or service.
        model: GPU models of the host.
        currency: ISO 4217 code.
    """

    workload: str
    model: str
    currency: str


class HostCost(NamedTuple):
    """The cost per inference, or per token, of a workload on a host.

    Attributes:
        key: What is compared.
        host: The host.
        before: Usual cost; above 0.
        after: Present cost; above 0.
    """

    key: DriftKey
    host: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class CommonDrift:
    """A change of cost that most hosts share.

    Attributes:
        key: What changed.
        hosts: The hosts whose cost changed, by name.
        compared: Number of hosts with a cost before and after.
        change: Median change of the hosts that changed, as a share: 0.08 for 8 % more.
    """

    key: DriftKey
    hosts: tuple[str, ...]
    compared: int
    change: float


def common_drifts(
    costs: Sequence[HostCost], at_least: float, present: Collection[DriftKey] = ()
) -> list[CommonDrift]:
    """Return the drifts of a fleet, by key.

    Args:
        costs: One for each host and key.
        at_least: Least change of a host, as a share.
        present: Keys of drifts that have begun; they end below half of that change.
    """
    by_key: dict[DriftKey, list[HostCost]] = defaultdict(list)
    for cost in costs:
        by_key[cost.key].append(cost)
    drifts = []
    for key, members in sorted(by_key.items()):
        least = math.log1p(at_least) * (CLEAR_SHARE if key in present else 1)
        changes = {one.host: math.log(one.after / one.before) for one in members}
        up = {host: change for host, change in changes.items() if change >= least}
        down = {host: change for host, change in changes.items() if change <= -least}
        moved = max(up, down, key=len)
        if len(changes) >= LEAST_HOSTS and len(moved) > LEAST_SHARE * len(changes):
            change = math.expm1(median(moved.values()))
            drifts.append(CommonDrift(key, tuple(sorted(moved)), len(changes), change))
    return drifts
