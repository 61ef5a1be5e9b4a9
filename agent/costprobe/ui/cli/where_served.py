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
    fitting,
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
        here = curve.cheapest
        return {
            "probe": curve.probe,
            "device": curve.device,
            "gpu_model": model.gpu.model,
            "devices": model.boards,
            "parameters_b": model.size.total_b,
            "dtype": model.dtype,
            "slo_ms": dict(curve.bounds_ms),
            "concurrency_max": fitting(model, model.gpu, model.boards),
            **_load(here),
            "tokens_out_per_s": None if here is None else here.work_per_s,
            "times_ms": {name: here and here[f"{name}_ms"] for name in curve.bounds_ms},
            "cost_per_million_tokens_out": None if here is None else here.cost,
            "currency": curve.currency or None,
            "currency_of_boards": RANGE_CURRENCY,
            "boards": [_document(place) for place in self.places],
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
        model, curve = self.model, self.model.curve
        times = [f"{name} ms" for name in curve.bounds_ms]
        rows: list[tuple[str, ...]] = [
            ("boards", "load", "tokens out/s", *times, "$/h", "per million out", "80 %", "by cloud")
        ]
        here = curve.cheapest
        if here is not None:
            rows.append(
                (
                    f"{_name(model.gpu, model.boards)} (here)",
                    here.text,
                    significant(here.work_per_s, MEASURED),
                    *(significant(here[f"{name}_ms"] or 0.0, MEASURED) for name in curve.bounds_ms),
                    "",
                    "-" if here.cost is None else money(here.cost, curve.currency),
                    "measured",
                    "",
                )
            )
        return rows + [tuple(_row(one)) for one in self.places if one.point and one.price]


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


def _load(point: LoadPoint | None) -> dict[str, Any]:
    return {
        "concurrency": None if point is None else point.concurrency,
        "offered_per_s": None if point is None else point["offered_per_s"],
    }


def _document(place: ServedElsewhere) -> dict[str, Any]:
    price = place.price
    rates = (None,) * 3 if price is None else (price.median, price.low, price.high)
    names = ("price_rate_per_h", "price_rate_low_per_h", "price_rate_high_per_h")
    return {
        "gpu_model": place.gpu.model,
        "devices": place.boards,
        "is_measured": place.is_measured,
        "concurrency_max": place.fitting,
        **_load(place.point),
        "tokens_out_per_s": interval(place.tokens_out_per_s),
        "times": [
            {"name": name, **{f"{end}_ms": value for end, value in asdict(one).items()}}
            for name, one in place.times_ms.items()
        ],
        "cost_per_million_tokens_out": interval(place.cost),
        **{
            name: None if rate is None else float(rate) * place.boards
            for name, rate in zip(names, rates, strict=True)
        },
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


def _row(place: ServedElsewhere) -> Iterator[str]:
    """Yield the cells of boards with a load."""
    digits = MEASURED if place.is_measured else MODELLED
    yield _name(place.gpu, place.boards)
    yield "" if place.point is None else place.point.text
    for figure in (place.tokens_out_per_s, *place.times_ms.values()):
        yield "" if figure is None else significant(rounded(figure.value, digits))
    if place.price is not None and place.cost is not None:
        cost, price = place.cost, place.price
        yield f"{float(price.median) * place.boards:.2f}"
        yield money(cost.value, RANGE_CURRENCY, digits)
        yield range_words(cost, is_measured=place.is_measured)
        per_rate = cost.value / float(price.median)
        by_cloud = Estimate(cost.value, per_rate * float(price.low), per_rate * float(price.high))
        yield range_words(by_cloud, is_measured=False)
