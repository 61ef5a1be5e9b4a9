"""The effect of a software update on cost, time and energy of a fleet: difference in differences.

Each unit that changed is compared, around its own change, with units that did not change until
the end of its window: their mean after less their mean before is what would have happened without
the change. Units that changed earlier are never a comparison, because their own effect would
count with the wrong sign (Goodman-Bacon, "Difference-in-differences with variation in treatment
timing", 2021; Callaway and Sant'Anna, "Difference-in-differences with multiple time periods",
2021, not-yet-treated comparison group). The effect is the mean over the hosts that changed.

The interval is from the influence of each host (cluster-robust: a host's values may be correlated
over time and over its units). Few changed hosts show too little of their own noise: below
`MANY_HOSTS` it is that of the hosts that did not change (Conley and Taber, "Inference with
difference in differences with a small number of policy changes", 2011); from there on the wider
of both intervals counts.

The cost of each bucket is split against the median factors of its own series by the log-mean
index (`costprobe.unit_costs.change`), which leaves no remainder. The estimator is linear, so that
the effects of the parts add up to that of the cost, which is also given for a month.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from costprobe.core.statistics import student_quantile
from costprobe.core.units import MONTH_H
from costprobe.fleet.peers import ExcessCost
from costprobe.unit_costs.change import CostFactors, Factor, cost_terms, log_mean_parts

# Fewer hosts that did not change are no comparison.
LEAST_CONTROLS = 3
MANY_HOSTS = 10
CONFIDENCE = 0.95
# Share of the buckets on each side of a change that must have values.
LEAST_KNOWN = 0.5

# Parts below this everywhere are those of a price that did not change.
_NO_PART = 1e-9


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class HostSeries(Generic[Value]):
    """A series of a host over time: one probe.

    Attributes:
        host: The host, whose units are correlated.
        kind: Only units of one kind are compared: the probe, the GPU model, and perhaps a cooling row.
        values: Logarithm, or cost factors, of each bucket of time; None where unknown. Without prices,
            `price_per_s` is 0.
        adopted: Bucket in which the change fell; None if it did not change.
        others: Buckets with another change of software.
        is_priced: Whether the prices are known.
    """

    host: str
    kind: Hashable
    values: Sequence[Value | None]
    adopted: int | None = None
    others: frozenset[int] = frozenset()
    is_priced: bool = True


@dataclass(frozen=True, slots=True)
class Effect:
    """A mean effect, as a logarithm of the ratio with over without the change.

    Attributes:
        mean: Estimate.
        half_width: Half of its 95 % interval.
        hosts: Number of hosts that changed and are counted.
        controls: Number of hosts that any of them is compared with.
        excluded: Number of hosts that changed and are not counted: too few values, another change of
            software nearby, or too few hosts to compare with.
    """

    mean: float
    half_width: float
    hosts: int
    controls: int
    excluded: int


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


def change_effect(series: Sequence[HostSeries[CostFactors]], window: int) -> ChangeEffect | None:
    """Return what a change did; None if no host that changed can be counted.

    Args:
        series: All series of the fleet, changed or not, of equal length.
        window: Buckets before and after a change that are compared.
    """
    times = [_unit(one, [math.log(f.time_s) if f else None for f in one.values]) for one in series]
    time = adoption_effect(times, window)
    if time is None:
        return None
    energies = [
        _unit(one, [math.log(f.energy_j) if f and f.energy_j > 0 else None for f in one.values])
        for one in series
    ]
    priced = [(one, _parts(one.values)) for one in series if one.is_priced]
    costs = [
        _unit(one, [math.fsum(found.values()) if found else None for found in parts])
        for one, parts in priced
    ]
    names = dict.fromkeys(name for _, parts in priced for found in parts if found for name in found)
    effects: dict[Factor, Effect] = {}
    for name in names:
        units = [
            _unit(one, [found[name] if found else None for found in parts]) for one, parts in priced
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


def _unit(one: HostSeries[CostFactors], values: Sequence[float | None]) -> HostSeries[float]:
    return HostSeries(one.host, one.kind, values, one.adopted, one.others)


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


def adoption_effect(
    units: Sequence[HostSeries[float]], window: int, shift: int = 0
) -> Effect | None:
    """Return the mean effect of a change over the hosts that took it; None without any that can be counted.

    Args:
        units: All series; every `values` has the same length.
        window: Buckets before and after the change that are compared; the bucket of the change is neither.
        shift: Buckets by which both windows are earlier than the change: with `window + 1` the change has
            no effect yet, and the answer shows whether both kinds of hosts moved alike before it.
    """
    adopters = {unit.host for unit in units if unit.adopted is not None}
    strata = _strata(units, window, shift)
    counts: dict[str, int] = defaultdict(int)
    for stratum in strata:
        for host, _ in stratum.changed:
            counts[host] += 1
    if not counts:
        return None
    weights = {host: 1 / count / len(counts) for host, count in counts.items()}
    mean = math.fsum(
        weights[host] * (value - stratum.common)
        for stratum in strata
        for host, value in stratum.changed
    )
    controls = {host for stratum in strata for host, _ in stratum.controls}
    half = _half_width(strata, weights, mean)
    return Effect(mean, half, len(counts), len(controls), len(adopters - counts.keys()))


@dataclass(frozen=True, slots=True)
class _Stratum:
    """Hosts that changed in one bucket, and those of the same kind that they are compared with.

    Attributes:
        changed: Host, and its mean after the change less that before.
        controls: The same of hosts that did not change.
        common: Mean difference of those that did not change.
    """

    changed: Sequence[tuple[str, float]]
    controls: Sequence[tuple[str, float]]
    common: float


def _strata(units: Sequence[HostSeries[float]], window: int, shift: int) -> list[_Stratum]:
    by_kind: dict[Hashable, list[HostSeries[float]]] = defaultdict(list)
    for unit in units:
        by_kind[unit.kind].append(unit)
    found = []
    for members in by_kind.values():
        for bucket in {unit.adopted for unit in members if unit.adopted is not None}:
            at = bucket - shift
            changed: list[tuple[str, float]] = []
            controls: list[tuple[str, float]] = []
            for unit in members:
                is_changed = unit.adopted == bucket
                first = unit.adopted
                if not is_changed and first is not None and first <= at + window:
                    continue
                if unit.others and any(abs(other - at) <= window for other in unit.others):
                    continue
                difference = _difference(unit.values, at, window)
                if difference is not None:
                    (changed if is_changed else controls).append((unit.host, difference))
            if changed and len({host for host, _ in controls}) >= LEAST_CONTROLS:
                common = math.fsum(one for _, one in controls) / len(controls)
                found.append(_Stratum(changed, controls, common))
    return found


def _difference(values: Sequence[float | None], at: int, window: int) -> float | None:
    """Return the mean of the window after a bucket less that of the one before; None if too few are known."""
    if at < window:
        return None
    least = max(1, math.ceil(LEAST_KNOWN * window))
    means = []
    for start in (at - window, at + 1):
        known = [value for value in values[start : start + window] if value is not None]
        if len(known) < least:
            return None
        means.append(math.fsum(known) / len(known))
    return means[1] - means[0]


def _half_width(strata: Sequence[_Stratum], weights: dict[str, float], mean: float) -> float:
    """Return half of the interval of the mean effect."""
    own: dict[str, float] = defaultdict(float)
    compared: dict[str, float] = defaultdict(float)
    noise = 0.0
    for stratum in strata:
        common = stratum.common
        share = math.fsum(weights[host] for host, _ in stratum.changed)
        for host, value in stratum.changed:
            own[host] += weights[host] * (value - common - mean)
        for host, value in stratum.controls:
            compared[host] -= share * (value - common) / len(stratum.controls)
        noise += share * _variance(stratum)
    few = noise / len(weights) + math.fsum(value * value for value in compared.values())
    half = _quantile(len(compared) - 1) * math.sqrt(few)
    if len(weights) < MANY_HOSTS:
        return half
    influence = [own.get(host, 0.0) + compared.get(host, 0.0) for host in {*own, *compared}]
    squares = math.fsum(value * value for value in influence)
    robust = squares * len(weights) / (len(weights) - 1)
    return max(half, _quantile(len(weights) - 1) * math.sqrt(robust))


def _variance(stratum: _Stratum) -> float:
    """Return the variance of the differences among the hosts that did not change."""
    hosts: dict[str, list[float]] = defaultdict(list)
    for host, value in stratum.controls:
        hosts[host].append(value)
    means = [math.fsum(one) / len(one) for one in hosts.values()]
    center = math.fsum(means) / len(means)
    return math.fsum((one - center) ** 2 for one in means) / (len(means) - 1)


def _quantile(degrees: float) -> float:
    return student_quantile((1 + CONFIDENCE) / 2, max(1.0, degrees))
