"""Work of a service: weighted tokens or inferences, comparable between two periods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Literal

from costprobe.domain.costing.comparison.production_sums import ModelSums, ProductionSums

Kind = Literal["in", "out", "item"]
# Relative device time of one of each kind, by model and kind.
Weights = Mapping[tuple[str, Kind], float]


def work_of(sums: ProductionSums, weights: Weights) -> float:
    """Return the weighted sum of what a service did."""
    return math.fsum(
        weight * amount_of(sums.models.get(model, ModelSums()), kind)
        for (model, kind), weight in weights.items()
    )


def amount_of(model: ModelSums, kind: Kind) -> float:
    """Return how many of a kind were computed."""
    return {"in": model.computed, "out": model.tokens_out, "item": model.inferences}[kind]


def kind_weights(before: ProductionSums, after: ProductionSums, *, is_by_token: bool) -> Weights:
    """Return the relative device time of each model's kinds: the mean of both periods.

    A price and an idle share scale all kinds of a period alike; kinds of both periods show by how much.
    """
    sides = [kind_prices(sums, is_by_token=is_by_token) for sums in (before, after)]
    common = [kind for kind in sides[0] if kind in sides[1]]
    scale = fmean(math.log(sides[1][kind] / sides[0][kind]) for kind in common) if common else 0.0
    weights = {}
    for kind in dict.fromkeys([*sides[0], *sides[1]]):
        logs = [
            math.log(side[kind]) + shift
            for side, shift in zip(sides, (scale / 2, -scale / 2), strict=True)
            if kind in side
        ]
        weights[kind] = math.exp(fmean(logs))
    return weights


def kind_prices(sums: ProductionSums, *, is_by_token: bool) -> dict[tuple[str, Kind], float]:
    """Return the cost of each kind that was computed, by model and kind."""
    prices: dict[tuple[str, Kind], float] = {}
    for name, model in sums.models.items():
        costs: tuple[tuple[Kind, float], ...] = (
            (("in", model.tokens_in_cost), ("out", model.tokens_out_cost))
            if is_by_token
            else (("item", model.cost),)
        )
        for kind, cost in costs:
            amount = amount_of(model, kind)
            if cost > 0 and amount > 0:
                prices[name, kind] = cost / amount
    return prices


def as_one(sums: ProductionSums) -> ProductionSums:
    """Return the sums without a division among models."""
    return ProductionSums(
        **{name: getattr(sums, name) for name in ProductionSums.__slots__ if name != "models"},
        models={"": sums.total},
    )
