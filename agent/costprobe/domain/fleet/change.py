"""What a change of software did to cost, time and energy over all hosts that changed.

The cost of each bucket is split against the median factors of its own series by the log-mean index
(`costing.comparison.change`), which leaves no remainder. The estimator is linear, so that the effects of the
parts add up to that of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from costprobe.core.units import MONTH_H
from costprobe.domain.costing.comparison.change import (
    CostFactors,
    Factor,
    cost_terms,
    log_mean_parts,
)
from costprobe.domain.fleet.adoption import Effect, HostSeries, adoption_effect
from costprobe.domain.fleet.excess_cost import ExcessCost

# Parts below this everywhere are those of a price that did not change.
_NO_PART = 1e-9


@dataclass(frozen=True, slots=True)
class FactorSeries:
    """The cost factors of a probe on a host over time.

    Attributes:
        host: The host.
        kind: Only series of one kind are compared.
        factors: Of each bucket; None where unknown. Without prices, `price_per_s` is 0.
        adopted: Bucket in which the change fell; None if it did not change.
        others: Buckets with another change of software.
        is_priced: Whether the prices are known.
    """

    host: str
    kind: Hashable
    factors: Sequence[CostFactors | None]
    adopted: int | None = None
    others: frozenset[int] = frozenset()
    is_priced: bool = True


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """The effect of a change; each is a logarithm of the ratio with over without it.

    Attributes:
        time: On the time per inference.
        energy: On the energy per inference; None if it is unknown.
        cost: On the cost per inference; None without prices.
        parts: Parts of the effect on the cost, which add up to it; without factors that did not change.
        before: The same estimate of the time for the window before the change, which should be 0; None if the
            history is too short.
    """

    time: Effect
    energy: Effect | None
    cost: Effect | None
    parts: Mapping[Factor, Effect]
    before: Effect | None


def change_effect(series: Sequence[FactorSeries], window: int) -> ChangeEffect | None:
    """Return what a change did; None if no host that changed can be counted.

    Args:
        series: All series of the fleet, changed or not, of equal length.
        window: Buckets before and after a change that are compared.
    """
    times = [_unit(one, [_log_time(factors) for factors in one.factors]) for one in series]
    time = adoption_effect(times, window)
    if time is None:
        return None
    energies = [_unit(one, [_log_energy(factors) for factors in one.factors]) for one in series]
    priced = [(one, _parts(one.factors)) for one in series if one.is_priced]
    costs = [
        _unit(one, [None if found is None else math.fsum(found.values()) for found in parts])
        for one, parts in priced
    ]
    names = dict.fromkeys(name for _, parts in priced for found in parts if found for name in found)
    effects: dict[Factor, Effect] = {}
    for name in names:
        units = [
            _unit(one, [None if found is None else found[name] for found in parts])
            for one, parts in priced
        ]
        if any(abs(value) > _NO_PART for unit in units for value in unit.values if value):
            effect = adoption_effect(units, window)
            if effect is not None:
                effects[name] = effect
    return ChangeEffect(
        time,
        adoption_effect(energies, window),
        adoption_effect(costs, window),
        effects,
        adoption_effect(times, window, window + 1),
    )


def _unit(one: FactorSeries, values: Sequence[float | None]) -> HostSeries:
    return HostSeries(one.host, one.kind, values, one.adopted, one.others)


def _log_time(factors: CostFactors | None) -> float | None:
    return None if factors is None else math.log(factors.time_s)


def _log_energy(factors: CostFactors | None) -> float | None:
    return math.log(factors.energy_j) if factors and factors.energy_j > 0 else None


def _parts(factors: Sequence[CostFactors | None]) -> list[Mapping[Factor, float] | None]:
    """Return the parts of each bucket's cost over that of the median factors."""
    known = [one for one in factors if one is not None]
    if not known:
        return [None] * len(factors)
    base = CostFactors(
        median(one.price_per_s for one in known),
        median(one.time_s for one in known),
        median(one.electricity_per_j for one in known),
        median(one.energy_j for one in known),
    )
    if base.cost <= 0:
        return [None] * len(factors)
    terms = cost_terms(base)
    return [
        log_mean_parts(terms, cost_terms(one)) if one is not None and one.cost > 0 else None
        for one in factors
    ]


def monthly_change(busy_cost_per_h: float, effect: Effect, currency: str) -> ExcessCost:
    """Return what a change of the cost per inference costs a month, for the same inferences.

    Args:
        busy_cost_per_h: What the hosts that changed cost an hour now, times the utilization of their devices.
        effect: On the cost per inference.
        currency: ISO 4217 code.
    """
    month = busy_cost_per_h * MONTH_H

    def amount(log_ratio: float) -> float:
        # Without the change the same inferences would cost exp(-log_ratio) of it.
        return -month * math.expm1(-log_ratio)

    low, high = effect.mean - effect.half_width, effect.mean + effect.half_width
    return ExcessCost(amount(effect.mean), amount(low), amount(high), currency)
