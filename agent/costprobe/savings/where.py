"""What a measured model would take on another board: time, energy and cost of an inference.

A pass has a part that does not grow with the batch (launches, small layers), and one that does:

    t(there) = t(here) [f r ** FIXED + (1 - f) r ** RATE q ** POWER]

where f is the first part's share of the pass here, r the ratio of the two boards' peak rates of the
precision, and q that of their thermal design powers: under load a board is limited by its power before
its peaks (the roofline model, Williams, Waterman and Patterson 2009, with a third roof). The exponents
are those of 741 pairs of results of MLPerf Inference 2.0 to 4.1 on 13 boards, and the intervals the
errors for boards that were left out of the fit: `bench/where.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, cast, get_args

from costprobe.core.records import Device
from costprobe.core.units import HOUR_S
from costprobe.pricing.catalogue import Catalogue, GpuModel, PriceRange
from costprobe.savings.history import BatchFigures, ProbeHistory
from costprobe.unit_costs.now import deviating

RATE: Final = 0.60
POWER: Final = 0.44
FIXED: Final = 0.16
# Factors around a prediction that contain 80 % of the boards that the fit did not know.
WORK_ERROR: Final = 1.65
FIXED_ERROR: Final = 2.0
# Part of a board's memory that a model may use.
MEMORY_SHARE: Final = 0.93
_MS_PER_S: Final = 1000.0
_GB: Final = 1e9
_SAME_RATE: Final = 0.02


class UnpredictedError(Exception):
    """There is no prediction, for the reason of the message."""


Precision = Literal["fp32", "tf32", "bf16", "fp16"]
# How the products of a probe's type are computed where a pass was not counted: by default torch multiplies
# matrices of fp32 as fp32, and only convolutions as TF32.
PRECISIONS: Final[Mapping[str, Precision]] = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval; a measured one has none.

    Attributes:
        value: The figure.
        low, high: Where it is in four of five cases.
    """

    value: float
    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float, float]:
        """The figure, and both ends."""
        return self.value, self.low, self.high

    def times(self, factor: float) -> Estimate:
        """Return the estimate of a multiple."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """A batch of a model, as measured here.

    Attributes:
        figures: Latency, throughput and energy.
        least_bytes: Memory that it takes on the board, or less; None if unknown.
        most_bytes: That memory, or more: with what other processes took; None if unknown.
    """

    figures: BatchFigures
    least_bytes: float | None = None
    most_bytes: float | None = None

    def fits(self, gpu: GpuModel) -> bool | None:
        """Whether a board's memory is known to hold it; None if it is not known."""
        if gpu.memory_gb is None:
            return None
        room = float(gpu.memory_gb) * _GB * MEMORY_SHARE
        if self.most_bytes is not None and self.most_bytes <= room:
            return True
        return False if self.least_bytes is not None and self.least_bytes > room else None


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model on a board, as measured.

    Attributes:
        history: Its figures by batch.
        device: The board.
        batches: The figures of each batch, the present one first, with the memory in use.
        precision: Of its products, by its type.
        peak_flop_per_s: Peak rate of the board in the precision of its newest run; None if it was not counted.
        paid: Cost of an inference of its newest run, and the currency; None if unknown.
    """

    history: ProbeHistory
    device: Device
    batches: tuple[MeasuredBatch, ...]
    precision: Precision
    peak_flop_per_s: float | None = None
    paid: tuple[float, str] | None = None

    @property
    def subject(self) -> str:
        """Probe and device, as text."""
        return self.history.subject


def typical(models: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """Return one of the identical boards of each probe: of those that do not deviate that with most batches."""
    boards: dict[tuple[str, str, int | None], list[MeasuredModel]] = {}
    for one in models:
        key = (one.history.probe, one.device.model, one.device.memory_bytes)
        boards.setdefault(key, []).append(one)
    found = []
    for members in boards.values():
        members.sort(key=lambda one: one.history.present.throughput_per_s)
        times = [1 / one.history.present.throughput_per_s for one in members]
        alike = [
            one for one, is_other in zip(members, deviating(times), strict=True) if not is_other
        ]
        middle = alike[(len(alike) - 1) // 2]
        found.append(max([middle, *alike], key=lambda one: len(one.batches)))
    return found


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A model on a board.

    Attributes:
        gpu: The board.
        batch: Items per pass.
        latency_ms: Time of a pass.
        energy_per_inference_j: Energy of an item; None if it was not measured here.
        cost_per_inference: Currency at the median price; None without a price.
        price: List prices of the board per hour; None if no cloud lists it.
        fits: Whether its memory is known to hold the model; None if the memory that it takes is not.
        is_measured: Whether its figures are those of a run there.
    """

    gpu: GpuModel
    batch: int
    latency_ms: Estimate
    energy_per_inference_j: Estimate | None
    cost_per_inference: Estimate | None
    price: PriceRange | None
    fits: bool | None
    is_measured: bool = False

    def measured(self, batch: int, latency_ms: float, energy_j: float | None) -> Elsewhere:
        """Return the same board with the figures of a run there.

        Args:
            batch: Items per pass.
            latency_ms: Median latency of a pass.
            energy_j: Energy of an item; None if unknown.
        """

        def exactly(value: float) -> Estimate:
            return Estimate(value, value, value)

        cost = None if self.price is None else exactly(_cost_of(self.price, latency_ms) / batch)
        energy = None if energy_j is None else exactly(energy_j)
        return Elsewhere(
            self.gpu,
            batch,
            exactly(latency_ms),
            energy,
            cost,
            self.price,
            fits=True,
            is_measured=True,
        )


