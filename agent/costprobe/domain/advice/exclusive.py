"""Which hints exclude each other, so that no saving is counted twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costprobe.domain.advice.hint import Hint

Kinds = frozenset[str]

# Hints on the same device save the same cost and so exclude each other, except these pairs.
_ADD_UP: frozenset[Kinds] = frozenset({frozenset({"batch", "idle_hours"})})
_REASONS: Mapping[Kinds, str] = {
    frozenset({"reserved", "idle_hours"}): "a reservation is also paid in the hours off",
    frozenset({"reserved", "batch"}): "the batch's saving assumes the hourly price",
    frozenset({"reserved", "mig_slice"}): "the slice's saving assumes the hourly price",
    frozenset({"reserved", "cpu"}): "the device is no longer needed",
    frozenset({"mig_slice", "idle_hours"}): "a released instance cannot be switched off",
    frozenset({"mig_slice", "batch"}): "a smaller instance has another throughput",
    frozenset({"mig_slice", "cpu"}): "the device is no longer needed",
    frozenset({"cpu", "batch"}): "both save on the same load",
    frozenset({"cpu", "idle_hours"}): "the device is no longer needed",
}
_SAME_KIND = "both assume all of the device's load"


@dataclass(frozen=True, slots=True)
class Together:
    """Hints whose savings add up.

    Attributes:
        currency: ISO 4217 code.
        saving_per_month: Their sum.
        hints: Their indexes.
    """

    currency: str
    saving_per_month: Decimal
    hints: tuple[int, ...]


def excludes(hint: Hint, other: Hint) -> str | None:
    """Return why the savings of two hints do not add up; None if they do."""
    if not set(hint.devices) & set(other.devices):
        return None
    kinds = frozenset({hint.kind, other.kind})
    if kinds in _ADD_UP:
        return None
    return _SAME_KIND if len(kinds) == 1 else _REASONS.get(kinds, "both save the same cost")


def exclusions(hints: Sequence[Hint]) -> list[dict[int, str]]:
    """Return for each hint the indexes of the hints that it excludes, and why."""
    return [
        {
            other: reason
            for other, hint in enumerate(hints)
            if other != index and (reason := excludes(hints[index], hint)) is not None
        }
        for index in range(len(hints))
    ]


def together(hints: Sequence[Hint]) -> list[Together]:
    """Select for each currency compatible hints, greedily by the largest saving.

    The sum is not always the largest possible: two smaller savings may exceed the one that
    excludes both.
    """
    pairs = []
    for currency in sorted({hint.currency for hint in hints}):
        chosen: list[int] = []
        by_saving = sorted(range(len(hints)), key=lambda i: (-hints[i].saving_per_month, i))
        for index in by_saving:
            is_in_currency = hints[index].currency == currency
            if is_in_currency and not any(excludes(hints[index], hints[other]) for other in chosen):
                chosen.append(index)
        total = sum((hints[index].saving_per_month for index in chosen), Decimal(0))
        pairs.append(Together(currency, total, tuple(chosen)))
    return pairs
