"""The load curve of a served decoder on other boards.

With c requests in flight, of which b fit the memory and decode together, a prefill p and a step s
(`decoder.passes`), and o tokens out:

    request      c / b (b p + o s)
    first token  p + s + (c - b) / b (b p + o s)
    next token   s + (b - 1) p / o

A measured time moves by the ratio of these on the two boards, so that what the engine reaches here it
reaches there. The intervals are the errors for published load curves and batches of one engine, which
the constants of `decoder` were not fitted to: `bench/where.py`, docs/savings.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from costprobe.core.records import TOGETHER, Device
from costprobe.core.units import HOUR_S
from costprobe.pricing.catalogue import RANGE_CURRENCY, Catalogue, GpuModel, GpuNames, PriceRange
from costprobe.probing.load_curve import LoadCurve, LoadPoint
from costprobe.probing.settings import OpenAiProbeConfig, ServedProbeConfig
from costprobe.savings.decoder import ERROR, Decoder, Dtype, counts_of, is_served, passes
from costprobe.savings.where import Estimate, UnpredictedError
from costprobe.serving.settings import ModelSize, ServiceConfig, size_of
from costprobe.serving.tokens import MILLION

# Factors around a time that contain 80 % of the published results: of a first token, and for another number
# of boards than the measured one. Other times have that of `decoder`.
FIRST_ERROR: Final = 1.5
COUNT_ERROR: Final = 1.4
# Figures that are not moved.
_COSTS: Final = re.compile("cost|energy|goodput|late_ms|client")
_TOKENS: Final = ("tokens_in", "tokens_out", "tokens_out_per_s")
_RATES: Final = ("throughput_per_s", "tokens_in_per_s", "tokens_out_per_s", "offered_per_s")
# Types of weights that a model's name states, without a prediction.
_OTHER_TYPES: Final = re.compile(r"awq|gptq|gguf|bnb|int\d|w\da\d|q\d_|\dbit", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServedCurve:
    """The newest load curve of a server on some devices.

    Attributes:
        probe: The probe that measured it.
        curve: The curve.
        devices: The whole boards of its devices; empty if one of them is none, or is unknown.
        services: The services of the server.
    """

    probe: ServedProbeConfig
    curve: LoadCurve
    devices: tuple[Device, ...]
    services: tuple[ServiceConfig, ...]

    @property
    def subject(self) -> str:
        """Probe and devices, as text."""
        return f"{self.curve.probe} on {self.curve.device}"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A decoder with its load curve.

    Attributes:
        curve: The curve.
        size: Parameters.
        dtype: Type of the weights.
        gpu: The board that it was measured on.
        boards: Their number.
    """

    curve: LoadCurve
    size: ModelSize
    dtype: Dtype
    gpu: GpuModel
    boards: int


@dataclass(frozen=True, slots=True)
class ServedPlace:
    """The cheapest load of a decoder on some boards.

    Attributes:
        gpu: The board.
        boards: Their number.
        price: List prices of one per hour; None if no cloud lists it.
        fitting: Requests whose cache fits beside the weights; 0 if the model does not.
        point: The load, with the figures there; None if none is within the service level.
        tokens_out_per_s: None without a load.
        times_ms: Times of the service level at that load, by their names.
        cost: Currency for a million tokens out at the median price; its high end is infinite if the
            service level may not be met. None without a load or a price.
        is_measured: Whether the figures are those of a load curve there.
    """

    gpu: GpuModel
    boards: int
    price: PriceRange | None
    fitting: int
    point: LoadPoint | None = None
    tokens_out_per_s: Estimate | None = None
    times_ms: Mapping[str, Estimate] = field(default_factory=dict)
    cost: Estimate | None = None
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class ServedElsewhere:
    """A served decoder on other boards.

    Attributes:
        model: The decoder.
        here: The cheapest load that was measured; its cost is in the currency of the curve.
        places: The cheapest load on each other board, the cheapest board first.
    """

    model: ServedModel
    here: ServedPlace
    places: Sequence[ServedPlace]