def fixed_share(batches: Sequence[MeasuredBatch], batch: int) -> float | None:
    """Return the share of a pass that does not grow with the batch; None with fewer than two batches.

    The line through the smallest and the largest batch is t = fixed + batch x step.
    """
    ordered = sorted(batches, key=lambda one: one.figures.batch)
    first, last = (ordered[index].figures for index in (0, -1))
    if first.batch == last.batch:
        return None
    step = (last.latency_p50_ms - first.latency_p50_ms) / (last.batch - first.batch)
    fixed = max(0.0, first.latency_p50_ms - max(0.0, step) * first.batch)
    return fixed / (fixed + max(0.0, step) * batch) if fixed or step > 0 else None


def here_at(
    batches: Sequence[MeasuredBatch], bound_ms: float | None
) -> list[tuple[BatchFigures, float]]:
    """Return the present batch, and the one with the highest throughput within the bound if that is another.

    Each has its cost relative to the present one: the price of an hour is the same at every batch.

    Args:
        batches: The model as measured, the present batch first.
        bound_ms: Bound of the latency of a pass; None for none.
    """
    present = batches[0].figures
    kept = [
        one.figures for one in batches if bound_ms is None or one.figures.latency_p50_ms <= bound_ms
    ]
    best = max(kept, key=lambda one: one.throughput_per_s, default=present)
    found = [present] if best.batch == present.batch else [present, best]
    return [(one, present.throughput_per_s / one.throughput_per_s) for one in found]


def time_ratio(
    here: GpuModel, there: GpuModel, precision: Precision, fixed: float | None
) -> Estimate | None:
    """Return the time of a pass there over that here; None where a rate or power is unknown.

    Args:
        here: The board on which it was measured.
        there: The other one.
        precision: Of its products; a board without TF32 multiplies as fp32, one without another as fp16.
        fixed: From `fixed_share`; None is any share, so that the interval contains all.
    """
    rates = _rates(here, there, precision)
    if rates is None or here.tdp_w is None or there.tdp_w is None:
        return None
    faster = rates[0] / rates[1]
    of_fixed = faster**FIXED
    of_work = faster**RATE * (here.tdp_w / there.tdp_w) ** POWER
    if fixed is None:
        return Estimate(
            math.sqrt(of_fixed * of_work),
            min(of_fixed / FIXED_ERROR, of_work / WORK_ERROR),
            max(of_fixed * FIXED_ERROR, of_work * WORK_ERROR),
        )
    ratio = fixed * of_fixed + (1 - fixed) * of_work
    error = FIXED_ERROR**fixed * WORK_ERROR ** (1 - fixed)
    return Estimate(ratio, ratio / error, ratio * error)


def _rates(here: GpuModel, there: GpuModel, precision: Precision) -> tuple[float, float] | None:
    """Return the peak rates of two boards, of a precision that both have."""
    names = (precision, "fp32") if precision == "tf32" else (precision,)
    own, other = (next(filter(None, map(gpu.flop_per_s.get, names)), None) for gpu in (here, there))
    if own and other:
        return own, other
    for name in ("fp16", "fp32"):
        own, other = here.flop_per_s.get(name), there.flop_per_s.get(name)
        if own and other:
            return own, other
    return None


def precision_of(gpu: GpuModel, peak: float | None, otherwise: Precision) -> Precision:
    """Return the precision of a pass by the peak rate that its utilization was computed with.

    Args:
        gpu: The board of the pass.
        peak: FLOP per second; None if the pass was not counted.
        otherwise: The precision of one that was not.
    """
    for name in get_args(Precision):
        rate = gpu.flop_per_s.get(name)
        if rate and peak and abs(rate / peak - 1) < _SAME_RATE:
            return cast("Precision", name)
    return otherwise


