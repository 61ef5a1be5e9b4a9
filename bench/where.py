"""How well the time of a model on another board is predicted, for boards that the fit did not know.

    python bench/where.py [--halves 300]

The exponents of `costprobe.savings.where` are fitted to the results of half of the boards in `mlperf.csv`
(one sample at a time, and at full load), and judged on pairs of the other half. Where a board has both results
of a model, they are two batches, as of a probe.

The constants of `costprobe.savings.decoder` are fitted to the results in `decoders.csv` without one board, and judged
on that board.

The load curves of `costprobe.savings.served` are predicted for simulated servers (`batching.py`) on boards whose
rates and fixed times differ from those of the method, and from each other's. With --curves they are the
published ones of NVIDIA NIM, and with --batches fixed batches of TensorRT-LLM 0.9: tables of NVIDIA's course on
sizing inference, as in github.com/wbing520/ai-performance-engineering@5a4d0c3. None of them is in a fit.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "agent"))

from batching import BatchingServer, Gpu, Model, RequestLoad, Shape
from costprobe.core.statistics import quantile
from costprobe.pricing.catalogue import GpuModel, PriceRange
from costprobe.pricing.catalogue_files import gpu_names
from costprobe.probing.load_curve import LoadCurve, LoadPoint
from costprobe.savings import decoder, served, where
from costprobe.serving.settings import ModelSize, size_of

RESULTS = ROOT / "bench" / "mlperf.csv"
DECODERS = ROOT / "bench" / "decoders.csv"
# Share of a pass that does not grow with the batch.
CLASSES = (
    (0.0, 0.01, "full load"),
    (0.01, 0.6, "0 to 0.6"),
    (0.6, 0.9, "to 0.9"),
    (0.9, 1.01, "one small item"),
)


class Pair(NamedTuple):
    """A model on two boards: logarithms of the ratios of time, rate and power.

    Attributes:
        boards: Here and there.
        fixed: Share of the pass here that does not grow with the batch.
        time, rate, power: There over here, here over there, and here over there.
    """

    boards: tuple[str, str]
    fixed: float
    time: float
    rate: float
    power: float


def pairs() -> list[Pair]:
    """Return the pairs of boards of the catalogue whose rate and power are known."""
    gpus = {gpu.model: gpu for gpu in gpu_names().gpus if gpu.tdp_w and gpu.flop_per_s.get("fp16")}
    times: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    with RESULTS.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["gpu_model"] in gpus:
                key = row["round"], row["model"], row["scenario"]
                times[key][row["gpu_model"]] = float(row["ms"])
    found = []
    for (round_, model, scenario), by_board in times.items():
        loaded = times.get((round_, model, "Offline"), {})
        for here, here_ms in by_board.items():
            if scenario != "Offline" and here not in loaded:
                continue
            fixed = max(0.0, 1 - loaded[here] / here_ms)
            for there, there_ms in by_board.items():
                if there != here:
                    a, b = gpus[here], gpus[there]
                    rate = math.log(a.flop_per_s["fp16"] / b.flop_per_s["fp16"])
                    power = math.log((a.tdp_w or 1) / (b.tdp_w or 1))
                    found.append(
                        Pair((here, there), fixed, math.log(there_ms / here_ms), rate, power)
                    )
    return found


def predicted(exponents: Sequence[float], pair: Pair) -> float:
    """Return the logarithm of the ratio of times."""
    rate, power, fixed = exponents
    work = math.exp(rate * pair.rate + power * pair.power)
    return math.log(pair.fixed * math.exp(fixed * pair.rate) + (1 - pair.fixed) * work)


def fitted(known: Sequence[Pair]) -> list[float]:
    """Return the exponents of least squares, by the method of Gauss and Newton."""
    import numpy as np

    exponents = [0.5, 0.5, 0.5]
    for _ in range(20):
        rest = np.array([pair.time - predicted(exponents, pair) for pair in known])
        slopes = np.empty((len(known), 3))
        for column in range(3):
            moved = [one + 1e-4 * (n == column) for n, one in enumerate(exponents)]
            slopes[:, column] = [
                (predicted(moved, pair) - predicted(exponents, pair)) / 1e-4 for pair in known
            ]
        step = np.linalg.lstsq(slopes, rest, rcond=None)[0]
        exponents = [one + float(change) for one, change in zip(exponents, step, strict=True)]
        if max(abs(step)) < 1e-4:
            break
    return exponents


def factors(errors: Sequence[float]) -> tuple[float, float]:
    """Return the factors within which half and 80 % of the results are; errors are logarithms."""
    ordered = sorted(errors)
    return math.exp(quantile(ordered, 0.5)), math.exp(quantile(ordered, 0.8))


def share_within(errors: Sequence[float], factor: float) -> float:
    """Return the share of results within a factor; errors are logarithms."""
    return statistics.fmean(error <= math.log(factor) for error in errors)


class Served(NamedTuple):
    """A result of a decoder: what it is, the boards, and its tokens out per second."""

    model: decoder.Decoder
    gpu: str
    boards: int
    tokens_per_s: float


NAMES = ("PREFILL", "WEIGHTS", "CACHE", "LAYER_S", "EXCHANGE_S")
# The values that are tried for each constant.
TRIED = (
    (0.35, 0.4, 0.45, 0.5, 0.55),
    (0.7, 0.8, 0.9),
    (0.5, 0.6, 0.7, 0.8),
    (0.06e-3, 0.125e-3, 0.25e-3),
    (0.1e-3, 0.2e-3, 0.3e-3),
)


def decoders() -> list[Served]:
    """Return the results of boards of which the catalogue has the rates."""
    found = []
    with DECODERS.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            size, lengths = size_of(row["model"]), (int(row["tokens_in"]), int(row["tokens_out"]))
            if size is None:
                raise ValueError(f"{DECODERS}: {row}")
            model = decoder.Decoder(size, cast("decoder.Dtype", row["dtype"]), *lengths)
            found.append(
                Served(model, row["gpu_model"], int(row["gpus"]), float(row["tokens_per_s"]))
            )
    gpus = {gpu.model for gpu in gpu_names().gpus if gpu.flop_per_s}
    return [one for one in found if one.gpu in gpus]


def decoder_errors(found: Sequence[Served]) -> list[float]:
    """Return the logarithm of predicted over measured tokens per second."""
    gpus = {gpu.model: gpu for gpu in gpu_names().gpus}
    errors = []
    for one in found:
        made = decoder.replica(one.model, gpus[one.gpu], one.boards)
        if made is None:
            raise ValueError(f"{one} does not fit")
        rate = made.in_flight * one.model.tokens_out / (made.prefill_s + made.decode_s)
        errors.append(math.log(rate / one.tokens_per_s))
    return errors


def fit_decoder(found: Sequence[Served]) -> None:
    """Set the constants to those with the least squares of the errors."""

    def tried(constants: Sequence[float]) -> float:
        for name, value in zip(NAMES, constants, strict=True):
            setattr(decoder, name, value)
        return math.fsum(error * error for error in decoder_errors(found))

    tried(min(itertools.product(*TRIED), key=tried))


def judge_decoders() -> None:
    """Print how well the decoders of each board are predicted by the others."""
    found = decoders()
    used = [getattr(decoder, name) for name in NAMES]
    fit_decoder(found)
    print(f"{len(found)} decoders; fitted", *(f"{n} {getattr(decoder, n):g}" for n in NAMES))
    print("used  ", *(f"{name} {value:g}" for name, value in zip(NAMES, used, strict=True)))
    print("left out                 median  80 %   within the interval")
    of_all = []
    for board in sorted({one.gpu for one in found}):
        fit_decoder([one for one in found if one.gpu != board])
        errors = [abs(one) for one in decoder_errors([one for one in found if one.gpu == board])]
        of_all += errors
        middle, most = factors(errors)
        inside = share_within(errors, decoder.ERROR)
        print(f"{board:24} {middle:6.2f} {most:5.2f} {inside:21.0%}")
    print(f"all {share_within(of_all, decoder.ERROR):.0%} within the interval")
    for name, value in zip(NAMES, used, strict=True):
        setattr(decoder, name, value)


# A load curve, and what else than the board it has in common with others that it predicts.
Measured = tuple[object, served.ServedModel]
SIZES = {
    "1B": Model(1.24e9, 16, 2048, 8, 64),
    "8B": Model(8.03e9, 32, 4096, 8),
    "70B": Model(70.6e9, 80, 8192, 8),
}
BOARDS = (
    "NVIDIA L4",
    "NVIDIA L40S",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H200",
)
LOADS = ((200, 200), (2000, 250), (500, 500), (8000, 200))


def simulated_curve(
    size: str, gpu: GpuModel, board: Gpu, lengths: tuple[int, int], budget: int | None
) -> served.ServedModel | None:
    """Return the load curve of a simulated server; None if the model does not fit its board."""
    tokens_in, tokens_out = lengths
    shapes = tuple(
        Shape(int(tokens_in * x), int(tokens_out * y)) for x, y in ((0.6, 1.3), (1, 1), (1.4, 0.7))
    )
    model = SIZES[size]
    free = 0.9 * float(gpu.memory_gb or 0) * 1e9 - 2 * model.parameters
    fitting = int(free / (model.kv_bytes * (tokens_in + tokens_out)))
    if fitting < 1:
        return None
    points = []
    for number, clients in enumerate((1, 2, 4, 8, 16, 32, 64), 1):
        load = RequestLoad(tokens_in, tokens_out, clients, shapes)
        done = BatchingServer(board, model, budget, fitting).serve(load, 6 * clients + 30).done
        # Requests of the steady state: without those that are sent at once, and those of the end.
        done = done[2 * clients : -clients]
        times = {
            "ttft": [one.first_s - one.sent_s for one in done],
            "tpot": [(one.last_s - one.first_s) / (one.written - 1) for one in done],
            "latency": [one.last_s - one.sent_s for one in done],
        }
        tokens = sum(one.written for one in done[1:])
        figures = {
            "tokens_out_per_s": tokens / (done[-1].last_s - done[0].last_s),
            "tokens_in": float(tokens_in),
            "tokens_out": float(tokens_out),
            "requests": float(len(done)),
            **{f"{name}_p90_ms": quantile(sorted(s), 0.9) * 1e3 for name, s in times.items()},
        }
        points.append(LoadPoint("closed", number, clients, figures))
    curve = LoadCurve("p", "gpu0", "USD", "", 0, {}, tuple(points))
    billion = model.parameters / 1e9
    return served.ServedModel(curve, ModelSize(billion, billion), "bf16", gpu, 1)


def simulated_curves() -> list[Measured]:
    """Return the load curves of simulated servers on boards that reach different shares of their peaks."""
    gpus = {gpu.model: gpu for gpu in gpu_names().gpus}
    chance = random.Random(1)
    found: list[Measured] = []
    for board in BOARDS:
        gpu = gpus[board]
        flop, rate = gpu.flop_per_s["bf16"], gpu.memory_bytes_per_s or 0.0
        reached = Gpu(
            flop * chance.uniform(0.35, 0.6),
            rate * chance.uniform(0.65, 0.9),
            chance.uniform(1e-3, 4e-3),
        )
        for key in itertools.product(SIZES, LOADS, (None, 2048)):
            curve = simulated_curve(key[0], gpu, reached, *key[1:])
            found += [] if curve is None else [(key, curve)]
    return found


def published_curves(file: Path) -> list[Measured]:
    """Return the load curves of NIM, in which the 95th percentile of the first token stands for the 90th."""
    gpus = {gpu.model.replace(" ", "_"): gpu for gpu in gpu_names().gpus}
    curves: dict[tuple[str, ...], list[LoadPoint]] = defaultdict(list)
    with file.open() as lines:
        for row in csv.DictReader(lines):

            def value(name: str, row: dict[str, str] = row) -> float:
                return float(row[name])

            of_task = [
                row[f"task_inputs-{name}"] for name in ("model", "precision", "GPU", "n_gpus")
            ]
            tokens = value("num_output_token-avg")
            decode_ns = value("request_latency-avg") - value("time_to_first_token-avg")
            figures = {
                "tokens_out_per_s": value("output_token_throughput-avg"),
                "tokens_in": value("num_input_token-avg"),
                "tokens_out": tokens,
                "ttft_p90_ms": value("time_to_first_token-p95") / 1e6,
                "tpot_p90_ms": decode_ns / (tokens - 1) / 1e6,
                "latency_p90_ms": value("request_latency-p95") / 1e6,
                "requests": 1.0,
            }
            clients = int(value("input_config-concurrency"))
            lengths = [f"{round(figures[name], -2)}" for name in ("tokens_in", "tokens_out")]
            curves[*of_task, *lengths].append(LoadPoint("closed", clients, clients, figures))
    found: list[Measured] = []
    for (model, precision, gpu, boards, *lengths), points in curves.items():
        size, dtype = size_of(model), cast("decoder.Dtype", precision.replace("fp16", "bf16"))
        if size is not None:
            curve = LoadCurve("p", "gpu0", "USD", "", 0, {}, tuple(points))
            one = served.ServedModel(curve, size, dtype, gpus[f"NVIDIA_{gpu}"], int(boards))
            found.append(((size, dtype, *lengths), one))
    return found


# Models of the tables of batches with grouped-query attention, and the catalogue's names of its boards.
GROUPED = {"Mistral 7B": 7.2, "LLaMA v2 70B": 69.0}
GH200 = {"NVIDIA GH200 120GB": "NVIDIA GH200 480GB", "NVIDIA H200 141GB HBM3": "NVIDIA H200"}


def published_batches(file: Path) -> list[Measured]:
    """Return the throughput of fixed batches of TensorRT-LLM as load curves."""
    gpus = {gpu.model: gpu for gpu in gpu_names().gpus}
    points: dict[tuple[str, ...], list[LoadPoint]] = defaultdict(list)
    with file.open() as lines:
        for row in csv.DictReader(lines):
            board, tokens_per_s = f"NVIDIA {row['GPU']}", row["Throughput (tokens / sec)"]
            whole = row["Tensor Model Parallel Size"] == row["Number of GPUs"]
            if tokens_per_s and whole and row["Model"] in GROUPED:
                batch = int(row["Batch Size"])
                names = {"tokens_in": "Input Token Length", "tokens_out": "Output Token Length"}
                figures = {name: float(row[column]) for name, column in names.items()}
                figures |= {"tokens_out_per_s": float(tokens_per_s), "requests": 1.0}
                key = row["Model"], row["Precision"], row["Input/Output Lengths"]
                place = GH200.get(board, board), row["Number of GPUs"]
                points[*key, *place].append(LoadPoint("closed", batch, batch, figures))
    found: list[Measured] = []
    for (model, precision, lengths, board, number), of_board in points.items():
        size, boards = ModelSize(GROUPED[model], GROUPED[model]), int(number)
        curve = LoadCurve("p", "gpu0", "USD", "", 0, {}, tuple(of_board))
        dtype: decoder.Dtype = "fp8" if precision == "FP8" else "bf16"
        if boards in decoder.counts_of(gpus[board]):
            one = served.ServedModel(curve, size, dtype, gpus[board], boards)
            found.append(((model, precision, lengths), one))
    return found


SLO = {"ttft_p90": 500.0, "tpot_p90": 40.0}
PRICE = PriceRange(Decimal(1), Decimal(1), Decimal(1), (), "")


def judge_curves(name: str, found: Sequence[Measured], slo: dict[str, float]) -> None:
    """Print how well the load curve of each board predicts that of each other one, and its cheapest point."""
    errors: dict[tuple[bool, str], list[float]] = defaultdict(list)
    inside: list[bool] = []
    for (key, here), (other, there) in itertools.permutations(found, 2):
        if key != other:
            continue
        same = here.boards == there.boards
        truth = {point.concurrency: point for point in there.curve.points}
        for point in served.moved(here, there.gpu, there.boards).points:
            for figure in ("tokens_out_per_s", "ttft_p90_ms", "tpot_p90_ms", "latency_p90_ms"):
                guess = point[figure]
                real = truth[point.concurrency][figure] if point.concurrency in truth else None
                if real and guess:
                    errors[same, figure].append(abs(math.log(guess / real)))
        bound = replace(here, curve=replace(here.curve, bounds_ms=slo))
        guessed = served.on_boards(bound, there.gpu, there.boards, PRICE).cost
        device = "+".join("g" * there.boards)
        curve = replace(there.curve, device=device)
        reached = served.measured_there(bound, curve, there.gpu, PRICE).cost
        if guessed is not None:
            cost = math.inf if reached is None else reached.value
            inside.append(guessed.low <= cost <= guessed.high)
    print(f"{len(found)} {name} load curves   points  median  80 %   within the interval")
    for (same, figure), each in sorted(errors.items(), reverse=True):
        error = served.FIRST_ERROR if "ttft" in figure else decoder.ERROR
        middle, most = factors(each)
        words = figure if same else f"{figure}, other number"
        share = share_within(each, error * (1 if same else served.COUNT_ERROR))
        print(f"{words:31} {len(each):6,} {middle:7.2f} {most:5.2f} {share:21.0%}")
    if slo:
        print(
            f"lowest cost within {slo}: {statistics.fmean(inside):.0%} of {len(inside)} within the interval"
        )


def main() -> None:
    """Print the exponents, and the errors for boards that were left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--halves", type=int, default=300)
    parser.add_argument("--curves", type=Path, help="nim.csv")
    parser.add_argument("--batches", type=Path, help="trt_llm_0_9_0_dli.csv")
    asked = parser.parse_args()
    judge_boards(asked.halves)
    judge_decoders()
    judge_curves("simulated", simulated_curves(), SLO)
    if asked.curves is not None:
        judge_curves("published", published_curves(asked.curves), SLO)
    if asked.batches is not None:
        judge_curves("published batches as", published_batches(asked.batches), {})


