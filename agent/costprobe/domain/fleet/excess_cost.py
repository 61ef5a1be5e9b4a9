"""The level of a GPU, and what its excess over its peers, or a change of software, costs a month."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.domain.costing.comparison.change import CostFactors
from costprobe.domain.detection.runs import DetectionRun, factors
from costprobe.domain.fleet.discoveries import Excess


@dataclass(frozen=True, slots=True)
class GpuLevel:
    """The level of a probe on a GPU over a period.

    Attributes:
        host: Its host.
        device: Its device id.
        peers: What peers share: GPU model, probe, batch, execution mode, software.
        run: Medians over the period as one run: time, energy, prices, and conditions of the device.
        runs: Number of runs.
        labels: The host's labels, such as its rack.
        busy_share: Share of the period in which the GPU worked; None if unknown.
    """

    host: str
    device: str
    peers: tuple[str, ...]
    run: DetectionRun
    runs: int
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class ExcessCost:
    """What an excess or a change costs in a month of 730 h; negative if it saves.

    Attributes:
        mean: Currency for the estimate.
        low: For the lower end of its interval.
        high: For the upper end.
        currency: ISO 4217 code.
    """

    mean: float
    low: float
    high: float
    currency: str


def monthly_cost(
    own: Sequence[GpuLevel], time: Excess | None, energy: Excess | None
) -> ExcessCost | None:
    """Return what an excess costs a month: price rate times excess time, electricity times excess joules.

    An inference at the measured factors is compared with one at those of the peers, times the inferences of
    a month of 730 h at the GPU's present use. Excess that is not reported counts as 0.

    Args:
        own: Levels of the GPUs of an outlier.
        time: Reported excess of the time per inference.
        energy: Reported excess of the energy per inference.
    """
    currencies = {gpu.run.currency for gpu in own}
    if len(currencies) != 1 or not all(currencies):
        return None
    if any(gpu.run.price_per_s is None or gpu.busy_share is None for gpu in own):
        return None

    def total(end: Literal["mean", "low", "high"]) -> float:
        return math.fsum(
            _gpu_cost(gpu, *(0.0 if one is None else getattr(one, end) for one in (time, energy)))
            for gpu in own
        )

    return ExcessCost(total("mean"), total("low"), total("high"), *currencies)


def _gpu_cost(gpu: GpuLevel, time: float, energy: float) -> float:
    own = factors([gpu.run])
    peer = CostFactors(
        own.price_per_s,
        own.time_s / (1 + time),
        own.electricity_per_j,
        own.energy_j / (1 + energy),
    )
    rate_per_s = (gpu.busy_share or 0.0) / own.time_s
    return (own.cost - peer.cost) * rate_per_s * MONTH_H * HOUR_S
