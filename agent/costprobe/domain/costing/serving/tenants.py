"""Division of a service's cost among its tenants, in parts that add up to it exactly.

A tenant's share is its weighted tokens, divided by those of the service. A token weighs what it cost in
the same window: the service's cost of tokens in and out, divided by their numbers. What the tenants'
counters do not explain is unattributed; counters that exceed the service's are reduced in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from costprobe.core.serving_words import UNATTRIBUTED
from costprobe.domain.costing.money import divided, exact
from costprobe.domain.costing.serving.served import Counts, ServedWindow
from costprobe.domain.costing.serving.serving_basis import ServedCost

_KINDS: Final = ("tokens_in", "tokens_out", "requests")


@dataclass(frozen=True, slots=True)
class TenantCost:
    """One tenant's part of a service's cost.

    Attributes:
        tenant: Its name, "other" or "unattributed".
        cost: Currency.
        share: Its share of the service's cost.
        counts: Its tokens and requests as they were counted; of "unattributed" those that no
            tenant's counter explains.
    """

    tenant: str
    cost: Decimal
    share: Fraction
    counts: Counts


@dataclass(frozen=True, slots=True)
class TenantSplit:
    """The cost of a service in a window by tenant.

    Attributes:
        tenants: The parts, the largest first and "unattributed" last; they add up to the cost.
        counted_share: What the tenants' counters count, as a share of what the service counts;
            above 1 the parts are reduced in proportion. None if it cannot be known.
        problems: Reasons why the whole cost is unattributed.
    """

    tenants: tuple[TenantCost, ...]
    counted_share: Fraction | None
    problems: tuple[str, ...] = ()


def tenant_split(total: ServedCost, counted: ServedWindow) -> TenantSplit:
    """Divide a service's cost among its tenants.

    Args:
        total: Cost and counts of the service in a window.
        counted: Counts of the same window by tenant, in place of models.
    """
    problems = counted.problems or counted.missing
    if problems:
        return _unattributed(total, problems)
    tenants = {name: counts for name, counts in counted.models.items() if name}
    weights = _weights(total, tenants)
    if not weights and any(_nonzero(counts) for counts in tenants.values()):
        return _unattributed(
            total, ("the service counts none of what its tenants' counters count",)
        )
    shares = {name: _weighed(counts, weights) for name, counts in tenants.items()}
    counted_share = sum(shares.values(), Fraction(0))
    rest = max(Fraction(0), 1 - counted_share)
    shares[UNATTRIBUTED] = shares.get(UNATTRIBUTED, Fraction(0)) + rest
    whole = counted_share + rest
    names = sorted(shares, key=lambda name: (name == UNATTRIBUTED, -shares[name], name))
    parts = divided(total.cost, [shares[name] for name in names])
    named = {name: counts for name, counts in tenants.items() if name != UNATTRIBUTED}
    known = {**named, UNATTRIBUTED: _remaining(total.counts, named)}
    return TenantSplit(
        tuple(
            TenantCost(name, cost, shares[name] / whole, known[name])
            for name, cost in zip(names, parts, strict=True)
        ),
        counted_share if weights else None,
    )


def _unattributed(total: ServedCost, problems: tuple[str, ...]) -> TenantSplit:
    whole = TenantCost(UNATTRIBUTED, total.cost, Fraction(1), _remaining(total.counts, {}))
    return TenantSplit((whole,), None, problems)


def _weights(total: ServedCost, tenants: Mapping[str, Counts]) -> dict[str, Fraction]:
    """Return the share of the cost that one token, or one request, of each kind bears."""
    known = {
        kind
        for kind in _KINDS
        if getattr(total.counts, kind)
        and any(getattr(counts, kind) is not None for counts in tenants.values())
    }
    shares: dict[str, Fraction] = {}
    if total.tokens is not None:
        shares = {"tokens_in": total.tokens.tokens_in, "tokens_out": total.tokens.tokens_out}
    shares = {kind: share for kind, share in shares.items() if kind in known and share}
    if not shares and "requests" in known:
        shares = {"requests": Fraction(1)}
    whole = sum(shares.values(), Fraction(0))
    return {
        kind: share / whole / Fraction(exact(getattr(total.counts, kind)))
        for kind, share in shares.items()
    }


def _weighed(counts: Counts, weights: Mapping[str, Fraction]) -> Fraction:
    return sum(
        (
            weight * Fraction(exact(getattr(counts, kind) or 0.0))
            for kind, weight in weights.items()
        ),
        Fraction(0),
    )


def _nonzero(counts: Counts) -> bool:
    return any(getattr(counts, kind) for kind in _KINDS)


def _remaining(counts: Counts, tenants: Mapping[str, Counts]) -> Counts:
    """Return the service's counts without those of the tenants, never below 0."""
    left: dict[str, float] = {}
    for kind in _KINDS:
        whole = getattr(counts, kind)
        if whole is not None:
            attributed = sum(getattr(each, kind) or 0.0 for each in tenants.values())
            left[kind] = max(0.0, whole - attributed)
    return Counts(**left)
