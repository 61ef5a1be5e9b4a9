"""Our division of cost between prompt and generated tokens, compared with a server's GPU time.

    python bench/token_split.py [--short] [--json FILE]

The servers are simulated (`batching.py`): models of three sizes on three GPUs, one to 256 clients,
serial and chunked prefill. Each exposes what vLLM counts: tokens, requests, and seconds summed over
requests; our price of an input token is that of `costprobe.serving.tokens` for these
counts. Exit code 1 if it differs from the GPU time's by a factor of more than 2.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from batching import BatchingServer, Gpu, Model, RequestLoad, Served
from costprobe.serving.meter import Counts
from costprobe.serving.settings import size_of
from costprobe.serving.tokens import TokenWeighing, decode_batch
from table import Table, add_json, finish

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
# Tokens of a pass: serial scheduling, and chunked prefill.
WAYS = (None, 2048)
# Within this factor of the GPU time's price of an input token.
FACTOR = 2.0


class Case(NamedTuple):
    """A simulated server and its load.

    Attributes:
        gpu: Key of GPUS.
        model: Key of MODELS.
        load: The requests.
        budget: Tokens of a pass with chunked prefill; None for serial scheduling.
    """

    gpu: str
    model: str
    load: RequestLoad
    budget: int | None

    @property
    def name(self) -> str:
        """Name of the row."""
        load, way = self.load, "serial" if self.budget is None else "chunked"
        if self.budget not in WAYS:
            way = f"chunks of {self.budget}"
        shape = f"{load.tokens_in}/{load.tokens_out} tokens, {load.concurrency} at a time"
        return f"{self.model} on {self.gpu}, {shape}, {way}"

    def server(self) -> BatchingServer:
        """Return the server, which has served nothing yet."""
        return BatchingServer(GPUS[self.gpu], MODELS[self.model], self.budget)


def cases(*, is_short: bool) -> list[Case]:
    """Return the cases; the short list has the 8B model on the H100 only."""
    loads = [RequestLoad(2000, 250, each) for each in (1, 8, 64, 256)]
    found = [Case("H100", "8B", load, way) for load in loads for way in WAYS]
    if is_short:
        return found
    others = [RequestLoad(500, 500, 64), RequestLoad(8000, 200, 16), RequestLoad(200, 1000, 64)]
    found += [Case("H100", "8B", load, way) for load in others for way in WAYS]
    for gpu in GPUS:
        for model in MODELS:
            if (gpu, model) != ("H100", "8B"):
                found += [Case(gpu, model, loads[2], way) for way in WAYS]
    return found


def served_by(case: Case) -> Served:
    """Run a case, for four times as many requests as there are clients."""
    return case.server().serve(case.load, max(8, 4 * case.load.concurrency))


def our_prefill_share(case: Case, served: Served) -> float:
    """Return our share of the cost for prompt tokens, from the counters and the busy time."""
    counts = Counts(
        requests=served.requests,
        tokens_in=served.tokens_in,
        tokens_out=served.tokens_out,
        decode_request_s=served.decode_request_s,
    )
    batch = decode_batch(counts, served.busy_s, servers=1)
    weights = TokenWeighing(size=size_of(case.model), batch=batch).weights("", counts)
    token_in = served.tokens_in * weights.token_in
    return token_in / (token_in + served.tokens_out * weights.token_out)


def request_seconds_share(served: Served) -> float:
    """Return the share of prefill in the seconds that are summed over requests."""
    return served.prefill_request_s / (served.prefill_request_s + served.decode_request_s)


def rows(found: list[Case]) -> Table:
    """Return the table: shares of the prompt tokens in percent."""
    table = Table(issue_line=1)
    for case in found:
        served = served_by(case)
        gpu, ours = served.prefill_share, our_prefill_share(case, served)
        table.row(
            case.name,
            100 * ours,
            "%",
            peer=100 * gpu,
            peer_name="GPU time",
            goal=f"ratio 1/{FACTOR:g} to {FACTOR:g}",
            met=1 / FACTOR <= ours / gpu <= FACTOR,
            note=f"request seconds would give {100 * request_seconds_share(served):.1f} %",
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
