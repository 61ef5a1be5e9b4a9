"""The load curves of served decoders on other boards, as JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from costprobe.core.columns import as_number
from costprobe.core.money import MEASURED, MODELLED, money
from costprobe.core.units import counted, significant
from costprobe.pricing.catalogue import RANGE_CURRENCY
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint, slo_text
from costprobe.savings.served import ServedElsewhere, ServedPlace
from costprobe.savings.where import Estimate
from costprobe.ui.amounts import rounded
from costprobe.ui.cli.support.fitting import table_lines

# Above every figure of a load curve.
_LARGEST: Final = 1e15
BASIS: Final = (
    "80 %: errors of this method for published results of TensorRT-LLM on seven boards; with the same"
    " software and requests there. Prices: median of the clouds on demand, USD"
)


def served_document(found: ServedElsewhere) -> dict[str, Any]:
    """Return a served decoder on other boards as JSON."""
    model, curve = found.model, found.model.curve
    return {
        "probe": curve.probe,
        "device": curve.device,
        "parameters_b": model.size.total_b,
        "dtype": model.dtype,
        "slo_ms": dict(curve.bounds_ms),
        "currency": curve.currency or None,
        "here": _document(found.here),
        "currency_of_boards": RANGE_CURRENCY,
        "boards": [{**_document(place), **_rates(place)} for place in found.places],
    }


def served_lines(found: ServedElsewhere) -> Iterator[str]:
    """Yield a served decoder on other boards as text."""
    model, curve, places = found.model, found.model.curve, found.places
    within = f", within {slo_text(curve.bounds_ms)}" if curve.bounds_ms else ", without slo"
    yield (
        f"{curve.probe} on {curve.device}: a decoder of {model.size.total_b:g}B in {model.dtype}"
        f" (other: --decoder, --dtype){within}"
    )
    times = [f"{name} ms" for name in curve.bounds_ms]
    heads = ("boards", "load", "tokens out/s", *times, "$/h", "per million out", "80 %", "by cloud")
    rows = [_row(one, RANGE_CURRENCY) for one in places if one.point and one.price]
    here = [_row(found.here, curve.currency)] if found.here.point else []
    ranks = (0, 2, 1, *[0] * len(times), 3, 0, 0, 4)
    yield from table_lines([heads, *here, *rows], text_columns=2, ranks=ranks)
    most = max(point.concurrency or 0 for point in curve.points)
    notes: dict[str, list[str]] = {
        "memory limits the load": [],
        f"more than the measured {most} in flight may cost less": [],
        "too slow for slo": [],
        "too little memory": [],
        "no cloud lists": [],
    }
    limited, short, slow, small, unlisted = notes.values()
    for one in places:
        if one.point is None:
            (slow if one.fitting else small).append(one.gpu.model)
            continue
        if one.fitting < most:
            limited.append(f"{one.gpu.model} ({counted(one.fitting, 'request')})")
        elif one.point.concurrency == most < one.fitting and not one.is_measured:
            short.append(one.gpu.model)
        if one.price is None:
            unlisted.append(one.gpu.model)
    yield from (f"{words}: {', '.join(names)}" for words, names in notes.items() if names)
    yield BASIS


def curve_of(document: Mapping[str, Any]) -> LoadCurve:
    """Return the load curve of a document of `costprobe probe NAME --load --json`.

    Raises:
        LookupError, TypeError, ValueError: It is none.
    """
    points = []
    for number, one in enumerate(document["points"]):
        figures = {name: as_number(one.get(name)) for name in FIGURES}
        concurrency = one["concurrency"]
        in_flight = None if concurrency is None else int(concurrency)
        known = (x for x in (in_flight, *figures.values()) if x is not None)
        if not all(0 <= x < _LARGEST for x in known) or not figures["tokens_out_per_s"]:
            raise ValueError("an impossible figure, or no tokens")
        points.append(LoadPoint(one["loop"], number, in_flight, figures))
    if not points:
        raise ValueError("no points")
    return LoadCurve("", str(document["device"]), "", "", 0, {}, tuple(points))


def _document(place: ServedPlace) -> dict[str, Any]:
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


def _rates(place: ServedPlace) -> dict[str, float | None]:
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


def _row(place: ServedPlace, currency: str) -> tuple[str, ...]:
    """Return the cells of boards with a load."""
    digits = MEASURED if place.is_measured else MODELLED
    cost, price = place.cost, place.price
    per_hour = by_cloud = ""
    if price is not None and cost is not None:
        per_hour = f"{float(price.median) * place.boards:.2f}"
        low, high = (cost.value * float(one / price.median) for one in (price.low, price.high))
        by_cloud = range_words(Estimate(cost.value, low, high), is_measured=False)
    figures = (place.tokens_out_per_s, *place.times_ms.values())
    name = f"{place.boards} x {place.gpu.model}" if place.boards > 1 else place.gpu.model
    return (
        f"{name}{'' if price else ' (here)'}",
        "" if place.point is None else place.point.text,
        *("" if one is None else significant(rounded(one.value, digits)) for one in figures),
        per_hour,
        "-" if cost is None else money(cost.value, currency, digits),
        "measured" if cost is None else range_words(cost, is_measured=place.is_measured),
        by_cloud,
    )
