"""The load curves of served decoders on other boards, as JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from costprobe.core.columns import as_number
from costprobe.core.money import MEASURED, MODELLED, money
from costprobe.core.units import counted, significant
from costprobe.pricing.catalogue import RANGE_CURRENCY, Catalogue, GpuModel
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint, slo_text
from costprobe.savings.decoder import Dtype
from costprobe.savings.served import (
    ServedCurve,
    ServedElsewhere,
    ServedModel,
    measured_here,
    measured_there,
    rank,
    served_elsewhere,
    served_model,
)
from costprobe.savings.where import Estimate
from costprobe.serving.settings import ModelSize
from costprobe.ui.amounts import rounded
from costprobe.ui.cli.support.fitting import table_lines

BASIS: Final = (
    "80 %: errors of this method for published results of TensorRT-LLM on seven boards; with the same"
    " software and requests there. Prices: median of the clouds on demand, USD"
)


class ServedAnswer(NamedTuple):
    """A served decoder here and on other boards.

    Attributes:
        found: Its load curve, with the probe.
        model: The decoder.
        places: The other boards.
    """

    found: ServedCurve
    model: ServedModel
    places: Sequence[ServedElsewhere]

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        model, curve = self.model, self.model.curve
        return {
            "probe": curve.probe,
            "device": curve.device,
            "parameters_b": model.size.total_b,
            "dtype": model.dtype,
            "slo_ms": dict(curve.bounds_ms),
            "currency": curve.currency or None,
            "here": _document(measured_here(model)),
            "currency_of_boards": RANGE_CURRENCY,
            "boards": [{**_document(place), **_rates(place)} for place in self.places],
        }

    def lines(self) -> Iterator[str]:
        """Yield the answer as text."""
        model, curve = self.model, self.model.curve
        within = f", within {slo_text(curve.bounds_ms)}" if curve.bounds_ms else ", without slo"
        yield (
            f"{curve.probe} on {curve.device}: a decoder of {model.size.total_b:g}B in {model.dtype}"
            f" (other: --decoder, --dtype){within}"
        )
        times = [0] * len(curve.bounds_ms)
        yield from table_lines(self._rows(), text_columns=2, ranks=(0, 2, 1, *times, 3, 0, 0, 4))
        most = max(point.concurrency or 0 for point in curve.points)
        limited = [
            f"{_name(one.gpu, one.boards)} ({counted(one.fitting, 'request')})"
            for one in self.places
            if one.point is not None and one.fitting < most
        ]
        short = [
            one.gpu.model
            for one in self.places
            if one.point and not one.is_measured and one.point.concurrency == most < one.fitting
        ]
        slow = [one.gpu.model for one in self.places if one.fitting and one.point is None]
        small = [one.gpu.model for one in self.places if not one.fitting]
        unlisted = [one.gpu.model for one in self.places if one.point and one.price is None]
        for words, names in (
            ("memory limits the load", limited),
            (f"more than the measured {most} in flight may cost less", short),
            ("too slow for slo", slow),
            ("too little memory", small),
            ("no cloud lists", unlisted),
        ):
            if names:
                yield f"{words}: {', '.join(names)}"
        yield BASIS

    def _rows(self) -> list[tuple[str, ...]]:
        curve, here = self.model.curve, measured_here(self.model)
        times = [f"{name} ms" for name in curve.bounds_ms]
        heads = (
            "boards",
            "load",
            "tokens out/s",
            *times,
            "$/h",
            "per million out",
            "80 %",
            "by cloud",
        )
        listed = [_row(one, RANGE_CURRENCY) for one in self.places if one.point and one.price]
        return [heads, *([_row(here, curve.currency)] if here.point else []), *listed]


def served_answer(
    found: ServedCurve,
    catalogue: Catalogue,
    size: ModelSize | None,
    dtype: Dtype | None,
    results: Mapping[str, LoadCurve],
) -> ServedAnswer:
    """Return a served decoder on all boards of the catalogue.

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
    places = [
        measured_there(model, results[place.gpu.model], place.gpu, place.price)
        if place.gpu.model in results
        else place
        for place in served_elsewhere(model, catalogue)
    ]
    return ServedAnswer(found, model, sorted(places, key=rank))


