"""Exact division of an amount of money: the parts add up to it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction

# Parts are multiples of this share of a currency's unit, or of the amount's last digit if finer.
FINEST_EXPONENT = -15
# Adds without rounding, whatever the decimal context of the thread is.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def exact(amount: float | Decimal | Fraction) -> Decimal:
    """Return an amount as a decimal; a float by its shortest representation."""
    if isinstance(amount, Decimal):
        return amount
    if isinstance(amount, Fraction):
        return _units(round(amount * 10**-FINEST_EXPONENT), FINEST_EXPONENT)
    return Decimal(repr(float(amount)))


def divided(amount: Decimal, weights: Sequence[Fraction]) -> list[Decimal]:
    """Divide an amount by weights; the parts add up to it exactly.

    The remainder of rounding is added to the parts with the largest rounding error, in order.

    Args:
        amount: Not negative, finite.
        weights: Not negative, not all 0.

    Raises:
        ValueError: The amount or the weights are invalid.
    """
    total = sum(weights, Fraction(0))
    if not amount.is_finite() or amount < 0 or total <= 0 or min(weights) < 0:
        raise ValueError("amount and weights must not be negative, nor all weights 0")
    exponent = min(FINEST_EXPONENT, int(amount.as_tuple().exponent))
    units = int(Fraction(amount) / Fraction(10) ** exponent)
    shares = [units * weight / total for weight in weights]
    parts = [int(share) for share in shares]
    by_error = sorted(range(len(parts)), key=lambda i: (parts[i] - shares[i], i))
    for i in by_error[: units - sum(parts)]:
        parts[i] += 1
    return [_units(part, exponent) for part in parts]


def total_of(amounts: Sequence[Decimal]) -> Decimal:
    """Return the exact sum of amounts."""
    total = Decimal(0)
    for amount in amounts:
        total = _EXACT.add(total, amount)
    return total


def _units(count: int, exponent: int) -> Decimal:
    """Return a whole number of units, independent of the rounding of the decimal context."""
    return Decimal(f"{count}e{exponent}")
