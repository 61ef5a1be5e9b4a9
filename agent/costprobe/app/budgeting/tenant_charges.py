"""Charges of a period divided among the tenants of their services, from the rows of `tenant`.

A charge's cost, idle cost and hours are divided by the tenants' cost of the service in the period, its
tokens by the tenants' tokens. What no row of a tenant explains is unattributed. Sums are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.budgeting.charges_by_period import PeriodCharge
from costprobe.core.serving_words import UNATTRIBUTED
from costprobe.domain.costing.budgets.periods import TimeSpan
from costprobe.domain.costing.money import divided, exact

# A service's cost and the sum of its tenants' differ by less than this share through rounding.
_ROUNDING: Final = Fraction(1, 10**9)


class _Served(NamedTuple):
    """A service in a period, in one currency."""

    step: int
    host: str
    service: str
    currency: str


_ByTenant = dict[str, Fraction]


def tenant_charges(
    charges: Sequence[PeriodCharge], reader: StoreReader, span: TimeSpan, step_ns: int
) -> Iterator[PeriodCharge]:
    """Iterate over charges, one for each tenant of a service that has tenants.

    Args:
        charges: The charges, by period, host, device and service.
        reader: The store.
        span: The exported time.
        step_ns: Length of a period, which starts at a multiple of it.
    """
    costs: dict[_Served, _ByTenant] = defaultdict(lambda: defaultdict(Fraction))
    tokens: dict[_Served, _ByTenant] = defaultdict(lambda: defaultdict(Fraction))
    for point in reader.points("tenant", span.start_ns, span.end_ns):
        tags = point.tags
        served = _Served(
            point.time_ns // step_ns, tags["host"], tags["service"], tags.get("currency", "")
        )
        costs[served][tags["tenant"]] += _number(point.fields.get("cost"))
        for name in ("tokens_in", "tokens_out"):
            tokens[served][tags["tenant"]] += _number(point.fields.get(name))
    whole_cost: dict[_Served, Fraction] = defaultdict(Fraction)
    whole_tokens: dict[_Served, Fraction] = defaultdict(Fraction)
    for charge in charges:
        whole_cost[_served(charge, step_ns)] += Fraction(charge.cost)
        whole_tokens[_served(charge, step_ns)] += Fraction(charge.tokens or 0)
    for charge in charges:
        served = _served(charge, step_ns)
        by_cost = _with_rest(costs.get(served, {}), whole_cost[served])
        by_tokens = _with_rest(tokens.get(served, {}), whole_tokens[served])
        yield from _parts(charge, by_cost, by_tokens)


def _served(charge: PeriodCharge, step_ns: int) -> _Served:
    return _Served(charge.span.start_ns // step_ns, charge.host, charge.service, charge.currency)


def _number(value: object) -> Fraction:
    return Fraction(exact(value)) if isinstance(value, float) else Fraction(0)


def _with_rest(parts: Mapping[str, Fraction], whole: Fraction) -> Mapping[str, Fraction]:
    """Return the parts with what they lack of the whole as unattributed; none where none is known."""
    rest = whole - sum(parts.values(), Fraction(0))
    if not parts or rest <= whole * _ROUNDING:
        return parts
    return {**parts, UNATTRIBUTED: parts.get(UNATTRIBUTED, Fraction(0)) + rest}


def _parts(
    charge: PeriodCharge, by_cost: Mapping[str, Fraction], by_tokens: Mapping[str, Fraction]
) -> Iterator[PeriodCharge]:
    """Divide a charge; one without tenants is returned as it is."""
    names = sorted(
        (name for name in by_cost if by_cost[name] > 0 or by_tokens.get(name)),
        key=lambda name: (name == UNATTRIBUTED, name),
    )
    shares = [by_cost[name] for name in names]
    if not any(shares) or charge.cost < 0:
        yield charge
        return

    counted = [by_tokens.get(name, Fraction(0)) for name in names]
    tokens: Sequence[Decimal | None] = [None] * len(names)
    if charge.tokens is not None:
        tokens = divided(charge.tokens, counted if any(counted) else shares)
    parts = zip(
        names,
        divided(charge.cost, shares),
        divided(charge.idle_cost, shares),
        divided(charge.device_hours, shares),
        tokens,
        strict=True,
    )
    for name, cost, idle_cost, hours, token_count in parts:
        yield replace(
            charge,
            tenant=name,
            cost=cost,
            idle_cost=idle_cost,
            device_hours=hours,
            tokens=token_count,
        )
