"""`costprobe where`: a measured model on every other board, predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import click

from costprobe.core.money import MEASURED, MODELLED, common_scale, money, per_words
from costprobe.core.outside import SHAPE_ERRORS, bounded_object, read_regular
from costprobe.core.units import counted, percent, significant
from costprobe.pricing.catalogue import RANGE_CURRENCY, Catalogue, GpuModel
from costprobe.savings.decoder import ERROR, Decoder, Dtype, PricedReplica, priced_replicas
from costprobe.savings.gather import MeasuredModel, measured_models
from costprobe.savings.where import (
    Elsewhere,
    Estimate,
    cheapest_first,
    elsewhere,
    fixed_share,
    here_at,
    precision_of,
)
from costprobe.serving.settings import ModelSize, size_of
from costprobe.ui.amounts import rounded, si_column
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.command_prices import echo_notes, stored_prices
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import STORED_PROBES, check_names
from costprobe.ui.cli.support.option_types import Parsed, since_option
from costprobe.ui.cli.support.output import echo_answer, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, nothing_since, reader_of

MAX_FILE_BYTES: Final = 1 << 20
MAX_TOKENS: Final = 1_000_000


def _board_file(text: str) -> tuple[str, Path]:
    board, equals, file = text.partition("=")
    if not board or not equals or not file:
        raise ValueError(f"{text!r}: write BOARD=FILE, such as L40S=l40s.json")
    return board, Path(file)


def _size(text: str) -> ModelSize:
    size = size_of(text)
    if size is None:
        raise ValueError(f"{text!r} is no size of a model; write 8B, 30B-A3B or 8x7B")
    return size


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe where  # each probe on all other boards, the cheapest first",
        "costprobe where ranker --measured L40S=l40s.json  # with a result from a rented board",
        "costprobe where --decoder 70B --dtype fp8 --in 2000 --out 250  # a decoder that was not measured",
    ),
)
@click.argument("probe", required=False, shell_complete=STORED_PROBES)
@click.option(
    "--measured",
    "files",
    type=Parsed("board=file", _board_file),
    multiple=True,
    help="Result of this probe on another board: the output of costprobe probe NAME --json there. May"
    " be repeated.",
)
@click.option(
    "--decoder",
    "size",
    type=Parsed("size", _size),
    help="Instead of a probe, a decoder of this size: 8B, 70B, 30B-A3B.",
)
@click.option(
    "--dtype",
    type=click.Choice(get_args(Dtype)),
    default="bf16",
    show_default=True,
    help="Type of its weights.",
)
@click.option(
    "--in",
    "tokens_in",
    type=click.IntRange(1, MAX_TOKENS),
    default=1000,
    show_default=True,
    help="Tokens in of a request.",
)
@click.option(
    "--out",
    "tokens_out",
    type=click.IntRange(1, MAX_TOKENS),
    default=250,
    show_default=True,
    help="Tokens out of a request.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_TOKENS),
    help="Requests in flight of a replica (default: as many as fit).",
)
@since_option("30d")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(  # noqa: PLR0913 - one argument for each option
    config: str | None,
    *,
    probe: str | None,
    files: Sequence[tuple[str, Path]],
    size: ModelSize | None,
    dtype: Dtype,
    tokens_in: int,
    tokens_out: int,
    concurrency: int | None,
    since_ns: int,
    as_json: bool,
) -> None:
    """Predict time, energy and cost of a measured model on every other board, with an interval.

    From the boards' peak rates and powers: four of five results of boards that the method did not know
    lie in the interval. A sweep (costprobe probe NAME --sweep) measures which part of a pass does not
    grow with the batch, and narrows it. Prices are the catalogue's, on demand, in USD. With --decoder
    nothing is measured: the range is that of one engine (TensorRT-LLM) at full load.
    """
    settings = Settings(config)
    if size is not None:
        if probe is not None:
            raise bad_input("--decoder: it has no probe; leave one of them out")
        decoder = Decoder(size, dtype, tokens_in, tokens_out, concurrency)
        prices = stored_prices(settings)
        replicas = priced_replicas(decoder, prices.catalogue())
        echo_notes(prices)
        if not replicas:
            raise bad_input(
                f"no board of the catalogue holds it in {dtype}, nor eight with NVLink; lower"
                " --concurrency, or choose another --dtype"
            )
        documents = [_replica_document(one) for one in replicas]
        echo_answer(documents, _replica_lines(replicas), as_json=as_json)
        return
    if files and probe is None:
        raise bad_input("--measured: name the probe")
    with reader_of(settings) as reader:
        check_names(reader, settings, {"probe": probe})
        prices = stored_prices(settings)
        catalogue = prices.catalogue()
        echo_notes(prices)
        models = [
            one
            for one in measured_models(reader, settings.config.probe, since_ns)
            if probe in (None, one.history.probe)
        ]
    if not models:
        raise nothing_since("run of a probe on a whole GPU", since_ns)
    results = {_board(catalogue, board): _result(board, file) for board, file in files}
    compared: set[str] = set()
    answers: list[dict[str, Any]] = []
    lines: list[str] = []
    for one in models:
        here = catalogue.gpus.named(one.device.model, one.device.memory_bytes)
        if here is None or here.tdp_w is None or not here.flop_per_s:
            lines.append(
                f"{one.history.subject}: the catalogue has no peak rates of {one.device.model}"
            )
            continue
        places, unknown = elsewhere(
            one.batches,
            here,
            catalogue,
            precision_of(here, one.peak_flop_per_s, one.precision),
            one.history.bound_ms,
        )
        compared |= {place.gpu.model for place in places}
        found = _Found(
            one,
            here,
            cheapest_first(
                place.measured(*results[place.gpu.model]) if place.gpu.model in results else place
                for place in places
            ),
            unknown,
        )
        answers.append(_document(found))
        lines += _lines(found)
    if alone := sorted(results.keys() - compared):
        raise bad_input(
            f"--measured: {', '.join(alone)} has no prediction: it is the board of the probe, its peaks are"
            " unknown, or it is too slow for latency_bound"
        )
    if as_json:
        echo_json(answers)
    else:
        echo_lines(lines)


def _replica_document(one: PricedReplica) -> dict[str, Any]:
    of_boards = one.replica
    return {
        "gpu_model": of_boards.gpu.model,
        "devices": of_boards.boards,
        "concurrency": of_boards.in_flight,
        "tokens_out_per_s": one.tokens_out_per_s,
        "currency": RANGE_CURRENCY,
        "price_rate_per_h": float(one.price.median) * of_boards.boards,
        "cost_per_million_tokens_in": _around(one.cost_per_million_tokens_in),
        "cost_per_million_tokens_out": _around(one.cost_per_million_tokens_out),
    }


def _around(cost: float) -> dict[str, float]:
    return {"value": cost, "low": cost / ERROR, "high": cost * ERROR}


def _replica_lines(found: Sequence[PricedReplica]) -> Iterator[str]:
    def cells(cost: float) -> tuple[str, str]:
        ends = (significant(rounded(one, MODELLED)) for one in (cost / ERROR, cost * ERROR))
        return money(cost, RANGE_CURRENCY, MODELLED), " to ".join(ends)

    heads = (
        "boards",
        "in flight",
        "tokens out/s",
        "$/h",
        "per million in",
        "range",
        "per million out",
    )
    rows: list[tuple[str, ...]] = [(*heads, "range")]
    for one in found:
        boards = one.replica
        rows.append(
            (
                f"{boards.boards} x {boards.gpu.model}" if boards.boards > 1 else boards.gpu.model,
                f"{boards.in_flight:,}",
                significant(rounded(one.tokens_out_per_s, MODELLED)),
                f"{float(one.price.median) * boards.boards:.2f}",
                *cells(one.cost_per_million_tokens_in),
                *cells(one.cost_per_million_tokens_out),
            )
        )
    # The prices of tokens stay in a narrow terminal.
    yield from table_lines(rows, ranks=(0, 2, 0, 1, 0, 3, 0, 0))


class _Found(NamedTuple):
    """A model here and on other boards.

    Attributes:
        model: As measured here.
        here: The board.
        places: The other boards.
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


