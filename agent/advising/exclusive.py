"""Which hints exclude each other, so that no saving is counted twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from agent.advising.hint import Hint

Kinds = frozenset[str]

# Hints on the same device exclude each other, for they save the same money, but for these.
_ADD_UP: frozenset[Kinds] = frozenset({frozenset({"batch", "idle_hours"})})
_REASONS: Mapping[Kinds, str] = {
    frozenset({"reserved", "idle_hours"}): "a reservation is paid for in the hours off too",
    frozenset({"reserved", "batch"}): "the saving by the batch is at the price by the hour",
    frozenset({"reserved", "mig_slice"}): "the saving by the slice is at the price by the hour",
    frozenset({"reserved", "cpu"}): "without the device there is nothing to reserve",
    frozenset({"mig_slice", "idle_hours"}): "what is not held any more cannot be switched off",
    frozenset({"mig_slice", "batch"}): "a smaller part works at another pace",
    frozenset({"mig_slice", "cpu"}): "without the device there is nothing to divide",
    frozenset({"cpu", "batch"}): "both save on the same work",
    frozenset({"cpu", "idle_hours"}): "without the device there is nothing to switch off",
}
_SAME_KIND = "both count all of the device's work as theirs"


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


def excludes(one: Hint, other: Hint) -> str | None:
    """Why the savings of two hints do not add up; None where they do."""
    if not set(one.devices) & set(other.devices):
        return None
    kinds = frozenset({one.kind, other.kind})
    if kinds in _ADD_UP:
        return None
    return _SAME_KIND if len(kinds) == 1 else _REASONS.get(kinds, "both save the same money")


def exclusions(hints: Sequence[Hint]) -> list[dict[int, str]]:
    """For each hint the indexes of those that it excludes, and why."""
    return [
        {
            other: reason
            for other, hint in enumerate(hints)
            if other != index and (reason := excludes(hints[index], hint)) is not None
        }
        for index in range(len(hints))
    ]


def together(hints: Sequence[Hint]) -> list[Together]:
    """For each currency hints that do not exclude each other, the largest saving taken first.

    That need not be the largest sum: two smaller savings may exceed the one that excludes both.
    """
    found = []
    for currency in sorted({hint.currency for hint in hints}):
        taken: list[int] = []
        by_saving = sorted(range(len(hints)), key=lambda i: (-hints[i].saving_per_month, i))
        for index in by_saving:
            own = hints[index].currency == currency
            if own and not any(excludes(hints[index], hints[other]) for other in taken):
                taken.append(index)
        total = sum((hints[index].saving_per_month for index in taken), Decimal(0))
        found.append(Together(currency, total, tuple(taken)))
    return found
