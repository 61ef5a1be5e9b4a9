"""What a model costs now across a fleet, its change against a day and a week before, and its spread."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from costprobe.app.fleet.answers import FleetAnswers, hours_of
from costprobe.app.fleet.device_spend import FleetSpend
from costprobe.app.fleet.spend import divided_spend
from costprobe.app.fleet.unit_costs import FleetUnitCost, fleet_unit_costs
from costprobe.core.money_text import price_scale
from costprobe.domain.costing.serving.serving_change import DAY_NS, WEEK_NS

_MILLION: Final = 1_000_000
# In the order of preference, as on the page of a host: unit, and the number of units of the field.
_MEASURES: Final[tuple[tuple[Literal["token", "inference", "request"], str, int], ...]] = (
    ("token", "cost_per_million_tokens_out", _MILLION),
    ("inference", "cost_per_inference", 1),
    ("request", "cost_per_request", 1),
)
# What identifies a unit cost between periods: basis, model, currency.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class UnitChange:
    """The unit cost of a model in a period, and its change.

    Attributes:
        now: Its unit costs in the period.
        unit: What the cost is divided by.
        cost: Currency per unit.
        scale: Number of units that the cost is written for.
        change_24h_pct: Change against the same period a day before, in percent; None if unknown.
        change_7d_pct: The same against a week before.
        spread: Largest minus smallest cost of a host, as a share of the median; None for one host.
        cost_per_h: What the model costs an hour on all hosts; None for a probe.
    """

    now: FleetUnitCost
    unit: Literal["token", "inference", "request"]
    cost: float
    scale: int
    change_24h_pct: float | None
    change_7d_pct: float | None
    spread: float | None
    cost_per_h: float | None


def unit_changes(answers: FleetAnswers) -> list[UnitChange]:
    """Return the unit costs of all models, those that cost most first, then probes by their name.

    Args:
        answers: The database, and the period, such as the last hour.

    Raises:
        DeliveryError: The database did not answer.
    """
    period = answers.period
    earlier = [
        _by_key(
            answers.over(
                period._replace(
                    start_ns=period.start_ns - shift_ns, end_ns=period.end_ns - shift_ns
                )
            )
        )
        for shift_ns in (DAY_NS, WEEK_NS)
    ]
    hosts: dict[_Key, list[FleetUnitCost]] = defaultdict(list)
    for one in fleet_unit_costs(answers, "host"):
        hosts[_key(one)].append(one)
    paid = _paid_per_h(answers)
    found = []
    for key, one in _by_key(answers).items():
        measure = next((m for m in _MEASURES if getattr(one, m[1]) is not None), None)
        if measure is None:
            continue
        unit, field, units = measure
        cost = getattr(one, field) / units
        day, week = (getattr(then[key], field) if key in then else None for then in earlier)
        first = next((value / units for value in (week, day) if value), cost)
        found.append(
            UnitChange(
                now=one,
                unit=unit,
                cost=cost,
                scale=_MILLION if unit == "token" else price_scale(first),
                change_24h_pct=_change_pct(day, cost * units),
                change_7d_pct=_change_pct(week, cost * units),
                spread=_spread(hosts[key], field),
                cost_per_h=paid.get((one.model, one.currency)) if one.basis == "serving" else None,
            )
        )
    return sorted(found, key=lambda one: (-(one.cost_per_h or 0.0), one.now.basis, one.now.model))


def _key(one: FleetUnitCost) -> _Key:
    return one.basis, one.model, one.currency


def _by_key(answers: FleetAnswers) -> dict[_Key, FleetUnitCost]:
    return {_key(one): one for one in fleet_unit_costs(answers, "model")}


def _paid_per_h(answers: FleetAnswers) -> Mapping[tuple[str, str], float]:
    """Return what models cost an hour, by model and currency."""
    spend = divided_spend(answers, "model", FleetSpend((), ()))
    return {
        (part.group[0], one.currency): one.cost / hours_of(answers.period)
        for part in spend.parts
        for one in part.costs
    }


def _spread(hosts: list[FleetUnitCost], field: str) -> float | None:
    values = [value for one in hosts if (value := getattr(one, field)) is not None]
    middle = statistics.median(values) if values else 0.0
    return (max(values) - min(values)) / middle if len(values) > 1 and middle > 0 else None


def _change_pct(before: float | None, after: float) -> float | None:
    return (after / before - 1) * 100 if before else None
