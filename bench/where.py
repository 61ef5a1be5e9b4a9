"""How well the time of a model on another board is predicted, for boards that the fit did not know.

    python bench/where.py [--halves 300]

The exponents of `costprobe.savings.where` are fitted to the results of half of the boards in `mlperf.csv`
(one sample at a time, and at full load), and judged on pairs of the other half. Where a board has both results
of a model, they are two batches, as of a probe.

The constants of `costprobe.savings.decoder` are fitted to the results in `decoders.csv` without one board, and judged
on that board.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "agent"))

from costprobe.pricing.catalogue_files import gpu_names
from costprobe.savings import decoder, where
from costprobe.serving.settings import size_of

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


def served() -> list[Served]:
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


def decoder_errors(found: Sequence[Served]) -> np.ndarray:
    """Return the logarithm of predicted over measured tokens per second."""
    gpus = {gpu.model: gpu for gpu in gpu_names().gpus}
    errors = []
    for one in found:
        made = decoder.replica(one.model, gpus[one.gpu], one.boards)
        if made is None:
            raise ValueError(f"{one} does not fit")
        rate = made.in_flight * one.model.tokens_out / (made.prefill_s + made.decode_s)
        errors.append(math.log(rate / one.tokens_per_s))
    return np.array(errors)


def fit_decoder(found: Sequence[Served]) -> None:
    """Set the constants to those with the least squares of the errors."""

    def tried(constants: Sequence[float]) -> float:
        for name, value in zip(NAMES, constants, strict=True):
            setattr(decoder, name, value)
        return float((decoder_errors(found) ** 2).sum())

    tried(min(itertools.product(*TRIED), key=tried))


def judge_decoders() -> None:
    """Print how well the decoders of each board are predicted by the others."""
    found = served()
    used = [getattr(decoder, name) for name in NAMES]
    fit_decoder(found)
    print(f"{len(found)} decoders; fitted", *(f"{n} {getattr(decoder, n):g}" for n in NAMES))
    print("used  ", *(f"{name} {value:g}" for name, value in zip(NAMES, used, strict=True)))
    print("left out                 median  80 %   within the interval")
    of_all = []
    for board in sorted({one.gpu for one in found}):
        fit_decoder([one for one in found if one.gpu != board])
        errors = abs(decoder_errors([one for one in found if one.gpu == board]))
        of_all += list(errors)
        middle, most = (math.exp(np.quantile(errors, share)) for share in (0.5, 0.8))
        inside = np.mean(errors <= math.log(decoder.ERROR))
        print(f"{board:24} {middle:6.2f} {most:5.2f} {inside:21.0%}")
    print(f"all {np.mean(np.array(of_all) <= math.log(decoder.ERROR)):.0%} within the interval")


def main() -> None:
    """Print the exponents, and the errors for boards that were left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--halves", type=int, default=300)
    halves = parser.parse_args().halves
    judge_boards(halves)
    judge_decoders()


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
        middle, most = (math.exp(np.quantile(errors[name], share)) for share in (0.5, 0.8))
        print(
            f"{name:15} {len(errors[name]):6,} {middle:7.2f} {most:5.2f} {np.mean(inside[name]):21.0%}"
        )


if __name__ == "__main__":
    main()
