"""Amounts of money: exact division into parts that add up to the amount, and their text.

The text is the same in commands, reports, alerts and events. `ui/dashboard/static/js/format.js` writes
amounts in the same way on the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Final

# Significant digits of an amount that was measured, and of one that was modelled.
MEASURED: Final = 3
MODELLED: Final = 2
# Series and JSON keys with this word in their names are costs of so many.
PER_THOUSAND: Final = 1000
_SIGNS: Final = {"USD": "$", "EUR": "€", "GBP": "£"}
# ISO 4217 gives these no minor unit.
_WITHOUT_CENTS: Final = frozenset(["CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND"])
# Numbers of units that a unit price may be written for, and the words for them.
SCALES: Final[Mapping[int, str]] = MappingProxyType({1: "", 1000: "1,000", 1_000_000: "million"})
_READABLE_MIN: Final = 0.1
# Fields of `cost` and `sweep` that are amounts for one inference or request.
_EACH: Final = frozenset(
    [
        "cost_per_inference",
        "cost_hardware",
        "cost_energy",
        "cost_reference",
        "cost_roofline",
        "cost_per_request",
        "rolling_1h",
        "rolling_1h_iqr",
        "rolling_24h",
        "rolling_24h_iqr",
        "rolling_7d",
        "rolling_7d_iqr",
    ]
)
_AMOUNTS: Final = frozenset(
    ["cost", "price_rate_per_h", "amount", "spent", "forecast", "forecast_low", "forecast_high"]
)
# Parts are multiples of this share of a currency's unit, or of the amount's last digit if finer.
FINEST_EXPONENT = -15
_FINEST: Final = Decimal((0, (1,), FINEST_EXPONENT))
# Adds without rounding, whatever the decimal context of the thread is.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def money(amount: float | Decimal, currency: str, digits: int = MEASURED) -> str:
    """Format an amount with significant digits, also those that are 0: "$0.00158", "12.3 CHF", "€1,230", "-$5.00".

    Args:
        amount: Currency units.
        currency: ISO 4217 code; empty if unknown.
        digits: MEASURED, or MODELLED for an estimate without an interval.
    """
    size = Decimal(f"{abs(amount):.{digits - 1}e}")
    text = f"{size:,.0f}" if size >= 10 ** (digits - 1) or not size else f"{size:f}"
    return _with_currency(text, amount, currency)


def cents(amount: float | Decimal, currency: str) -> str:
    """Format what people check against a bill, a plan or a price list: "$8,461.20", "$0.0707", "1,235 JPY".

    Args:
        amount: Currency units; a small one has three digits where these are finer than the minor unit.
        currency: ISO 4217 code; empty if unknown.
    """
    return _with_currency(_cents_digits(amount, currency), amount, currency)


def cents_of_parts(
    parts: Sequence[float | Decimal], total: float | Decimal, currency: str
) -> list[str]:
    """Format the parts of an amount with the digits that `cents` gives the amount, so that they add up to it as printed.

    The remainder of rounding is added to the parts with the largest rounding error, in order.

    Args:
        parts: Currency units; they add up to the total.
        total: Currency units.
        currency: ISO 4217 code; empty if unknown.
    """
    digits = _cents_digits(total, currency)
    places = len(digits.partition(".")[2])
    units = int(digits.replace(",", "").replace(".", "")) * (-1 if total < 0 else 1)
    shares = [Decimal(part).scaleb(places) for part in parts]
    counts = [math.floor(share) for share in shares]
    by_error = sorted(range(len(parts)), key=lambda i: (counts[i] - shares[i], i))
    for i in by_error[: max(0, units - sum(counts))]:
        counts[i] += 1
    amounts = [_units(count, -places) for count in counts]
    return [_with_currency(f"{abs(one):,.{places}f}", one, currency) for one in amounts]


def _cents_digits(amount: float | Decimal, currency: str) -> str:
    size = abs(Decimal(amount))
    has_cents = currency not in _WITHOUT_CENTS
    fine = _plain(float(f"{size:.{MEASURED}g}")) if size < (1 if has_cents else 100) else ""
    whole = f"{size:,.2f}" if has_cents else f"{size:,.0f}"
    return fine if len(fine) > len(whole) else whole


def _plain(size: float) -> str:
    return f"{Decimal(repr(size)):f}".removesuffix(".0")


def _with_currency(digits: str, amount: float | Decimal, currency: str) -> str:
    minus = "-" if amount < 0 else ""
    sign = _SIGNS.get(currency)
    return f"{minus}{sign}{digits}" if sign else f"{minus}{digits} {currency}".rstrip()


def price_scale(price: float) -> int:
    """Return the number of units, 1, 1,000 or a million, that a unit price is written for.

    The price then reads between 0.01 and 1,000, also after it changed by ten times. Choose it once for a
    series, from its first price, so that its scale stays the same.

    Args:
        price: Currency per unit.
    """
    return next((scale for scale in SCALES if abs(price) * scale >= _READABLE_MIN), 1_000_000)


def common_scale(prices: Iterable[float | None]) -> int:
    """Return the scale of unit prices in one table or plot: that of the lowest, so that none reads 0.00045.

    Args:
        prices: Currency per unit; None where unknown; 0 reads the same at every scale.
    """
    return price_scale(min((abs(price) for price in prices if price), default=0.0))


def unit_price(price: float, currency: str, scale: int, unit: str) -> str:
    """Format a unit price at a scale: "$0.245 per million inferences", "$0.42 per inference".

    Args:
        price: Currency per unit.
        currency: ISO 4217 code.
        scale: From `price_scale`.
        unit: The unit in the singular: "inference".
    """
    return f"{money(price * scale, currency)} per {scale_words(scale, unit)}"


def scale_words(scale: int, unit: str = "") -> str:
    """Return what a unit price at a scale is divided by: "1,000", "million requests", "request".

    Args:
        scale: From `price_scale`.
        unit: The unit in the singular; empty to leave it out, as far as the scale is not 1.
    """
    if scale == 1:
        return unit or "1"
    return f"{SCALES[scale]} {unit}s" if unit else SCALES[scale]


def per_words(scale: int) -> str:
    """Return what a unit price at a scale is for, where its unit is known: "each", "per 1,000"."""
    return "each" if scale == 1 else f"per {SCALES[scale]}"


def price_text(price: float, currency: str, scale: int | None = None) -> str:
    """Format a unit price where its unit is known: "$0.0398 per 1,000", "$0.42 each".

    Args:
        price: Currency per unit.
        currency: ISO 4217 code.
        scale: From `price_scale`; None to choose it by this price.
    """
    scale = scale or price_scale(price)
    return f"{money(price * scale, currency)} {per_words(scale)}"


def is_each(measurement: str, field: str) -> bool:
    """Return whether a field is an amount for one inference or request."""
    return measurement in ("cost", "sweep") and field in _EACH


def is_amount(measurement: str, field: str) -> bool:
    """Return whether a field is an amount of money."""
    return is_each(measurement, field) or field in _AMOUNTS or field.startswith("cost_")


def field_text(measurement: str, field: str, value: float, currency: str) -> str:
    """Format a value of the series: money with its currency, a cost of one at its scale.

    Args:
        measurement: A measurement of the series.
        field: One of its numeric fields.
        value: The value.
        currency: ISO 4217 code of the row; empty if it has none.
    """
    if is_each(measurement, field):
        return price_text(value, currency)
    if is_amount(measurement, field):
        return money(value, currency)
    return f"{value:,.6g}"


def exact(amount: float | Decimal) -> Decimal:
    """Return an amount as a decimal; a float by its shortest representation."""
    return amount if isinstance(amount, Decimal) else Decimal(repr(float(amount)))


def rounded(amount: Decimal) -> Decimal:
    """Return an amount as a multiple of the finest part."""
    return amount.quantize(_FINEST, context=_EXACT)


def divided(amount: Decimal, weights: Sequence[float | Fraction]) -> list[Decimal]:
    """Divide an amount by weights; the parts add up to it exactly.

    The remainder of rounding is added to the parts with the largest rounding error, in order.

    Args:
        amount: Finite.
        weights: Not negative, not all 0.

    Raises:
        ValueError: The amount or the weights are invalid.
    """
    ratios = [Fraction(weight) for weight in weights]
    total = sum(ratios, Fraction(0))
    if not amount.is_finite() or total <= 0 or min(ratios) < 0:
        raise ValueError("the amount must be finite, and weights not negative, nor all 0")
    exponent = min(FINEST_EXPONENT, int(amount.as_tuple().exponent))
    units = int(Fraction(amount) / Fraction(10) ** exponent)
    shares = [units * ratio / total for ratio in ratios]
    parts = [math.floor(share) for share in shares]
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