def _board(catalogue: Catalogue, name: str) -> str:
    """Return the model that a name of --measured is; raises with exit code 2."""
    found = catalogue.gpus.models_of(name)
    if not found:
        raise bad_input(f"--measured: no board {name!r} in the catalogue; see costprobe price list")
    known = [gpu.model for gpu in found if gpu.flop_per_s] or [found[0].model]
    exact = [model for model in known if f" {model}".endswith(f" {name}")]
    if len(exact or known) > 1:
        raise bad_input(f"--measured: {name!r} is one of {', '.join(known)}; write which")
    return (exact or known)[0]


def _result(board: str, path: Path) -> tuple[int, float, float | None]:
    """Return batch, latency in ms and energy of an item, as `probe --json` printed them."""
    try:
        document = bounded_object(read_regular(path, MAX_FILE_BYTES))
        energy = document.get("energy") or {}
        energy_j = energy.get("energy_per_inference_j")
        batch, latency_ms = int(document["batch"]), float(document["latency_p50_ms"])
        energy_j = None if energy_j is None else float(energy_j)
        if not (batch > 0 and 0 < latency_ms < math.inf and (energy_j is None or energy_j >= 0)):
            raise ValueError("an impossible figure")
    except OSError as error:
        raise bad_input(f"--measured {board}: {path}: {error.strerror}") from error
    except SHAPE_ERRORS as error:
        raise bad_input(
            f"--measured {board}: {path}: not the output of costprobe probe NAME --json"
        ) from error
    return batch, latency_ms, energy_j