def served_model(
    found: ServedCurve, gpus: GpuNames, size: ModelSize | None = None, dtype: Dtype | None = None
) -> ServedModel:
    """Return the decoder of a load curve; what is not given is that of the service, or of the model's name.

    Args:
        found: The curve, with its probe, boards and services.
        gpus: The known boards.
        size: Its size, as given.
        dtype: Type of its weights, as given; bf16 if the name states none.

    Raises:
        UnpredictedError: There is no prediction; the message gives the reason, and what to add.
    """
    probe, curve, boards = found.probe, found.curve, len(found.devices)
    known = curve.points and all(point[name] for point in curve.points for name in _TOKENS)
    if not isinstance(probe, OpenAiProbeConfig) or not known:
        raise UnpredictedError("its requests have no counted tokens: only decoders are predicted")
    if size is None:
        stated = [one.parameters for one in found.services if one.parameters]
        size = size_of(next(iter(stated), probe.model))
    if size is None:
        raise UnpredictedError(
            f"the name of its model, {probe.model!r}, states no size: add --decoder with it, such"
            " as 8B, or parameters to the [[service]] with its url"
        )
    if dtype is None:
        named = re.search("fp[84]", probe.model.lower())
        if named is None and _OTHER_TYPES.search(probe.model):
            raise UnpredictedError(
                f"the name of its model, {probe.model!r}, states weights of another type than bf16, fp8"
                " and fp4, which are predicted; if they have one of these, add --dtype"
            )
        dtype = "fp4" if named and named[0] == "fp4" else "fp8" if named else "bf16"
    models = [gpus.named(device.model, device.memory_bytes) for device in found.devices]
    here = next(iter(models), None)
    if here is None or any(one != here for one in models) or not is_served(dtype, here):
        raise UnpredictedError(
            f"{curve.device} is no whole GPU of which the catalogue has the rates for {dtype}"
        )
    if boards not in counts_of(here):
        raise UnpredictedError(f"{curve.device}: several boards without NVLink are not predicted")
    model = ServedModel(curve, size, dtype, here, boards)
    if not fitting(model, here, boards):
        raise UnpredictedError(
            f"{size.total_b:g}B in {dtype} do not fit {curve.device}, on which it was measured: add"
            " --dtype, or --decoder with its size"
        )
    return model


def fitting(model: ServedModel, gpu: GpuModel, boards: int) -> int:
    """Return how many of the curve's requests fit the memory of boards beside the weights."""
    found = passes(_decoder(model, model.curve.fastest), gpu, boards)
    return 0 if found is None else found.fitting


def served_elsewhere(
    found: ServedCurve,
    catalogue: Catalogue,
    size: ModelSize | None = None,
    dtype: Dtype | None = None,
    results: Mapping[str, LoadCurve] = MappingProxyType({}),
) -> ServedElsewhere:
    """Return a served decoder on each board of the catalogue that has rates for its type.

    Boards of another vendor run other software, and are left out. Of the numbers of boards that may
    serve together the cheapest is chosen. Boards that are too slow for the service level or have too
    little memory come last, without a load.

    Args:
        found: Its load curve.
        catalogue: Boards and prices.
        size: Its size, as given.
        dtype: Type of its weights, as given.
        results: Load curves that were measured on other boards, by their models.

    Raises:
        UnpredictedError: There is no prediction; the message gives the reason.
    """
    model = served_model(found, catalogue.gpus, size, dtype)
    places = []
    for gpu in catalogue.gpus.gpus:
        is_other = gpu.model != model.gpu.model and _is_amd(gpu) == _is_amd(model.gpu)
        if is_other and is_served(model.dtype, gpu):
            price = catalogue.gpu_range([gpu.model])
            if gpu.model in results:
                places.append(measured_there(model, results[gpu.model], gpu, price))
            else:
                choices = (on_boards(model, gpu, number, price) for number in counts_of(gpu))
                places.append(min(choices, key=_rank))
    return ServedElsewhere(model, _measured_here(model), sorted(places, key=_rank))


def _is_amd(gpu: GpuModel) -> bool:
    return gpu.model.startswith("AMD")


def _rank(one: ServedPlace) -> tuple[bool, bool, bool, float]:
    """Order boards by cost; then those without a price by speed, those that are too slow, those too small."""
    speed = one.tokens_out_per_s.value if one.tokens_out_per_s else float(one.fitting)
    cost = -speed if one.cost is None else one.cost.value
    return not one.fitting, one.point is None, one.cost is None, cost


def _measured_here(model: ServedModel) -> ServedPlace:
    """Return the cheapest load that was measured; its cost is in the currency of the curve."""
    boards = model.boards
    here = ServedPlace(model.gpu, boards, None, fitting(model, model.gpu, boards), is_measured=True)
    return _chosen(here, (model.curve, model.curve, model.curve), {})


def measured_there(
    model: ServedModel, there: LoadCurve, gpu: GpuModel, price: PriceRange | None
) -> ServedPlace:
    """Return the cheapest load of a curve that was measured on another board, within the service level here.

    Args:
        model: The decoder here.
        there: The curve.
        gpu: The board.
        price: Its list prices.
    """
    boards = len(there.device.split(TOGETHER))
    curve = _at_price(replace(there, bounds_ms=model.curve.bounds_ms), boards, price)
    on = ServedPlace(gpu, boards, price, fitting(model, gpu, boards), is_measured=True)
    return _chosen(on, (curve, curve, curve), {})


