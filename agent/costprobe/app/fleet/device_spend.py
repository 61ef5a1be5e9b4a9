"""What the devices of a fleet cost: sums over rows of `device` by group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from costprobe.adapters.fleet.question import PAIRED, WEIGHTED, Question
from costprobe.app.fleet.answers import FleetAnswers, Group

# Rounding of sums, as a share of them.
_ROUNDING: Final = 1e-9


class CurrencyCost(NamedTuple):
    """An amount in one currency.

    Attributes:
        currency: ISO 4217 code; empty without one.
        cost: Currency units.
        idle_share: Part of it that paid for idle time, 0 to 1; None if unknown.
    """

    currency: str
    cost: float
    idle_share: float | None


@dataclass(frozen=True, slots=True)
class FleetSpend:
    """What one group cost.

    Attributes:
        group: Values of the tags that the spend is divided by; empty for the total, and for the rest.
        costs: Amounts, the largest first.
        energy_j: Energy; None if unknown.
        carbon_g: Emissions in grams of CO2-equivalent; None if unknown.
        carbon_share: Share of the energy whose emissions are known; None if unknown.
        coverage: Share of the buckets of the period that have rows, over the series; None if unknown.
        series: Number of devices, of services on their hosts, or of tenants on theirs.
    """

    group: Group
    costs: tuple[CurrencyCost, ...]
    energy_j: float | None = None
    carbon_g: float | None = None
    carbon_share: float | None = None
    coverage: float | None = None
    series: int = 0


class DeviceSums(NamedTuple):
    """Sums over devices by group; those of money by group and currency."""

    cost: Mapping[Group, float]
    used: Mapping[Group, float]
    known: Mapping[Group, float]
    energy_j: Mapping[Group, float]
    carbon_g: Mapping[Group, float]
    carbon_energy_j: Mapping[Group, float]
    covered: Mapping[Group, float]
    devices: Mapping[Group, float]

    def spend(self, answers: FleetAnswers) -> list[FleetSpend]:
        """Return the spend of each group."""
        idle = _idle(self.used, self.known)
        return [
            FleetSpend(
                group=group,
                costs=costs,
                energy_j=self.energy_j.get(group),
                carbon_g=self.carbon_g.get(group),
                carbon_share=_share(self.carbon_energy_j.get(group), self.energy_j.get(group)),
                coverage=coverage_of(answers, self.covered.get(group), self.devices.get(group)),
                series=int(self.devices.get(group, 0)),
            )
            for group, costs in by_currency(self.cost, idle).items()
        ]

    def over(
        self,
        *kept: int,
        covered: Mapping[Group, float] | None = None,
        devices: Mapping[Group, float] | None = None,
    ) -> DeviceSums:
        """Return the sums over all tags but some, and the currency.

        Args:
            kept: Positions of the tags that are kept; none for the total.
            covered: The covered intervals of the new groups; None if no device is in several of the old ones.
            devices: The number of devices of the new groups; likewise.
        """
        money = (*kept, -1)
        return DeviceSums(
            cost=_added(self.cost, money),
            used=_added(self.used, money),
            known=_added(self.known, money),
            energy_j=_added(self.energy_j, kept),
            carbon_g=_added(self.carbon_g, kept),
            carbon_energy_j=_added(self.carbon_energy_j, kept),
            covered=_added(self.covered, kept) if covered is None else covered,
            devices=_added(self.devices, kept) if devices is None else devices,
        )


def _added(sums: Mapping[Group, float], kept: tuple[int, ...]) -> dict[Group, float]:
    """Add up over all tags but those at some positions."""
    found: dict[Group, list[float]] = defaultdict(list)
    for group, value in sums.items():
        found[tuple([group[position] for position in kept])].append(value)
    return {group: math.fsum(values) for group, values in found.items()}


def device_tags(by: str) -> Group:
    """Return the tags of rows of devices for a key of the command line."""
    return {"device": ("host", "device"), "gpu_model": ("model",)}.get(by, (by,))


def idle_shares(answers: FleetAnswers, money: Group) -> dict[Group, float]:
    """Return 1 minus the utilization of devices, weighted by cost; raises as `FleetAnswers.groups`.

    Args:
        answers: The database, and the period.
        money: Tags of the groups, with the currency.
    """
    return _idle(*_parted(answers.groups(_utilization(money))))


def _utilization(money: Group) -> Question:
    """Return the question for cost times utilization in percent, and for the cost of devices with a utilization."""
    return Question("device", "cost", "weighted", by=money, weight="util_pct")


def _parted(found: Mapping[Group, float]) -> Iterator[Mapping[Group, float]]:
    for part in (WEIGHTED, PAIRED):
        yield {group[:-1]: value for group, value in found.items() if group[-1] == part}


def _idle(used: Mapping[Group, float], known: Mapping[Group, float]) -> dict[Group, float]:
    return {
        group: min(1.0, max(0.0, 1 - used[group] / 100 / paid))
        for group, paid in known.items()
        if paid > 0 and group in used
    }


def device_sums(answers: FleetAnswers, tags: Group) -> DeviceSums:
    """Ask for the sums of all devices by some tags; raises as `FleetAnswers.groups`."""
    money = (*tags, "currency")
    utilized, cost, *others = answers.each(
        _utilization(money),
        Question("device", "cost", "sum", by=money),
        Question("device", "energy_j", "sum", by=tags),
        Question("device", "carbon_g", "sum", by=tags),
        Question("device", "carbon_energy_j", "sum", by=tags),
        *presence(tags),
    )
    return DeviceSums(cost, *_parted(utilized), *others)


def presence(tags: Group) -> tuple[Question, Question]:
    """Return the questions for the covered intervals, and the number, of the devices of each group."""
    return (
        Question("device", "cost", "covered", by=tags),
        Question("device", "cost", "count", "count", by=tags),
    )


def by_currency(
    cost: Mapping[Group, float], idle: Mapping[Group, float]
) -> dict[Group, tuple[CurrencyCost, ...]]:
    """Return the amounts of each group; the last value of the keys is the currency."""
    found: dict[Group, list[CurrencyCost]] = defaultdict(list)
    for key, amount in cost.items():
        found[key[:-1]].append(CurrencyCost(key[-1], amount, idle.get(key)))
    return {
        group: tuple(sorted(costs, key=lambda one: -one.cost)) for group, costs in found.items()
    }


def coverage_of(answers: FleetAnswers, covered: float | None, series: float | None) -> float | None:
    """Return the covered share of the intervals of some series; None without series."""
    if covered is None or not series:
        return None
    return min(1.0, covered / (series * answers.period.buckets))


def _share(part: float | None, whole: float | None) -> float | None:
    if not whole:
        return None
    share = (part or 0.0) / whole
    return share if share < 1 - _ROUNDING else 1.0
