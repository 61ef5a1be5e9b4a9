"""What an advisor says: a hint with its evidence, or why it gives none."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Hint:
    """Something that would cost less.

    Attributes:
        kind: Key of the advisor that gives it.
        subject: What it is about, such as "ranker on gpu0".
        devices: Names of the devices whose money it saves.
        action: What to do.
        saving_per_month: Currency per month of 730 h, from 0.01 up.
        currency: ISO 4217 code.
        evidence: What was measured.
        had: How much data that is.
        assumes: What must be so besides, and cannot be measured.
    """

    kind: str
    subject: str
    devices: tuple[str, ...]
    action: str
    saving_per_month: Decimal
    currency: str
    evidence: tuple[str, ...]
    had: str
    assumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsaid:
    """Why there is no hint.

    Attributes:
        kind: Key of the advisor.
        subject: What it looked at.
        reason: Why, in words.
        had: How much data there was.
        needed: How much, or what, is needed for a hint; empty where there was enough of it and
            nothing is to be saved.
    """

    kind: str
    subject: str
    reason: str
    had: str
    needed: str = ""


def in_cents(amount: Decimal) -> Decimal:
    """An amount as hints name it: more digits than that nobody has measured."""
    return amount.quantize(_CENT, ROUND_HALF_EVEN)
