"""What a fleet cost in a period: money, energy, carbon and idle share, by any of its dimensions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from costprobe.adapters.fleet.question import Question
from costprobe.app.fleet.answers import FleetAnswers, Group
from costprobe.app.fleet.device_spend import (
    CurrencyCost,
    FleetSpend,
    by_currency,
    coverage_of,
    device_sums,
    device_tags,
    presence,
)
from costprobe.core.device_names import natural

if TYPE_CHECKING:
    from costprobe.core.serving_words import Part

_SERVING: Final = {"basis": "serving"}
_WHOLE: Final = {"basis": "serving", "served_model": ""}
# Parts of an allocation that are of no service.
_REMAINDERS: Final[tuple[Part, ...]] = ("probing", "unallocated")
# Rounding of sums, as a share of them.
_ROUNDING: Final = 1e-9


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
    if by and by not in _DIVIDED:
        tags = device_tags(by)
        sums = device_sums(answers, tags)
        # A device belongs to one host, but it may have had two models, or two values of a label.
        present = [None, None] if "host" in tags else answers.each(*presence(()))
        total = only(sums.over(covered=present[0], devices=present[1]).spend(answers))
        parts = sums.spend(answers)
        if any(part.group != ("",) for part in parts):
            return SpendByKey(total, largest_first(parts), None)
    else:
        total = only(device_sums(answers, ()).spend(answers))
    return divided_spend(answers, by, total) if by else SpendByKey(total, (), None)


def divided_spend(answers: FleetAnswers, by: str, total: FleetSpend) -> SpendByKey:
    """Return what services, models or tenants cost, and the rest of what the devices cost.

    Args:
        answers: The database, and the period.
        by: `model`, `service`, `tenant`, or a label of services.
        total: What the devices cost.

    Raises:
        DeliveryError: The database did not answer.
    """
    return with_rest(total, spend_parts(answers, by))


def spend_parts(answers: FleetAnswers, by: str) -> list[FleetSpend]:
    """Return what services, models or tenants cost; arguments and errors as of `divided_spend`."""
    divided = _DIVIDED.get(by)
    return _of_services(answers, by) if divided is None else divided(answers)


def with_rest(total: FleetSpend, parts: list[FleetSpend]) -> SpendByKey:
    """Return parts of what the devices cost, and the rest of it."""
    return SpendByKey(total, largest_first(parts), _rest(total, parts))


def only(found: list[FleetSpend]) -> FleetSpend:
    """Return the spend of the only group; that of nothing without one."""
    return found[0] if found else FleetSpend((), ())


def _of_services(answers: FleetAnswers, tag: str = "service") -> list[FleetSpend]:
    """Return what services were allocated, by their names or by one of their labels."""
    tags = (tag,)
    allocated, energy, covered, counted = answers.each(
        Question("allocation", "cost", "sum", by=(tag, "part", "currency"), present=tags),
        Question("cost", "energy_j", "sum", by=tags, where=_WHOLE),
        Question("cost", "cost_total", "covered", by=tags, where=_WHOLE),
        Question("cost", "cost_total", "count", "count", by=tags, where=_WHOLE),
    )
    cost: dict[Group, float] = defaultdict(float)
    idle: dict[Group, float] = defaultdict(float)
    unknown = set()
    for (name, part, currency), amount in allocated.items():
        if part in _REMAINDERS:
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
    return [
        FleetSpend(
            group=group,
            costs=costs,
            energy_j=energy.get(group),
            coverage=coverage_of(answers, covered.get(group), counted.get(group)),
            series=int(counted.get(group, 0)),
        )
        for group, costs in by_currency(cost, shares).items()
    ]


def _of_tenants(answers: FleetAnswers) -> list[FleetSpend]:
    tags = ("tenant",)
    cost, energy, counted = answers.each(
        Question("tenant", "cost", "sum", by=("tenant", "currency")),
        Question("tenant", "energy_j", "sum", by=tags),
        Question("tenant", "cost", "count", "count", by=tags),
    )
    return [
        FleetSpend(group, costs, energy_j=energy.get(group), series=int(counted.get(group, 0)))
        for group, costs in by_currency(cost, {}).items()
    ]


def _of_models(answers: FleetAnswers) -> list[FleetSpend]:
    """Return the cost of models; a service of one model has its name, as has cost of no model."""
    sums: dict[str, dict[Group, float]] = {}
    fields = ("cost_total", "cost_idle")
    found = answers.each(*(one for field in fields for one in served_sums(field)))
    for field, by_model, whole in zip(fields, found[::2], found[1::2], strict=True):
        amounts: dict[Group, float] = defaultdict(float)
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
        FleetSpend(group, costs) for group, costs in by_currency(sums["cost_total"], idle).items()
    ]


# What is divided otherwise than the devices.
_DIVIDED: Final[Mapping[str, Callable[[FleetAnswers], list[FleetSpend]]]] = {
    "service": _of_services,
    "tenant": _of_tenants,
    "model": _of_models,
}


def served_sums(field: str, dimension: Group = ()) -> tuple[Question, Question]:
    """Return the questions for a sum over models of services, and over the rows of whole services.

    Args:
        field: Of production's rows of `cost`.
        dimension: Tags of the groups beside service, model and currency.
    """
    model = "served_model"
    return (
        Question(
            "cost",
            field,
            "sum",
            by=("service", model, "currency", *dimension),
            where=_SERVING,
            present=(model,),
        ),
        Question("cost", field, "sum", by=("service", "currency", *dimension), where=_WHOLE),
    )


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


def largest_first(parts: Iterable[FleetSpend]) -> tuple[FleetSpend, ...]:
    """Order by the largest amount of any currency, then by name."""
    return tuple(
        sorted(parts, key=lambda part: (-max(one.cost for one in part.costs), natural(*part.group)))
    )