def judge_boards(halves: int) -> None:
    """Print how well a model's time on a board is predicted."""
    found = pairs()
    boards = sorted({pair.boards[0] for pair in found})
    exponents = fitted(found)
    used = where.RATE, where.POWER, where.FIXED
    print(f"{len(found)} pairs of {len(boards)} boards; exponents of rate, power and fixed part:")
    print("fitted", *(f"{one:.2f}" for one in exponents), "used", *(f"{one:.2f}" for one in used))
    chance = random.Random(1)
    errors: dict[str, list[float]] = defaultdict(list)
    inside: dict[str, list[bool]] = defaultdict(list)
    for _ in range(halves):
        half = set(chance.sample(boards, len(boards) // 2))
        of_half = fitted([pair for pair in found if set(pair.boards) <= half])
        for pair in found:
            if set(pair.boards) & half:
                continue
            error = abs(pair.time - predicted(of_half, pair))
            name = next(name for low, high, name in CLASSES if low <= pair.fixed < high)
            width = math.log(where.FIXED_ERROR) * pair.fixed + math.log(where.WORK_ERROR) * (
                1 - pair.fixed
            )
            errors[name].append(error)
            inside[name].append(error <= width)
    print("fixed share      pairs  median  80 %   within the interval")
    for _, _, name in CLASSES:
        middle, most = factors(errors[name])
        print(
            f"{name:15} {len(errors[name]):6,} {middle:7.2f} {most:5.2f} {statistics.fmean(inside[name]):21.0%}"
        )


if __name__ == "__main__":
    main()
