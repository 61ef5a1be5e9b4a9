"""The calibrated division between prompt and generated tokens, compared with a server's GPU time.

    python bench/calibration.py [--short] [--json FILE]

The servers are simulated (`batching.py`): 8B on three GPUs, and other sizes; one to 64 clients, serial
and chunked prefill, four mixes of lengths; and small chunks, with which every pass has prompt tokens. Each is measured with the loads of a calibration, at the
same concurrency, and the coefficients are applied to what it served under its own load. Exit code 1
if the share of the prompt tokens differs from the GPU time's by more than 10 % of the GPU time.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from batching import RequestLoad, Served
from costprobe.serving.meter import Counts
from costprobe.serving.tokens import (
    CACHED_SHARE,
    Calibration,
    CalibrationWindow,
    LengthMix,
    TokenTimes,
    calibrated,
    calibration_mixes,
)
from table import Table, add_json, finish
from token_split import WAYS, Case

# Windows of each load, as of `costprobe calibrate`.
REPEATS = 2
MIXES = ((2000, 250), (500, 500), (8000, 200), (200, 1000))
CLIENTS = (1, 4, 16, 64)
SMALL_CHUNKS = (512, 256)
# Percentage points.
BOUND = 10.0


def cases(*, is_short: bool) -> list[Case]:
    """Return the cases; the short list has the 8B model on the H100 only."""
    servers = [("H100", "8B")]
    if not is_short:
        servers += [("A100", "8B"), ("L40S", "8B"), ("A100", "70B")]
    found = [
        Case(gpu, model, RequestLoad(*mix, clients), budget)
        for (gpu, model), mix, clients, budget in product(servers, MIXES, CLIENTS, WAYS)
    ]
    if not is_short:
        small = product(SMALL_CHUNKS, MIXES, CLIENTS)
        found += [
            Case("H100", "8B", RequestLoad(*mix, clients), budget) for budget, mix, clients in small
        ]
    return found


def served_by(
    case: Case, mix: LengthMix, clients: int, requests: int, cached_share: float = 0.0
) -> Served:
    """Run a case with requests of other lengths, so many at a time, of which a share is cached."""
    tokens_in = int(mix.tokens_in)
    load = RequestLoad(tokens_in, int(mix.tokens_out), clients, int(tokens_in * cached_share))
    return case.server().serve(load, requests)


def calibration_of(case: Case) -> Calibration:
    """Measure a server with the loads of a calibration."""
    mix, clients = LengthMix(case.load.tokens_in, case.load.tokens_out), case.load.concurrency
    repeats = range(REPEATS)
    windows = [
        window(served_by(case, own, clients, (3 + repeat) * max(4, clients)))
        for own, repeat in product(calibration_mixes(mix), repeats)
    ]
    others = [window(served_by(case, mix, 1, 3 + repeat)) for repeat in repeats if clients > 1]
    short = calibration_mixes(mix)[1]
    others += [
        window(served_by(case, short, clients, (3 + repeat) * max(4, clients), CACHED_SHARE))
        for repeat in repeats
    ]
    return calibrated(windows, mix, others)


def cached_token_gpu_s(case: Case) -> float:
    """Return what a cached token adds to the prefill of a prompt of which half is cached."""
    mix, clients = LengthMix(case.load.tokens_in, case.load.tokens_out), case.load.concurrency
    requests = 4 * max(4, clients)
    hits = served_by(case, mix, clients, requests, CACHED_SHARE)
    half = LengthMix(mix.tokens_in * (1 - CACHED_SHARE), mix.tokens_out)
    without = served_by(case, half, clients, requests)
    return (hits.prefill_gpu_s - without.prefill_gpu_s) / hits.cached_tokens


def window(served: Served) -> CalibrationWindow:
    """Return what a calibration measures."""
    return CalibrationWindow(
        served.requests,
        served.tokens_in,
        served.tokens_out,
        served.busy_s,
        decode_steps=served.decode_steps,
        cached_tokens=served.cached_tokens,
    )


def calibrated_share(times: TokenTimes, served: Served) -> float:
    """Return the share of the device time that the prompt tokens get."""
    counts = Counts(
        requests=served.requests, tokens_in=served.tokens_in, tokens_out=served.tokens_out
    )
    weights = times.weights(counts)
    token_in = served.tokens_in * weights.token_in
    return token_in / (token_in + served.tokens_out * weights.token_out)


def rows(found: list[Case]) -> Table:
    """Return the table: shares of the prompt tokens in percent."""
    table = Table(issue_line=4)
    for case in found:
        mix = LengthMix(case.load.tokens_in, case.load.tokens_out)
        clients = case.load.concurrency
        served = served_by(case, mix, clients, 4 * max(4, clients))
        gpu, ours = served.prefill_share, calibrated_share(calibration_of(case).times, served)
        table.row(
            case.name,
            100 * ours,
            "%",
            peer=100 * gpu,
            peer_name="GPU time",
            goal=f"within {BOUND:g} points",
            met=100 * abs(ours - gpu) <= BOUND,
        )
    return table


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the 8B model on the H100 only")
    add_json(parser)
    options = parser.parse_args()
    return finish(rows(cases(is_short=options.short)), options.json)


if __name__ == "__main__":
    sys.exit(main())
