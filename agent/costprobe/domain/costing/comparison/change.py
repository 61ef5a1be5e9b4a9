"""Decomposition of a cost change into price, time and energy, without a remainder.

A cost per inference is C = r t + p e: price rate times time, electricity price (PUE included)
times energy. Source: Ang, "Decomposition analysis for policymaking in energy" (2004), the
logarithmic mean Divisia index, LMDI-I: ln(C1/C0) is the sum over the factors x of
w ln(x1/x0), with w = L(term1, term0) / L(C1, C0) and L the logarithmic mean. Where a term is
zero on one side, the limit of Ang and Liu (2007) is used in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, get_args

Factor = Literal[
    "hardware price", "time per inference", "electricity price", "energy per inference"
]
Name = TypeVar("Name", bound=str)
_FACTORS: Final[tuple[Factor, ...]] = get_args(Factor)


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

    def at_prices_of(self, other: CostFactors) -> CostFactors:
        """Return this period's time and energy at the prices of another."""
        return CostFactors(other.price_per_s, self.time_s, other.electricity_per_j, self.energy_j)


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
    parts = log_mean_parts(cost_terms(before), cost_terms(after))
    return CostChange(math.log(after.cost / before.cost), {name: parts[name] for name in _FACTORS})


def log_mean_parts(
    before: Sequence[Mapping[Name, float]], after: Sequence[Mapping[Name, float]]
) -> dict[Name, float]:
    """Return each factor's part of ln(after / before) of a sum of products; they add up to it.

    A term that is zero on one side is the effect of its first factor that is zero.

    Args:
        before: The factors of each term, by name; not negative.
        after: The same terms and factors later.

    Raises:
        ValueError: A sum is not positive, so that no ratio is defined.
    """
    products_before = [math.prod(old.values()) for old in before]
    products_after = [math.prod(new.values()) for new in after]
    total_before, total_after = math.fsum(products_before), math.fsum(products_after)
    if not (total_before > 0 and total_after > 0):
        raise ValueError("both costs must be positive to decompose their change")
    mean_total = _log_mean(total_after, total_before)
    parts: dict[Name, float] = {}
    for old, new, product_before, product_after in zip(
        before, after, products_before, products_after, strict=True
    ):
        if product_before > 0 and product_after > 0:
            weight = _log_mean(product_after, product_before) / mean_total
            for name, value in old.items():
                parts[name] = parts.get(name, 0.0) + weight * math.log(new[name] / value)
            continue
        for name in old:
            parts.setdefault(name, 0.0)
        zero = next((name for name in old if not (old[name] > 0 and new[name] > 0)), None)
        if zero is not None:
            parts[zero] += (product_after - product_before) / mean_total
    return parts


def cost_terms(factors: CostFactors) -> list[dict[Factor, float]]:
    """Return the factors of each product that the cost is the sum of."""
    return [
        {"hardware price": factors.price_per_s, "time per inference": factors.time_s},
        {
            "electricity price": factors.electricity_per_j,
            "energy per inference": factors.energy_j,
        },
    ]


def _log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers, accurate also where they are nearly equal."""
    least, most = (a, b) if a < b else (b, a)
    excess = (most - least) / least
    return (most - least) / math.log1p(excess) if excess else least
