"""Ratios of production: a cost over several windows is a sum of costs over a sum of counts.

Rows of `cost` on the serving basis hold the numerators and denominators of their ratios. A mean of
the ratios of windows would weigh an idle window as much as a busy one. Roll-ups, reports, `trend` and
the dashboards of Grafana divide sums by this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of sums over windows.

    Attributes:
        over: Field whose sum is divided.
        per: Field by whose sum it is divided.
        scale: Factor, such as 1,000 for "per 1,000".
        part: Field whose share of `whole` is taken of `over`; empty for all of it. Windows without
            tokens have a cost but no part for tokens: it is divided like that of the others.
        whole_fields: Fields that add up to the whole.
    """

    over: str
    per: str
    scale: int = 1
    part: str = ""
    whole_fields: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields whose sums are needed."""
        return (self.over, self.per, *self.whole_fields)

    def of(self, sums: Mapping[str, float]) -> float | None:
        """Return the ratio; None where a sum is missing, or nothing was counted."""
        needed = (self.over, self.per, *([self.part] if self.part else []))
        if any(name not in sums for name in needed) or not sums[self.per]:
            return None
        value = sums[self.over] / sums[self.per] * self.scale
        if not self.part:
            return value
        total = sum(sums.get(name, 0.0) for name in self.whole_fields)
        return value * (sums[self.part] / total) if total else None

    def written(self, sum_of: Callable[[str], str]) -> str:
        """Return the ratio as an expression of a query language.

        Args:
            sum_of: Writes the sum of a field.
        """
        text = f"{sum_of(self.over)} / {sum_of(self.per)}"
        if self.part:
            total = " + ".join(sum_of(name) for name in self.whole_fields)
            text = f"{text} * {sum_of(self.part)} / ({total})"
        return text if self.scale == 1 else f"{self.scale}.0 * {text}"


_TOKENS: Final = ("cost_tokens_in", "cost_tokens_out")
_TOKENS_J: Final = ("energy_tokens_in_j", "energy_tokens_out_j")
# Fields of `cost` on the serving basis that are ratios.
SERVING_RATIOS: Final[Mapping[str, Ratio]] = MappingProxyType(
    {
        "cost_per_inference": Ratio("cost_total", "inferences"),
        "cost_per_thousand_inferences": Ratio("cost_total", "inferences", _THOUSAND),
        "cost_per_request": Ratio("cost_total", "requests"),
        "cost_hardware": Ratio("cost_total_hardware", "inferences"),
        "cost_energy": Ratio("cost_total_energy", "inferences"),
        "cost_per_million_tokens_in": Ratio(
            "cost_total", "tokens_in", _MILLION, "cost_tokens_in", _TOKENS
        ),
        "cost_per_million_tokens_out": Ratio(
            "cost_total", "tokens_out", _MILLION, "cost_tokens_out", _TOKENS
        ),
        "idle_share": Ratio("cost_idle", "cost_total"),
        "energy_per_inference_j": Ratio("energy_j", "inferences"),
        "energy_per_request_j": Ratio("energy_j", "requests"),
        "energy_per_million_tokens_in_j": Ratio(
            "energy_j", "tokens_in", _MILLION, "energy_tokens_in_j", _TOKENS_J
        ),
        "energy_per_million_tokens_out_j": Ratio(
            "energy_j", "tokens_out", _MILLION, "energy_tokens_out_j", _TOKENS_J
        ),
        # Emissions of windows with a known intensity, by what was inferred in these.
        "carbon_per_inference_g": Ratio("carbon_g", "carbon_inferences"),
    }
)
# Their numerators and denominators, and the sums that a change of cost is decomposed by.
SERVING_SUMS: Final = tuple(
    dict.fromkeys(
        [
            *(name for ratio in SERVING_RATIOS.values() for name in ratio.fields),
            *("cached_tokens", "device_s", "device_busy_s"),
        ]
    )
)
