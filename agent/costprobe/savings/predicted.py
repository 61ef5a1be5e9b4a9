"""Boards that would cost less than every measured supply, as predicted.

They are priced around the clock at the median list price on demand. The number of boards is that of a
supply: with headroom at the highest minute; of servers for the 99th percentile of minutes, as of replicas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.core.units import MONTH_H
from costprobe.pricing.catalogue import RANGE_CURRENCY, Catalogue, PriceRange
from costprobe.savings.savings import Answer
from costprobe.savings.served import ServedCurve, served_elsewhere
from costprobe.savings.supply import Placement
from costprobe.savings.where import Estimate, MeasuredModel, UnpredictedError, model_elsewhere

# Boards of a workload that are listed.
MOST: Final = 3
_MS_PER_S: Final = 1000.0


@dataclass(frozen=True, slots=True)
class PredictedSupply:
    """Boards for a workload.

    Attributes:
        gpu_model: The board.
        devices: Their number.
        cost_per_month: In RANGE_CURRENCY for 730 h; its high end is infinite if the service level may not
            be met.
        measure: The command that measures the model there, and the one that takes its output here.
    """

    gpu_model: str
    devices: int
    cost_per_month: Estimate
    measure: tuple[str, str]


def predicted_supplies(
    answer: Answer,
    models: Sequence[MeasuredModel],
    curves: Sequence[ServedCurve],
    catalogue: Catalogue,
) -> list[PredictedSupply]:
    """Return the boards on which a workload costs less than now and on every measured supply.

    None without a price in the currency of the catalogue.

    Args:
        answer: The workload, now and on measured supplies.
        models: The measured models.
        curves: The load curves of servers.
        catalogue: Boards and prices.
    """
    if answer.now is None or answer.currency != RANGE_CURRENCY:
        return []
    least = float(min(one.cost_per_month for one in (answer.now, *answer.supplies)))
    try:
        found = [*_of_model(answer, models, catalogue), *_of_server(answer, curves, catalogue)]
    except UnpredictedError:
        return []
    cheaper = [one for one in found if one.cost_per_month.value < least]
    return sorted(cheaper, key=lambda one: one.cost_per_month.value)[:MOST]


def _of_model(
    answer: Answer, models: Sequence[MeasuredModel], catalogue: Catalogue
) -> Iterator[PredictedSupply]:
    workload = answer.workload
    same = [one for one in models if one.history.probe == workload.probe]
    own = next((one for one in same if one.device.name in workload.devices), None)
    if own is None or not workload.hours:
        return
    known = [catalogue.gpus.named(one.device.model, one.device.memory_bytes) for one in same]
    per_ms = own.history.present.throughput_per_s / _MS_PER_S
    for place in model_elsewhere(own, catalogue).places:
        if place.price is not None and place.fits and place.gpu not in known:
            speeds = [place.batch / ms / per_ms for ms in place.latency_ms.ends]
            counts = [Placement("", "", speed).needed(workload.peak) for speed in speeds]
            yield _supply(workload.probe, place.gpu.model, place.price, counts, "--json")


def _of_server(
    answer: Answer, curves: Sequence[ServedCurve], catalogue: Catalogue
) -> Iterator[PredictedSupply]:
    load = answer.load
    if load is None or load.cost is None or load.evidence.unit != "tokens_out":
        return
    curve = load.evidence.curve
    per_s = load.cost.peak_per_s * load.evidence.replicas
    for found in curves:
        if (found.curve.probe, found.curve.device) == (curve.probe, curve.device):
            for place in served_elsewhere(found, catalogue).places:
                price, rate, cost = place.price, place.tokens_out_per_s, place.cost
                if price is not None and rate is not None and cost is not None:
                    # At the ends of the cost another load may be the cheapest.
                    replicas = [per_s / rate.value * end / cost.value for end in cost.ends]
                    counts = [
                        place.boards * max(1, math.ceil(one)) if math.isfinite(one) else one
                        for one in replicas
                    ]
                    yield _supply(curve.probe, place.gpu.model, price, counts, "--load --json")


def _supply(
    probe: str, gpu_model: str, price: PriceRange, counts: Sequence[float], options: str
) -> PredictedSupply:
    """Return boards at their price.

    Args:
        probe: Name of the probe.
        gpu_model: The board.
        price: Its list prices.
        counts: Their number as predicted, at the shortest times, and at the longest.
        options: Of the command that measures the probe.
    """
    there = f"costprobe probe {probe} {options} > there.json"
    here = f'costprobe where {probe} --measured "{gpu_model}=there.json"'
    month = float(price.median * MONTH_H)
    costs = Estimate(*(count * month for count in counts))
    return PredictedSupply(gpu_model, int(counts[0]), costs, (there, here))
