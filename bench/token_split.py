"""Rules that divide a server's cost between input and output tokens, compared with its GPU time.

    python bench/token_split.py [--short]

The servers are simulated (`batching.py`): models of three sizes on three GPUs, one to 64 clients, serial
and chunked prefill, four mixes of lengths, and one of short and long prompts. Each rule reads what vLLM
counts. Ours with default weights is that of `costprobe.serving.tokens`; for the calibrated one each server is
measured with the loads of a calibration at its own concurrency. docs/token_split.md has the sources of
the others. A table of recorded windows of a real vLLM on the CPU follows, with the rules that need
numbers of tokens only. Exit code 1 if one of our shares is further from the GPU time's than its goal.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from batching import BatchingServer, Gpu, Model, RequestLoad, Served, Shape
from costprobe.serving.meter import Counts
from costprobe.serving.settings import size_of
from costprobe.serving.tokens import (
    CalibrationWindow,
    LengthMix,
    TokenWeighing,
    Weights,
    calibrated,
    calibration_mixes,
    decode_batch,
)

# Achieved rates: half of the data sheet's dense bf16 FLOP/s, 0.8 of its bytes/s.
GPUS = {
    "A100": Gpu(0.5 * 312e12, 0.8 * 2.04e12),
    "H100": Gpu(0.5 * 989e12, 0.8 * 3.35e12),
    "L40S": Gpu(0.5 * 362e12, 0.8 * 0.864e12),
}
# Llama 3.2 1B, 3.1 8B and 3.1 70B, the last as if one device held it.
MODELS = {
    "1B": Model(1.24e9, 16, 2048, 8, 64),
    "8B": Model(8.03e9, 32, 4096, 8),
    "70B": Model(70.6e9, 80, 8192, 8),
}
SERVERS = (
    ("8B", "H100"),
    ("8B", "A100"),
    ("8B", "L40S"),
    ("1B", "H100"),
    ("70B", "H100"),
    ("70B", "A100"),
)
SHORT_AND_LONG = (Shape(500, 300), Shape(500, 300), Shape(500, 300), Shape(6500, 100))
MIXES: tuple[tuple[int, int, tuple[Shape, ...]], ...] = (
    (2000, 250, ()),
    (500, 500, ()),
    (8000, 200, ()),
    (200, 1000, ()),
    (2000, 250, SHORT_AND_LONG),
)
CLIENTS = (1, 4, 16, 64)
# Tokens of a pass: serial scheduling, and chunked prefill.
WAYS = (None, 2048)
SMALL_CHUNKS = (512, 256)
# Windows of each load, as of `costprobe calibrate`.
REPEATS = 2
REAL = Path(__file__).resolve().parent / "results" / "vllm.json"


class Case(NamedTuple):
    """A simulated server and its load.

    Attributes:
        model: Key of MODELS.
        gpu: Key of GPUS.
        load: The requests.
        budget: Tokens of a pass with chunked prefill; None for serial scheduling.
    """

    model: str
    gpu: str
    load: RequestLoad
    budget: int | None

    @property
    def name(self) -> str:
        """Name of the row."""
        load = self.load
        shape = f"{load.tokens_in}/{load.tokens_out}{' mixed' if load.shapes else ''}"
        way = "serial" if self.budget is None else f"chunks of {self.budget}"
        return f"{self.model} on {self.gpu}, {shape}, {load.concurrency} at a time, {way}"

    def served(self, load: RequestLoad, requests: int) -> Served:
        """Serve requests on a server that has served nothing yet."""
        return BatchingServer(GPUS[self.gpu], MODELS[self.model], self.budget).serve(load, requests)


def cases(*, is_short: bool) -> list[Case]:
    """Return the cases; the short list has the 8B model on the H100, alone and under load."""
    if is_short:
        chosen = [(*SERVERS[0], None, 1), (*SERVERS[0], 2048, 64)]
    else:
        chosen = [(*x, way, each) for x, way, each in product(SERVERS, WAYS, CLIENTS)]
        chosen += [(*SERVERS[0], way, each) for way, each in product(SMALL_CHUNKS, CLIENTS)]
    return [
        Case(model, gpu, RequestLoad(tokens_in, tokens_out, clients, shapes=shapes), way)
        for (model, gpu, way, clients), (tokens_in, tokens_out, shapes) in product(chosen, MIXES)
    ]


def share_of(weights: Weights, served: Served) -> float:
    """Return the share of the input tokens."""
    token_in = served.tokens_in * weights.token_in
    return token_in / (token_in + served.tokens_out * weights.token_out)


def by_default_weights(case: Case, served: Served) -> float:
    """Divide by our default weights, from the counters and the busy time."""
    counts = Counts(
        requests=served.requests,
        tokens_in=served.tokens_in,
        tokens_out=served.tokens_out,
        decode_request_s=served.decode_request_s,
    )
    batch = decode_batch(counts, served.busy_s, servers=1)
    return share_of(
        TokenWeighing(size=size_of(case.model), batch=batch).weights("", counts), served
    )


def by_calibration(case: Case, served: Served) -> float:
    """Measure the server with the loads of a calibration, and divide by it."""
    mix, clients = LengthMix(case.load.tokens_in, case.load.tokens_out), case.load.concurrency
    repeats = range(REPEATS)
    windows = [
        window(case, own, clients, (3 + repeat) * max(4, clients))
        for own, repeat in product(calibration_mixes(mix), repeats)
    ]
    alone = [window(case, mix, 1, 3 + repeat) for repeat in repeats if clients > 1]
    counts = Counts(
        requests=served.requests, tokens_in=served.tokens_in, tokens_out=served.tokens_out
    )
    return share_of(calibrated(windows, mix, alone).times.weights(counts), served)


def window(case: Case, mix: LengthMix, clients: int, requests: int) -> CalibrationWindow:
    """Return what a calibration measures under a load."""
    load = RequestLoad(int(mix.tokens_in), int(mix.tokens_out), clients)
    served = case.served(load, requests)
    counts = (served.requests, served.tokens_in, served.tokens_out, served.busy_s)
    return CalibrationWindow(*counts, decode_steps=served.decode_steps)


def by_opencost(_: Case, served: Served) -> float:
    """Divide as OpenCost 1.121: seconds of prefill against seconds per output token."""
    return served.prefill_request_s / (served.prefill_request_s + served.time_per_output_token_s)


def by_request_seconds(_: Case, served: Served) -> float:
    """Divide by the seconds of prefill and of decode that are summed over requests."""
    return served.prefill_request_s / (served.prefill_request_s + served.decode_request_s)


# What an output token costs, in input tokens.
RATIOS = {
    "one price (InferCost)": 1.0,
    "1:2.5 (OpenCost's fallback)": 2.5,
    "1:3": 3.0,
    "1:4": 4.0,
    "1:5": 5.0,
    "1:8": 8.0,
    "output only (aitra-meter)": math.inf,
}
RULES: Mapping[str, Callable[[Case, Served], float]] = {
    "costprobe, calibrated": by_calibration,
    "costprobe, weights": by_default_weights,
    "OpenCost 1.121, llm-d": by_opencost,
    "request seconds": by_request_seconds,
}
# Percentage points. The weights are those of an H100, whatever the device.
GOALS = {"costprobe, calibrated": 10.0, "costprobe, weights": 30.0}


class Row(NamedTuple):
    """Shares of the input tokens in percent: of the device time, and by rule."""

    name: str
    truth: float
    shares: Mapping[str, float]


def by_ratio(tokens_in: float, tokens_out: float) -> dict[str, float]:
    """Divide by fixed ratios of prices, in percent."""
    return {name: 100 * tokens_in / (tokens_in + tokens_out * x) for name, x in RATIOS.items()}


def row(case: Case) -> Row:
    """Run a case, for four times as many requests as there are clients."""
    served = case.served(case.load, 4 * max(4, case.load.concurrency))
    shares = {name: 100 * rule(case, served) for name, rule in RULES.items()}
    shares |= by_ratio(served.tokens_in, served.tokens_out)
    return Row(case.name, 100 * served.prefill_share, shares)


def real_rows() -> list[Row]:
    """Return the recorded loads of a real vLLM, by the rules that need numbers of tokens only."""
    cases = json.loads(REAL.read_text("utf-8")).values()
    return [
        Row(
            each["name"],
            each["engine_pct"],
            {
                "costprobe, calibrated": each["ours_pct"],
                **by_ratio(*map(int, re.findall(r"\d+", each["name"])[:2])),
            },
        )
        for case in cases
        for each in case.get("rows", ())
    ]


def errors_of(rows: Iterable[Row], rule: str) -> list[float]:
    """Return the distances from the share of the device time, in percentage points."""
    return [abs(each.shares[rule] - each.truth) for each in rows]


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the table of rules: errors in percentage points."""
    serial = [each for each in rows if each.name.endswith("serial")]
    chunked = [each for each in rows if each not in serial]
    lines = ["| rule | mean, serial | chunked | all | worst | worst load |", "| --- " * 6 + "|"]
    for rule in rows[0].shares:
        errors = errors_of(rows, rule)
        means = [mean(errors_of(each, rule)) for each in (serial, chunked, rows)]
        worst = rows[errors.index(max(errors))]
        figures = " | ".join(f"{x:.1f}" for x in (*means, max(errors)))
        case = f"{worst.name}: {worst.shares[rule]:.1f} % instead of {worst.truth:.1f} %"
        lines.append(f"| {rule} | {figures} | {case} |")
    return lines