@dataclass(frozen=True, slots=True)
class ModelElsewhere:
    """A measured model on other boards.

    Attributes:
        model: As measured.
        here: The board.
        places: The other boards, the cheapest first.
        unknown: Boards without a prediction.
    """

    model: MeasuredModel
    here: GpuModel
    places: Sequence[Elsewhere]
    unknown: Sequence[str]

    @property
    def fixed(self) -> float | None:
        """Share of a pass that does not grow with the batch."""
        return fixed_share(self.model.batches, self.model.history.present.batch)


def model_elsewhere(
    model: MeasuredModel,
    catalogue: Catalogue,
    results: Mapping[str, tuple[int, float, float | None]] = MappingProxyType({}),
) -> ModelElsewhere:
    """Return a measured model on all boards of the catalogue.

    Args:
        model: As measured here.
        catalogue: Boards and prices.
        results: Batch, latency in ms and energy of an item that were measured on other boards, by their models.

    Raises:
        UnpredictedError: The peak rates of its board are unknown.
    """
    here = catalogue.gpus.named(model.device.model, model.device.memory_bytes)
    if here is None or here.tdp_w is None or not here.flop_per_s:
        raise UnpredictedError(f"the catalogue has no peak rates of {model.device.model}")
    precision = precision_of(here, model.peak_flop_per_s, model.precision)
    places, unknown = elsewhere(model.batches, here, catalogue, precision, model.history.bound_ms)
    known = (
        place.measured(*results[place.gpu.model]) if place.gpu.model in results else place
        for place in places
    )
    return ModelElsewhere(model, here, cheapest_first(known), unknown)


def elsewhere(
    batches: Sequence[MeasuredBatch],
    here: GpuModel,
    catalogue: Catalogue,
    precision: Precision,
    bound_ms: float | None = None,
) -> tuple[list[Elsewhere], list[str]]:
    """Return a model on every board of the catalogue, and the boards that are unknown.

    On each board the measured batch is chosen that costs least, fits its memory and keeps the bound.

    Args:
        batches: The model as measured here, by batch.
        here: The board on which it was measured.
        catalogue: The boards, and their prices.
        precision: Of its matrix products.
        bound_ms: Bound of the latency of a pass; None for none.
    """
    found: list[Elsewhere] = []
    unknown: list[str] = []
    for there in catalogue.gpus.gpus:
        if there.model == here.model:
            continue
        price = catalogue.gpu_range([there.model])
        choices = []
        for one in batches:
            fixed = fixed_share(batches, one.figures.batch)
            ratio = time_ratio(here, there, precision, fixed)
            if ratio is not None:
                choices.append(_on(one, ratio, here, there, price))
        if choices:
            found += _best(choices, bound_ms)
        else:
            unknown.append(there.model)
    return found, unknown


def _on(
    one: MeasuredBatch, ratio: Estimate, here: GpuModel, there: GpuModel, price: PriceRange | None
) -> Elsewhere:
    figures = one.figures
    latency_ms = ratio.times(figures.latency_p50_ms)
    watts = (there.tdp_w or 0.0) / (here.tdp_w or 1.0)
    per_ms = None if price is None else _cost_of(price, 1.0) / figures.batch
    return Elsewhere(
        there,
        figures.batch,
        latency_ms,
        None if figures.energy_j is None else ratio.times(figures.energy_j * watts),
        None if per_ms is None else latency_ms.times(per_ms),
        price,
        one.fits(there),
    )


def _cost_of(price: PriceRange, latency_ms: float) -> float:
    return float(price.median) / HOUR_S * latency_ms / _MS_PER_S


def _best(choices: Sequence[Elsewhere], bound_ms: float | None) -> Iterable[Elsewhere]:
    """Return the cheapest that fits and keeps the bound; else one that says that it does not fit, or nothing."""
    fitting = [one for one in choices if one.fits is not False]
    if not fitting:
        return [min(choices, key=lambda one: one.batch)]
    kept = [one for one in fitting if bound_ms is None or one.latency_ms.value <= bound_ms]
    return [min(kept, key=_cost)] if kept else []


def cheapest_first(places: Iterable[Elsewhere]) -> list[Elsewhere]:
    """Order boards by cost; then those that no cloud lists, by time; then those with too little memory."""
    return sorted(
        places, key=lambda one: (one.fits is False, one.cost_per_inference is None, _cost(one))
    )


def _cost(one: Elsewhere) -> float:
    """Return what an item costs, or takes, by which batches and boards are ordered."""
    cost = one.cost_per_inference
    return one.latency_ms.value / one.batch if cost is None else cost.value
