"""Decomposition of a cost change into price, time and energy, without a remainder.

A cost per inference is C = r t + p e: price rate times time, electricity price (PUE included)
times energy. Source: Ang, "Decomposition analysis for policymaking in energy" (2004), the
logarithmic mean Divisia index, LMDI-I: ln(C1/C0) is the sum over the factors x of
w ln(x1/x0), with w = L(term1, term0) / L(C1, C0) and L the logarithmic mean. Where a term is
zero on one side, the limit of Ang and Liu (2007) is used in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Factor = Literal[
    "hardware price", "time per inference", "electricity price", "energy per inference"
]


@dataclass(frozen=True, slots=True)
class CostFactors:
    """Factors of the cost of one inference.

    Attributes:
        price_per_s: Currency per device-second.
        time_s: Device-seconds per inference.
        electricity_per_j: Currency per joule, PUE included; 0 where the price includes it.
        energy_j: Joules per inference; any value where electricity_per_j is 0.
    """

    price_per_s: float
    time_s: float
    electricity_per_j: float = 0.0
    energy_j: float = 0.0

    @property
    def hardware(self) -> float:
        """Currency per inference for holding the device."""
        return self.price_per_s * self.time_s

    @property
    def electricity(self) -> float:
        """Currency per inference for electricity."""
        return self.electricity_per_j * self.energy_j

    @property
    def cost(self) -> float:
        """Currency per inference."""
        return self.hardware + self.electricity


@dataclass(frozen=True, slots=True)
class CostChange:
    """The decomposition of a change of cost.

    Attributes:
        log_ratio: ln(after / before).
        parts: Each factor's part of log_ratio; they add up to it.
    """

    log_ratio: float
    parts: Mapping[Factor, float]

    @property
    def change_pct(self) -> float:
        """The change in percent of the cost before."""
        return math.expm1(self.log_ratio) * 100

    @property
    def largest(self) -> tuple[Factor, float]:
        """Return the factor with the largest part in the direction of the change, and its share.

        The share is above 1 if another factor has the opposite sign.
        """
        sign = 1 if self.log_ratio >= 0 else -1
        factor = max(self.parts, key=lambda name: sign * self.parts[name])
        return factor, self.parts[factor] / self.log_ratio if self.log_ratio else 0.0


def split_change(before: CostFactors, after: CostFactors) -> CostChange:
    """Decompose the change between two costs.

    Args:
        before: The factors of the period before.
        after: The factors of the period after.

    Raises:
        ValueError: A cost is not positive, so that no ratio is defined.
    """
    if not (before.cost > 0 and after.cost > 0):
        raise ValueError("both costs must be positive to decompose their change")
    mean_cost = _log_mean(after.cost, before.cost)
    hardware = _term((before.price_per_s, before.time_s), (after.price_per_s, after.time_s))
    electricity = _term(
        (before.electricity_per_j, before.energy_j), (after.electricity_per_j, after.energy_j)
    )
    return CostChange(
        log_ratio=math.log(after.cost / before.cost),
        parts={
            "hardware price": hardware[0] / mean_cost,
            "time per inference": hardware[1] / mean_cost,
            "electricity price": electricity[0] / mean_cost,
            "energy per inference": electricity[1] / mean_cost,
        },
    )


def _term(before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float]:
    """Return the change of price x quantity, split into the price's and the quantity's part."""
    term_before, term_after = before[0] * before[1], after[0] * after[1]
    if term_before <= 0 or term_after <= 0:
        # The whole term is due to the factor that is zero: the price, if both are.
        change = term_after - term_before
        price_is_zero = before[0] == 0 or after[0] == 0
        return (change, 0.0) if price_is_zero else (0.0, change)
    weight = _log_mean(term_after, term_before)
    return weight * math.log(after[0] / before[0]), weight * math.log(after[1] / before[1])


def _log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers, stable where they are nearly equal."""
    relative = (a - b) / b
    # Below this, the quotient's rounding error exceeds the truncation error of its series.
    if abs(relative) < 1e-6:  # noqa: PLR2004 - explained above
        return b * (1 + relative / 2)
    return (a - b) / math.log(a / b)
