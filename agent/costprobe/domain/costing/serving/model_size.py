"""The size of a model, as its name or the configuration states it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_NUMBER = r"(\d+(?:\.\d+)?)"
_EXPERTS = re.compile(rf"(?<![A-Za-z0-9.])(\d+)x{_NUMBER}b(?![A-Za-z0-9])", re.IGNORECASE)
_ACTIVE = re.compile(rf"(?<![A-Za-z0-9.])a{_NUMBER}b(?![A-Za-z0-9])", re.IGNORECASE)
_TOTAL = re.compile(rf"(?<![A-Za-z0-9.]){_NUMBER}([bm])(?![A-Za-z0-9])", re.IGNORECASE)
_MAX_SIZE_B: Final = 100_000.0
# Experts of a "8x7B" that a token uses.
_EXPERTS_USED: Final = 2


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Parameters of a model.

    Attributes:
        total_b: All of them, in billions.
        active_b: Those that a token uses, in billions; all of them unless it has experts.
    """

    total_b: float
    active_b: float


def size_of(text: str) -> ModelSize | None:
    """Return the size that a text states: "8B", "0.5B", "360M", "8x7B", "30B-A3B", or a model's name.

    None where it states none, or one that is no size of a model.
    """
    experts = _EXPERTS.search(text)
    if experts is not None:
        each_b = float(experts[2])
        count = float(experts[1])
        return _checked(count * each_b, min(count, _EXPERTS_USED) * each_b)
    total = _TOTAL.search(text)
    if total is None:
        return None
    total_b = float(total[1]) / (1000 if total[2] in "mM" else 1)
    active = _ACTIVE.search(text)
    return _checked(total_b, total_b if active is None else float(active[1]))


def _checked(total_b: float, active_b: float) -> ModelSize | None:
    return ModelSize(total_b, active_b) if 0 < active_b <= total_b <= _MAX_SIZE_B else None
