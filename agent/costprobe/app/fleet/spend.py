"""What a fleet cost in a period: money, energy, carbon and idle share, by any of its dimensions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from costprobe.adapters.fleet.question import Question
from costprobe.app.fleet.answers import FleetAnswers, Group
from costprobe.app.overview.key_allocation import UNALLOCATED

_SERVING: Final = {"basis": "serving"}
_WHOLE: Final = {"basis": "serving", "served_model": ""}
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


class SpendByKey(NamedTuple):
    """The spend of a fleet.

    Attributes:
        total: What all devices cost.
        parts: The groups, the largest first.
        rest: What none of the groups cost; None where groups contain everything.
    """

    total: FleetSpend
    parts: tuple[FleetSpend, ...]
    rest: FleetSpend | None


def fleet_spend(answers: FleetAnswers, by: str) -> SpendByKey:
    """Return what a fleet cost.

    Args:
        answers: The database, and the period.
        by: `host`, `device`, `gpu_model`, `model`, `service`, `tenant`, or empty for the total only;
            else a label. A label of hosts divides the devices, one that only services have what these
            were allocated.

    Raises:
        DeliveryError: The database did not answer.
    """
    (total,) = _of_devices(answers, ()) or [FleetSpend((), ())]
    if not by:
        return SpendByKey(total, (), None)
    divided = _DIVIDED.get(by)
    if divided is None:
        parts = _of_devices(answers, _DEVICE_TAGS.get(by, (by,)))
        if any(part.group != ("",) for part in parts):
            return SpendByKey(total, _largest_first(parts), None)
        # A label that only services have.
        parts = _of_services(answers, by)
    else:
        parts = divided(answers)
    return SpendByKey(total, _largest_first(parts), _rest(total, parts))


_DEVICE_TAGS: Final[Mapping[str, Group]] = {"device": ("host", "device"), "gpu_model": ("model",)}


def _of_devices(answers: FleetAnswers, tags: Group) -> list[FleetSpend]:
    money = (*tags, "currency")
    cost = answers.groups(Question("device", "cost", "sum", by=money))
    weight = "util_pct"
    used = answers.groups(Question("device", "cost", "weighted", by=money, weight=weight))
    known = answers.groups(Question("device", "cost", "paired", by=money, weight=weight))
    idle = {
        group: min(1.0, max(0.0, 1 - used[group] / 100 / paid))
        for group, paid in known.items()
        if paid > 0 and group in used
    }
    energy = answers.groups(Question("device", "energy_j", "sum", by=tags))
    carbon = answers.groups(Question("device", "carbon_g", "sum", by=tags))
    metered = answers.groups(Question("device", "carbon_energy_j", "sum", by=tags))
    covered = answers.groups(Question("device", "cost", "covered", by=tags))
    devices = answers.groups(Question("device", "cost", "count", "count", by=tags))
    return [
        FleetSpend(
            group=group,
            costs=costs,
            energy_j=energy.get(group),
            carbon_g=carbon.get(group),
            carbon_share=_share(metered.get(group), energy.get(group)),
            coverage=_coverage(answers, covered.get(group), devices.get(group)),
            series=int(devices.get(group, 0)),
        )
        for group, costs in _by_currency(cost, idle).items()
    ]


def _of_services(answers: FleetAnswers, tag: str = "service") -> list[FleetSpend]:
    """Return what services were allocated, by their names or by one of their labels."""
    tags = (tag,)
    allocated = answers.groups(
        Question("allocation", "cost", "sum", by=(tag, "part", "currency"), present=tags)
    )
    cost: dict[Group, float] = defaultdict(float)
    idle: dict[Group, float] = defaultdict(float)
    unknown = set()
    for (name, part, currency), amount in allocated.items():
        if part in ("probing", UNALLOCATED):
            continue
        cost[name, currency] += amount
        idle[name, currency] += amount if part == "idle" else 0.0
        if part not in ("idle", "busy"):
            unknown.add((name, currency))
    shares = {
        group: idle[group] / amount
        for group, amount in cost.items()
        if amount > 0 and group not in unknown
    }
    energy = answers.groups(Question("cost", "energy_j", "sum", by=tags, where=_WHOLE))
    covered = answers.groups(Question("cost", "cost_total", "covered", by=tags, where=_WHOLE))
    counted = answers.groups(
        Question("cost", "cost_total", "count", "count", by=tags, where=_WHOLE)
    )
    return [
        FleetSpend(
            group=group,
            costs=costs,
            energy_j=energy.get(group),
            coverage=_coverage(answers, covered.get(group), counted.get(group)),
            series=int(counted.get(group, 0)),
        )
        for group, costs in _by_currency(cost, shares).items()
    ]


def _of_tenants(answers: FleetAnswers) -> list[FleetSpend]:
    tags = ("tenant",)
    cost = answers.groups(Question("tenant", "cost", "sum", by=("tenant", "currency")))
    energy = answers.groups(Question("tenant", "energy_j", "sum", by=tags))
    counted = answers.groups(Question("tenant", "cost", "count", "count", by=tags))
    return [
        FleetSpend(group, costs, energy_j=energy.get(group), series=int(counted.get(group, 0)))
        for group, costs in _by_currency(cost, {}).items()
    ]


def _of_models(answers: FleetAnswers) -> list[FleetSpend]:
    """Return the cost of models; a service of one model has its name, as has cost of no model."""
    sums: dict[str, dict[Group, float]] = {}
    for field in ("cost_total", "cost_idle"):
        amounts: dict[Group, float] = defaultdict(float)
        by_model = answers.groups(
            Question(
                "cost",
                field,
                "sum",
                by=("service", "served_model", "currency"),
                where=_SERVING,
                present=("served_model",),
            )
        )
        whole = answers.groups(
            Question("cost", field, "sum", by=("service", "currency"), where=_WHOLE)
        )
        left = dict(whole)
        for (service, model, currency), amount in by_model.items():
            amounts[model, currency] += amount
            left[service, currency] = left.get((service, currency), 0.0) - amount
        for (service, currency), amount in left.items():
            if amount > _ROUNDING * whole.get((service, currency), 0.0):
                amounts[service, currency] += amount
        sums[field] = amounts
    idle = {
        group: min(1.0, max(0.0, sums["cost_idle"][group] / amount))
        for group, amount in sums["cost_total"].items()
        if amount > 0 and group in sums["cost_idle"]
    }
    return [
        FleetSpend(group, costs) for group, costs in _by_currency(sums["cost_total"], idle).items()
    ]


# What is divided otherwise than the devices.
_DIVIDED: Final[Mapping[str, Callable[[FleetAnswers], list[FleetSpend]]]] = {
    "service": _of_services,
    "tenant": _of_tenants,
    "model": _of_models,
}


def _by_currency(
    cost: Mapping[Group, float], idle: Mapping[Group, float]
) -> dict[Group, tuple[CurrencyCost, ...]]:
    """Return the amounts of each group; the last value of the keys is the currency."""
    found: dict[Group, list[CurrencyCost]] = defaultdict(list)
    for key, amount in cost.items():
        found[key[:-1]].append(CurrencyCost(key[-1], amount, idle.get(key)))
    return {
        group: tuple(sorted(costs, key=lambda one: -one.cost)) for group, costs in found.items()
    }


def _rest(total: FleetSpend, parts: list[FleetSpend]) -> FleetSpend:
    """Return what the devices cost beside the groups: probing, and time of no service."""
    spent: dict[str, float] = defaultdict(float)
    for part in parts:
        for one in part.costs:
            spent[one.currency] += one.cost
    costs = (
        CurrencyCost(one.currency, max(0.0, one.cost - spent[one.currency]), None)
        for one in total.costs
    )
    return FleetSpend((), tuple(costs))


def _largest_first(parts: list[FleetSpend]) -> tuple[FleetSpend, ...]:
    """Order by the largest amount of any currency, then by name."""
    return tuple(sorted(parts, key=lambda part: (-max(one.cost for one in part.costs), part.group)))


def _coverage(answers: FleetAnswers, covered: float | None, series: float | None) -> float | None:
    if covered is None or not series:
        return None
    return min(1.0, covered / (series * answers.period.buckets))


def _share(part: float | None, whole: float | None) -> float | None:
    return min(1.0, (part or 0.0) / whole) if whole else None