def moved(
    model: ServedModel, gpu: GpuModel, boards: int, slower: Mapping[str, float] | None = None
) -> LoadCurve:
    """Return the curve on other boards, without costs and energies; without points if the model does not fit.

    Args:
        model: The decoder.
        gpu: The board.
        boards: Their number.
        slower: Factors of times, by the beginnings of their names.
    """
    points = []
    for point in model.curve.points:
        here = _times(model, point, model.gpu, model.boards)
        there = _times(model, point, gpu, boards)
        if here is not None and there is not None:
            ratios = {
                name: there[name] / here[name] * (slower or {}).get(name, 1.0) for name in here
            }
            figures = {name: _moved(name, point[name], ratios) for name in point.figures}
            points.append(replace(point, figures=figures))
    return replace(model.curve, points=tuple(points), currency=RANGE_CURRENCY)


def _moved(name: str, value: float | None, ratios: Mapping[str, float]) -> float | None:
    """Return a figure of a point elsewhere; None if it is unknown, or not predicted."""
    if value is None or _COSTS.search(name):
        return None
    if name in _RATES:
        return value / ratios["latency"]
    if name == "tokens_per_s_user":
        return value / ratios["tpot"]
    kind = name.partition("_")[0].replace("itl", "tpot")
    return value * ratios.get(kind, 1.0)


def _times(
    model: ServedModel, point: LoadPoint, gpu: GpuModel, boards: int
) -> Mapping[str, float] | None:
    """Return the seconds of a request, its first token and each further one; None if the model does not fit."""
    decoder = _decoder(model, point)
    in_flight = max(1.0, point.concurrency or point["in_flight"] or 1.0)
    found = passes(decoder, gpu, boards, in_flight)
    if found is None:
        return None
    batch, step_s = found.decoding, found.step_s
    prompt_s = found.prompt_s * (1 - min(1.0, (point["cached_tokens"] or 0.0) / decoder.tokens_in))
    batch_s = batch * prompt_s + decoder.tokens_out * step_s
    return {
        "latency": in_flight / batch * batch_s,
        "ttft": prompt_s + step_s + (in_flight - batch) / batch * batch_s,
        "tpot": step_s + (batch - 1) * prompt_s / decoder.tokens_out,
    }


def _decoder(model: ServedModel, point: LoadPoint) -> Decoder:
    return Decoder(model.size, model.dtype, point["tokens_in"] or 1.0, point["tokens_out"] or 1.0)


def on_boards(
    model: ServedModel, gpu: GpuModel, boards: int, price: PriceRange | None
) -> ServedPlace:
    """Return the cheapest load within the service level on some boards, predicted.

    Its cost is lowest if all times are shortest, and highest if they are longest; then another load may be
    the cheapest within the service level.
    """
    more = 1.0 if boards == model.boards else COUNT_ERROR
    errors = {"latency": ERROR * more, "tpot": ERROR * more, "ttft": FIRST_ERROR * more}
    faster = {name: 1 / error for name, error in errors.items()}
    cases = (moved(model, gpu, boards, slower) for slower in (None, faster, errors))
    middle, fast, slow = (_at_price(curve, boards, price) for curve in cases)
    on = ServedPlace(gpu, boards, price, fitting(model, gpu, boards))
    return _chosen(on, (middle, fast, slow), errors)


def _at_price(curve: LoadCurve, boards: int, price: PriceRange | None) -> LoadCurve:
    """Return a curve with its cost at the median price of boards."""
    per_s = 0.0 if price is None else float(price.median) * boards / HOUR_S

    def priced(point: LoadPoint) -> LoadPoint:
        per_million = per_s / point.work_per_s * MILLION if per_s and point.work_per_s else None
        return replace(point, figures={**point.figures, "cost_per_million_tokens_out": per_million})

    return replace(curve, points=tuple(map(priced, curve.points)))


def _chosen(
    on: ServedPlace, cases: tuple[LoadCurve, LoadCurve, LoadCurve], errors: Mapping[str, float]
) -> ServedPlace:
    """Return boards with their cheapest load.

    Args:
        on: The boards.
        cases: The curve there: as predicted, with the shortest times, and with the longest.
        errors: Factors around times, by the beginnings of their names.
    """
    middle, fast, slow = (curve.cheapest for curve in cases)
    if middle is None:
        return on

    def around(name: str, value: float) -> Estimate:
        error = errors.get(name.partition("_")[0], 1.0)
        return Estimate(value, value / error, value * error)

    cost = None
    if middle.cost is not None:
        low = middle.cost if fast is None or fast.cost is None else fast.cost
        cost = Estimate(middle.cost, low, math.inf if slow is None else slow.cost or math.inf)
    return replace(
        on,
        point=middle,
        tokens_out_per_s=around("latency", middle.work_per_s),
        times_ms={name: around(name, middle[f"{name}_ms"] or 0.0) for name in cases[0].bounds_ms},
        cost=cost,
    )
