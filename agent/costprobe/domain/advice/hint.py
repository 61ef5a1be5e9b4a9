"""The result of an advisor: a hint with its evidence, or the reason for no hint."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Hint:
    """A change that would cost less.

    Attributes:
        kind: Key of its advisor.
        subject: The probe or device, such as "ranker on gpu0".
        devices: Names of the devices whose cost it reduces.
        action: What to do.
        saving_per_month: Currency per month of 730 h, from 0.01 up.
        currency: ISO 4217 code.
        evidence: What was measured.
        had: Amount of data behind the evidence.
        assumes: Conditions that cannot be measured.
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

    def document(self) -> dict[str, Any]:
        """Return the hint as JSON."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "devices": list(self.devices),
            "action": self.action,
            "saving_per_month": str(self.saving_per_month),
            "currency": self.currency,
            "evidence": list(self.evidence),
            "had": self.had,
            "assumes": list(self.assumes),
        }


@dataclass(frozen=True, slots=True)
class NoHint:
    """The reason why an advisor has no hint.

    Attributes:
        kind: Key of the advisor.
        subject: The probe or device it examined.
        reason: Why, as text.
        had: Amount of available data.
        needed: Data needed for a hint; empty if there was enough data but no saving.
    """

    kind: str
    subject: str
    reason: str
    had: str
    needed: str = ""


def in_cents(amount: Decimal) -> Decimal:
    """Round an amount to cents: more digits would exceed the precision of the measurements."""
    return amount.quantize(_CENT, ROUND_HALF_EVEN)
