"""Amounts as people read them: money with three digits, modelled money with two, and units with SI prefixes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from costprobe.core import money as exact_money

MEASURED: Final = 3
MODELLED: Final = 2
_PREFIXES: Final = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
_HUNDRED: Final = 100
UNKNOWN: Final = "\N{EN DASH}"


def money(amount: float | Decimal, currency: str, digits: int = MEASURED) -> str:
    """Format an amount with significant digits, also of a large one: "$0.00158", "$14,000".

    Args:
        amount: Currency units.
        currency: ISO 4217 code; empty if unknown.
        digits: MEASURED, or MODELLED for an estimate without an interval.
    """
    return exact_money.money(rounded(float(amount), digits), currency)


def rounded(value: float, digits: int = MEASURED) -> float:
    """Round to significant digits."""
    return float(f"{value:.{digits}g}")


def si(value: float | None, unit: str) -> str:
    """Format a quantity with three digits and a prefix: "402 nJ", "5.27 kW"; a dash if unknown."""
    if value is None:
        return UNKNOWN
    size = rounded(abs(value))
    power = math.floor(math.log10(size) / 3) if size else 0
    power = min(max(power, min(_PREFIXES)), max(_PREFIXES))
    return f"{value / 1000**power:,.{MEASURED}g} {_PREFIXES[power]}{unit}"


def change(pct: float | None) -> str:
    """Format the size of a change in percent: "8.4 %", "120 %"; a dash if unknown."""
    if pct is None:
        return UNKNOWN
    size = abs(pct)
    return f"{size:,.{0 if size >= _HUNDRED else 1}f}".removesuffix(".0") + " %"
