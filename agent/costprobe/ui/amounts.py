"""Quantities as people read them: three digits, units with SI prefixes, and changes in percent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from costprobe.core.money import MEASURED, MODELLED
from costprobe.core.units import significant

_PREFIXES: Final = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
_HUNDRED: Final = 100
_UNCERTAIN: Final = 0.1
UNKNOWN: Final = "\N{EN DASH}"


def rounded(value: float, digits: int = MEASURED) -> float:
    """Round to significant digits."""
    return float(f"{value:.{digits}g}")


def si(value: float | None, unit: str, rel_err: float | None = None) -> str:
    """Format a quantity with a prefix: "402 nJ", "5.27 kW"; a dash if unknown.

    Args:
        value: The quantity.
        unit: Its unit.
        rel_err: Its uncertainty; from 10 % on it has two digits instead of three.
    """
    if value is None:
        return UNKNOWN
    if rel_err is not None and rel_err >= _UNCERTAIN:
        value = rounded(value, MODELLED)
    prefixed, (number,) = si_column([value], unit)
    return f"{number} {prefixed}"


def si_column(values: Sequence[float | None], unit: str) -> tuple[str, list[str]]:
    """Return the unit of a column, with the prefix of its largest value, and its cells: "mJ", ["402", "0.31", "-"]."""
    size = rounded(max((abs(value) for value in values if value is not None), default=0.0))
    power = math.floor(math.log10(size) / 3) if size else 0
    power = min(max(power, min(_PREFIXES)), max(_PREFIXES))
    cells = [
        "-" if value is None else significant(value / 1000**power, MEASURED) for value in values
    ]
    return f"{_PREFIXES[power]}{unit}", cells


def change(pct: float | None) -> str:
    """Format the size of a change in percent: "8.4 %", "120 %"; a dash if unknown."""
    if pct is None:
        return UNKNOWN
    size = abs(pct)
    return f"{size:,.{0 if size >= _HUNDRED else 1}f}".removesuffix(".0") + " %"
