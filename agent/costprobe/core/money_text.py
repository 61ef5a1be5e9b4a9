"""Amounts of money as text, the same in commands, reports, alerts and events.

`ui/dashboard/static/js/format.js` writes them in the same way on the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Final

# The cost of one inference is written as that of so many.
PER_THOUSAND: Final = 1000
_SIGNS: Final = {"USD": "$", "EUR": "€", "GBP": "£"}


def money(amount: float | Decimal, currency: str) -> str:
    """Format an amount with four significant digits: "$0.00158", "12.34 CHF", "€1,235", "-$5".

    Args:
        amount: Currency units.
        currency: ISO 4217 code; empty if unknown.
    """
    digits = f"{abs(float(amount)):,.4g}"
    if "e" in digits:
        size = abs(float(amount))
        digits = f"{Decimal(digits):f}" if size < 1 else f"{size:,.0f}"
    minus = "-" if amount < 0 else ""
    sign = _SIGNS.get(currency)
    return f"{minus}{sign}{digits}" if sign else f"{minus}{digits} {currency}".rstrip()


def per_thousand(per_inference: float, currency: str) -> str:
    """Format the cost of one inference as that of 1,000: "$0.0398 per 1,000"."""
    return f"{money(per_inference * PER_THOUSAND, currency)} per 1,000"


# Numbers of units that a unit price may be written for, and the words for them.
SCALES: Final[Mapping[int, str]] = MappingProxyType({1: "", 1000: "1,000", 1_000_000: "million"})
_READABLE_MIN: Final = 0.1


def price_scale(price: float) -> int:
    """Return the number of units, 1, 1,000 or a million, that a unit price is written for.

    The price then reads between 0.01 and 1,000, also after it changed by ten times. Choose it once for a
    series, from its first price, so that its scale stays the same.

    Args:
        price: Currency per unit.
    """
    return next((scale for scale in SCALES if abs(price) * scale >= _READABLE_MIN), 1_000_000)


def unit_price(price: float, currency: str, scale: int, unit: str) -> str:
    """Format a unit price at a scale: "$0.245 per million inferences", "$0.42 per inference".

    Args:
        price: Currency per unit.
        currency: ISO 4217 code.
        scale: From `price_scale`.
        unit: The unit in the singular: "inference".
    """
    words = f"{SCALES[scale]} {unit}s" if scale > 1 else unit
    return f"{money(price * scale, currency)} per {words}"


# Fields of `cost` and `sweep` that are amounts for one inference or request.
_EACH: Final = frozenset(
    [
        "cost_per_inference",
        "cost_hardware",
        "cost_energy",
        "cost_reference",
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


def is_each(measurement: str, field: str) -> bool:
    """Return whether a field is an amount for one inference or request."""
    return measurement in ("cost", "sweep") and field in _EACH


def is_amount(measurement: str, field: str) -> bool:
    """Return whether a field is an amount of money."""
    return is_each(measurement, field) or field in _AMOUNTS or field.startswith("cost_")


def field_text(measurement: str, field: str, value: float, currency: str) -> str:
    """Format a value of the series: money with its currency, a cost of one as that of 1,000.

    Args:
        measurement: A measurement of the series.
        field: One of its numeric fields.
        value: The value.
        currency: ISO 4217 code of the row; empty if it has none.
    """
    if is_each(measurement, field):
        return per_thousand(value, currency)
    if is_amount(measurement, field):
        return money(value, currency)
    return f"{value:,.6g}"