def _document(found: _Found) -> dict[str, Any]:
    history, present = found.model.history, found.model.history.present
    return {
        "probe": history.probe,
        "device": history.device,
        "gpu_model": found.here.model,
        "batch": present.batch,
        "latency_p50_ms": present.latency_p50_ms,
        "energy_per_inference_j": present.energy_j,
        "cost_per_inference": None if found.model.paid is None else found.model.paid[0],
        "currency": None if found.model.paid is None else found.model.paid[1],
        "fixed_share": found.fixed,
        "currency_of_boards": RANGE_CURRENCY,
        "boards": [
            {
                "gpu_model": place.gpu.model,
                "is_measured": place.is_measured,
                "fits": place.fits,
                "batch": place.batch,
                "latency_p50_ms": _interval(place.latency_ms),
                "energy_per_inference_j": _interval(place.energy_per_inference_j),
                "cost_per_inference": _interval(place.cost_per_inference),
                "price_rate_per_h": None if place.price is None else float(place.price.median),
            }
            for place in found.places
        ],
        "boards_unknown": list(found.unknown),
    }


def _interval(figure: Estimate | None) -> dict[str, float] | None:
    return None if figure is None else asdict(figure)


def _lines(found: _Found) -> Iterator[str]:
    history, fixed = found.model.history, found.fixed
    shown = [place for place in found.places if place.fits is not False and place.price]
    costs = [place.cost_per_inference for place in shown]
    scale = common_scale([None if cost is None else cost.value for cost in costs])
    here = here_at(found.model.batches, history.bound_ms)
    energies = [place.energy_per_inference_j for place in shown]
    unit, joules = si_column(
        [
            *(one.energy_j for one, _ in here),
            *(None if one is None else rounded(one.value, MODELLED) for one in energies),
        ],
        "J",
    )
    yield (
        f"{history.subject}: "
        + (
            f"a sweep would narrow the intervals: costprobe probe {history.probe} --sweep"
            if fixed is None
            else f"{percent(fixed)} of a pass does not grow with the batch"
        )
    )
    heads = ("board", "batch", "latency ms", "80 %", f"energy {unit}", "$/h")
    rows = [(*heads, f"cost {per_words(scale)}", "80 %")]
    for (one, share), cell in zip(here, joules, strict=False):
        paid = (
            "-"
            if found.model.paid is None
            else money(found.model.paid[0] * share * scale, found.model.paid[1])
        )
        latency = significant(one.latency_p50_ms, MEASURED)
        name = f"{found.here.model} (here)"
        rows.append((name, str(one.batch), latency, "measured", cell, "", paid, "measured"))
    for place, cell in zip(shown, joules[len(here) :], strict=True):
        cost = place.cost_per_inference
        digits = MEASURED if place.is_measured else MODELLED
        rows.append(
            (
                place.gpu.model,
                str(place.batch),
                significant(place.latency_ms.value, digits),
                _range(place.latency_ms, is_measured=place.is_measured),
                cell,
                "-" if place.price is None else f"{place.price.median:.2f}",
                "-" if cost is None else money(cost.value * scale, RANGE_CURRENCY, digits),
                "-" if cost is None else _range(cost.times(scale), is_measured=place.is_measured),
            )
        )
    yield from table_lines(rows, ranks=(0, 0, 0, 2, 3, 1, 0, 0))
    small = [place.gpu.model for place in found.places if place.fits is False]
    unlisted = [
        place.gpu.model for place in found.places if place.fits is not False and not place.price
    ]
    if small:
        yield f"too little memory: {', '.join(small)}"
    if unlisted:
        yield f"no cloud lists: {', '.join(unlisted)}"
    if found.unknown:
        yield f"no peak rate or power of {counted(len(found.unknown), 'other board')} is known"


def _range(figure: Estimate, *, is_measured: bool) -> str:
    if is_measured:
        return "measured"
    return " to ".join(significant(rounded(one, MODELLED)) for one in (figure.low, figure.high))
