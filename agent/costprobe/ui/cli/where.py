"""`costprobe where`: a measured model on every other board, predicted."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, get_args

import click

from costprobe.core.money import MEASURED, MODELLED, common_scale, money, per_words
from costprobe.core.outside import SHAPE_ERRORS, bounded_object, read_regular
from costprobe.core.units import counted, percent, significant
from costprobe.fleet.boards import fleet_models
from costprobe.pricing.catalogue import RANGE_CURRENCY, Catalogue
from costprobe.pricing.prices import catalogue_folder
from costprobe.probing.load_curve import LoadCurve
from costprobe.probing.settings import ServedProbeConfig
from costprobe.savings.decoder import ERROR, Decoder, Dtype, PricedReplica, priced_replicas
from costprobe.savings.gather import measured_models, served_curves
from costprobe.savings.served import ServedCurve, ServedElsewhere, served_elsewhere
from costprobe.savings.where import (
    MeasuredModel,
    ModelElsewhere,
    UnpredictedError,
    here_at,
    model_elsewhere,
    typical,
)
from costprobe.serving.settings import ModelSize, size_of
from costprobe.ui.amounts import rounded, si_column
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.command_prices import echo_notes, stored_prices
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.fleet_options import FleetOptions, fleet_options
from costprobe.ui.cli.support.known_names import STORED_PROBES, check_names
from costprobe.ui.cli.support.option_types import FLEET_OPTION, Parsed, since_option
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input, nothing_since, reader_of
from costprobe.ui.cli.where_served import (
    curve_of,
    interval,
    range_words,
    served_document,
    served_lines,
)
from costprobe.ui.text import local

MAX_FILE_BYTES: Final = 1 << 20
_FLEET_CSV: Final = (
    *("probe", "gpu_model_here", "gpu_model", "is_measured", "fits", "batch", "latency_p50_ms"),
    *("latency_p50_ms_low", "latency_p50_ms_high", "energy_per_inference_j"),
    *(
        "cost_per_inference",
        "cost_per_inference_low",
        "cost_per_inference_high",
        "price_rate_per_h",
    ),
)
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
    help="Result of this probe on another board: the output of costprobe probe NAME --json there, of a server"
    " with --load. May be repeated.",
)
@click.option(
    "--decoder",
    "size",
    type=Parsed("size", _size),
    help="A decoder of this size, such as 8B, 70B or 30B-A3B: without PROBE one that was not measured, else"
    " the model of a server, where its name does not state it.",
)
@click.option(
    "--dtype",
    type=click.Choice(get_args(Dtype)),
    help="Type of its weights (default: as the model's name of a served probe states, else bf16).",
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
@FLEET_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(  # noqa: PLR0913 - one argument for each option
    config: str | None,
    *,
    probe: str | None,
    files: Sequence[tuple[str, Path]],
    size: ModelSize | None,
    dtype: Dtype | None,
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
    if size is not None and probe is None:
        decoder = Decoder(size, dtype or "bf16", tokens_in, tokens_out, concurrency)
        found = _replicas(settings, decoder)
        document = {"probes": [], "servers": [], "decoders": [_replica_document(x) for x in found]}
        echo_answer(document, _replica_lines(found), as_json=as_json)
        return
    if files and probe is None:
        raise bad_input("--measured: name the probe")
    models, curves, catalogue = _measured(settings, probe, since_ns)
    if size is not None and not curves:
        raise bad_input(f"--decoder: {probe} is no server with a load curve; leave one of them out")
    boards = {_board(catalogue, name): (name, file) for name, file in files}
    runs = {board: _result(*given) for board, given in boards.items() if models}
    there = {board: _curve(*given) for board, given in boards.items() if not models}
    answers: list[ModelElsewhere | ServedElsewhere] = []
    problems: list[str] = []
    measured: list[MeasuredModel | ServedCurve] = [*models, *curves]
    for one in measured:
        try:
            if isinstance(one, ServedCurve):
                answers.append(served_elsewhere(one, catalogue, size, dtype, there))
            else:
                answers.append(model_elsewhere(one, catalogue, runs))
        except UnpredictedError as error:
            problems.append(f"{one.subject}: {error}")
    if probe is not None and not answers:
        raise bad_input("; ".join(problems))
    compared = {place.gpu.model for answer in answers for place in answer.places}
    if alone := sorted(boards.keys() - compared):
        raise bad_input(
            f"--measured: {', '.join(alone)} has no prediction: it is the board of the probe, its peaks are"
            " unknown, it is too slow for latency_bound, or of a server another vendor's"
        )
    document = {
        "probes": [_document(one) for one in answers if isinstance(one, ModelElsewhere)],
        "servers": [served_document(one) for one in answers if isinstance(one, ServedElsewhere)],
        "decoders": [],
    }
    lines = [
        line
        for one in answers
        for line in (_lines(one) if isinstance(one, ModelElsewhere) else served_lines(one))
    ]
    echo_answer(document, [*lines, *problems], as_json=as_json)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe where --fleet  # each probe, on each GPU model that runs it, on all other boards",
    ),
)
@click.argument("probe", required=False)
@fleet_options(since="7d")
def fleet(options: FleetOptions, *, probe: str | None) -> None:
    """Predict time, energy and cost of the models of all hosts' probes on every other board.

    There is one answer for each probe and GPU model that runs it, from the medians over its devices.
    Other GPU models that run the probe are measured. The rows have no latency bound; servers are asked
    about on their hosts.
    """
    catalogue = catalogue_folder(Settings(options.config).store_path).at(time.time_ns()).loaded()
    with options.answers() as answers:
        models, servers = fleet_models(answers)
    models = [(one, n) for one, n in models if probe in (None, one.history.probe)]
    unpredicted = [
        f"{name}: rows have neither model nor slo of a server; ask on its host: costprobe where {name}"
        for name in servers
        if probe in (None, name)
    ]
    found: list[tuple[ModelElsewhere, int]] = []
    for one, devices in models:
        others = {
            board.model: (best.batch, best.latency_p50_ms, best.energy_j)
            for other, _ in models
            if other.history.probe == one.history.probe
            and (board := catalogue.gpus.named(other.device.model, other.device.memory_bytes))
            and (
                best := max((x.figures for x in other.batches), key=attrgetter("throughput_per_s"))
            )
        }
        try:
            found.append((model_elsewhere(one, catalogue, others), devices))
        except UnpredictedError as error:
            unpredicted.append(f"{one.history.probe}: {error}")
    documents = [
        {**_document(answer), "device": None, "devices": devices} for answer, devices in found
    ]
    rows = [
        {"probe": document["probe"], "gpu_model_here": document["gpu_model"], **_flat(board)}
        for document in documents
        for board in document["boards"]
    ]
    options.echo(
        answers,
        {"probes": documents, "unpredicted": unpredicted},
        (_FLEET_CSV, rows),
        [*(line for answer, _ in found for line in _lines(answer)), *unpredicted],
        shown=[*found, *unpredicted],
        wanted=f"run of {probe or 'a probe'} on a GPU",
    )


def _flat(board: Mapping[str, Any]) -> dict[str, Any]:
    """Return a board as a row of CSV: an interval is three columns."""
    row: dict[str, Any] = {}
    for name, held in board.items():
        if isinstance(held, dict):
            row |= {name: held["value"], f"{name}_low": held["low"], f"{name}_high": held["high"]}
        else:
            row[name] = held
    return row


def _measured(
    settings: Settings, probe: str | None, since_ns: int
) -> tuple[list[MeasuredModel], list[ServedCurve], Catalogue]:
    """Return what was measured of one probe or of all, and the catalogue; raises if nothing was."""
    config = settings.config
    with reader_of(settings) as reader:
        check_names(reader, settings, {"probe": probe})
        prices = stored_prices(settings)
        catalogue = prices.catalogue().loaded()
        echo_notes(prices)
        models = measured_models(reader, config.probe, since_ns)
        curves = served_curves(reader, config.probe, config.service, since_ns)
    models = typical([one for one in models if probe in (None, one.history.probe)])
    curves = [one for one in curves if probe in (None, one.probe.name)]
    if not models and not curves:
        if any(isinstance(one, ServedProbeConfig) and one.name == probe for one in config.probe):
            raise click.ClickException(
                f"no load curve of {probe} since {local(since_ns)}; run: costprobe probe {probe} --load"
            )
        raise nothing_since("run of a probe on a whole GPU", since_ns)
    return models, curves, catalogue


def _replicas(settings: Settings, decoder: Decoder) -> list[PricedReplica]:
    """Return a decoder on the boards of the catalogue; raises with exit code 2 if none holds it."""
    prices = stored_prices(settings)
    found = priced_replicas(decoder, prices.catalogue().loaded())
    echo_notes(prices)
    if not found:
        raise bad_input(
            f"no board of the catalogue holds it in {decoder.dtype}, nor eight with NVLink; lower"
            " --concurrency, or choose another --dtype"
        )
    return found


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


def _curve(board: str, path: Path) -> LoadCurve:
    """Return a load curve, as `probe --load --json` printed it."""
    try:
        return curve_of(bounded_object(read_regular(path, MAX_FILE_BYTES)))
    except OSError as error:
        raise bad_input(f"--measured {board}: {path}: {error.strerror}") from error
    except SHAPE_ERRORS as error:
        raise bad_input(
            f"--measured {board}: {path}: not the output of costprobe probe NAME --load --json"
        ) from error


def _document(found: ModelElsewhere) -> dict[str, Any]:
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
                "latency_p50_ms": interval(place.latency_ms),
                "energy_per_inference_j": interval(place.energy_per_inference_j),
                "cost_per_inference": interval(place.cost_per_inference),
                "price_rate_per_h": None if place.price is None else float(place.price.median),
            }
            for place in found.places
        ],
        "boards_unknown": list(found.unknown),
    }


def _lines(found: ModelElsewhere) -> Iterator[str]:
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
                range_words(place.latency_ms, is_measured=place.is_measured),
                cell,
                "-" if place.price is None else f"{place.price.median:.2f}",
                "-" if cost is None else money(cost.value * scale, RANGE_CURRENCY, digits),
                "-"
                if cost is None
                else range_words(cost.times(scale), is_measured=place.is_measured),
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