def by_case(rows: Sequence[Row]) -> list[str]:
    """Return the table of cases: shares in percent."""
    head = ("load", "device time", *rows[0].shares)
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for each in rows:
        shares = (f"{x:.1f}" for x in (each.truth, *each.shares.values()))
        lines.append(f"| {each.name} | {' | '.join(shares)} |")
    return lines


def missed(rows: Iterable[Row]) -> list[str]:
    """Return the cases in which one of our shares is further from the truth than its goal."""
    return [
        f"{each.name}: {rule}"
        for each in rows
        for rule, points in GOALS.items()
        if errors_of([each], rule)[0] > points
    ]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the 8B model on the H100 only")
    rows = [row(case) for case in cases(is_short=parser.parse_args().short)]
    real = real_rows()
    for head, lines in (
        (f"Error on {len(rows)} simulated loads, percentage points", summary(rows)),
        (f"Error on {len(real)} loads of a real vLLM on the CPU, percentage points", summary(real)),
        ("Simulated loads: share of the input tokens, percent", by_case(rows)),
        ("Real loads: share of the input tokens, percent", by_case(real)),
    ):
        print("\n".join((f"## {head}", "", *lines, "")))
    beyond = missed(rows)
    print("\n".join(f"missed: {each}" for each in beyond) or "Goals met.")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
