"""A change of production cost in words and in money: what it is due to, beside the probe as control."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from costprobe.core.money_text import price_scale, scale_words
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.domain.alerting.change_message import MoneyChange
from costprobe.domain.costing.comparison.production_change import (
    LEAST_PART,
    Part,
    ProductionChange,
)

# Smaller changes are not worth a word, in log units.
UNCHANGED: Final = 0.02
UNCHANGED_TRAFFIC: Final = 0.05
# A part below this share of the largest is not stated.
LEAST_SHARE: Final = 0.1

WORDS: Final[Mapping[Part, str]] = MappingProxyType(
    {
        "hardware price": "the hardware price",
        "electricity price": "the electricity price",
        "idle time": "idle time",
        "load": "the load of the devices",
        "speed": "speed",
        "busy power": "power while busy",
        "idle power": "power while idle",
        "mean power": "power",
        "models": "the mix of models",
        "input and output": "the mix of input and output",
        "cached input": "the cached share of the input",
        "request length": "the length of requests",
    }
)


def explanation(change: ProductionChange) -> str:
    """Return a sentence such as "probe unchanged, traffic 38 % lower: +52 % per token is idle time"."""
    circumstances = []
    if change.control is not None:
        circumstances.append(_moved("probe", change.control, UNCHANGED, ("faster", "slower")))
    circumstances.append(_moved("traffic", change.traffic, UNCHANGED_TRAFFIC, ("lower", "higher")))
    if abs(math.log(change.devices)) >= UNCHANGED_TRAFFIC:
        circumstances.append(f"{change.devices:.2g} times the devices")
    largest = max((abs(effect) for effect in change.parts.values()), default=0.0)
    stated = [
        (effect, WORDS[part])
        for part, effect in change.parts.items()
        if abs(effect) >= max(LEAST_SHARE * largest, UNCHANGED / 2)
    ]
    stated.sort(key=lambda item: -abs(item[0]))
    texts = [
        f"{math.expm1(effect) * 100:+.0f} % {f'per {change.unit} ' if not index else ''}is {words}"
        for index, (effect, words) in enumerate(stated)
    ]
    joined = ", ".join(texts) or f"the cost per {change.unit} is unchanged"
    return f"{', '.join(circumstances)}: {joined}"


def unit_of(change: ProductionChange) -> tuple[str, int]:
    """Return what people divide a cost by, and how many units that are; the same before and after."""
    scale = 1_000_000 if change.unit == "token" else price_scale(change.before)
    return scale_words(scale, change.unit), scale


def money_of(change: ProductionChange, parts: Collection[Part] | None = None) -> MoneyChange:
    """Return a change of production cost in money.

    Args:
        change: The change.
        parts: The only parts that count; None for all of the change.
    """
    each = change.after - change.before
    if parts is not None:
        is_flat = abs(change.log_ratio) < LEAST_PART
        # The logarithmic mean of both costs (LMDI): the parts' amounts add up to the change.
        mean = change.before if is_flat else each / change.log_ratio
        each = mean * math.fsum(change.parts.get(part, 0.0) for part in parts)
    unit, scale = unit_of(change)
    rate_per_s = change.rate_per_s
    return MoneyChange(
        amount=each * scale,
        unit=unit,
        currency=change.currency,
        per_month=None if rate_per_s is None else each * rate_per_s * MONTH_H * HOUR_S,
        rate_per_s=rate_per_s,
        counted=f"{change.unit}s",
    )


def _moved(name: str, ratio: float, least: float, words: tuple[str, str]) -> str:
    if abs(math.log(ratio)) < least:
        return f"{name} unchanged"
    return f"{name} {abs(ratio - 1) * 100:.0f} % {words[ratio > 1]}"