def curve_of(document: Mapping[str, Any]) -> LoadCurve:
    """Return the load curve of a document of `costprobe probe NAME --load --json`.

    Raises:
        LookupError, TypeError, ValueError: It is none.
    """
    points = [
        LoadPoint(
            one["loop"],
            int(one["number"]),
            None if one["concurrency"] is None else int(one["concurrency"]),
            {name: as_number(one.get(name)) for name in FIGURES},
        )
        for one in document["points"]
    ]
    if not points or any(
        not math.isfinite(value) or value < 0
        for point in points
        for value in point.figures.values()
        if value is not None
    ):
        raise ValueError("no points, or an impossible figure")
    device = str(document["device"])
    return LoadCurve("", device, "", "", 0, {}, tuple(points))


def _document(place: ServedElsewhere) -> dict[str, Any]:
    point = place.point
    return {
        "gpu_model": place.gpu.model,
        "devices": place.boards,
        "is_measured": place.is_measured,
        "concurrency_max": place.fitting,
        "concurrency": None if point is None else point.concurrency,
        "offered_per_s": None if point is None else point["offered_per_s"],
        "tokens_out_per_s": interval(place.tokens_out_per_s),
        "slo_times": [
            {"name": name, **{f"{end}_ms": value for end, value in asdict(one).items()}}
            for name, one in place.times_ms.items()
        ],
        "cost_per_million_tokens_out": interval(place.cost),
    }


def _rates(place: ServedElsewhere) -> dict[str, float | None]:
    """Return the list prices of boards: the median, that of the cheapest cloud and of the dearest."""
    price = place.price
    rates = (None,) * 3 if price is None else (price.median, price.low, price.high)
    names = ("price_rate_per_h", "price_rate_low_per_h", "price_rate_high_per_h")
    return {
        name: None if rate is None else float(rate) * place.boards
        for name, rate in zip(names, rates, strict=True)
    }


def interval(figure: Estimate | None) -> dict[str, float | None] | None:
    """Return a figure with its interval as JSON; an unknown end is null."""
    if figure is None:
        return None
    return {name: end if math.isfinite(end) else None for name, end in asdict(figure).items()}


def range_words(figure: Estimate, *, is_measured: bool) -> str:
    """Return an interval as text."""
    if is_measured:
        return "measured"
    low, high = (significant(rounded(one, MODELLED)) for one in (figure.low, figure.high))
    return f"{low} to {high}" if math.isfinite(figure.high) else f"from {low}"


def _name(gpu: GpuModel, boards: int) -> str:
    return f"{boards} x {gpu.model}" if boards > 1 else gpu.model


def _row(place: ServedElsewhere, currency: str) -> tuple[str, ...]:
    """Return the cells of boards with a load."""
    digits = MEASURED if place.is_measured else MODELLED
    cost, price = place.cost, place.price
    per_hour = by_cloud = ""
    if price is not None and cost is not None:
        per_hour = f"{float(price.median) * place.boards:.2f}"
        low, high = (cost.value * float(one / price.median) for one in (price.low, price.high))
        by_cloud = range_words(Estimate(cost.value, low, high), is_measured=False)
    figures = (place.tokens_out_per_s, *place.times_ms.values())
    return (
        _name(place.gpu, place.boards) + ("" if price else " (here)"),
        "" if place.point is None else place.point.text,
        *("" if one is None else significant(rounded(one.value, digits)) for one in figures),
        per_hour,
        "-" if cost is None else money(cost.value, currency, digits),
        "measured" if cost is None else range_words(cost, is_measured=place.is_measured),
        by_cloud,
    )
