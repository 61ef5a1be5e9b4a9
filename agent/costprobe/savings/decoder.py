"""What a decoder of a given size would cost on each board, without a measurement.

A replica serves a batch of requests on n boards with tensor parallelism. For a batch b of requests with i
tokens in and o out, of a model with N parameters (Pope et al., "Efficiently Scaling Transformer Inference",
2022; a decode step also takes a time for each layer, and to exchange results between boards):

    prefill = b i 2 N / (n FLOP PREFILL)
    step    = max(weights / (n bandwidth WEIGHTS), b 2 N / (n FLOP PREFILL))
              + b (i + o / 2) kv / (n bandwidth CACHE) + layers (LAYER_S + EXCHANGE_S if n > 1)
    time    = prefill + o step

The five constants are fitted to 100 results of TensorRT-LLM 1.0 on four boards, dense models of 8 to 406
billion parameters in FP8 and FP4 at maximum load. 93 % of the results of a board that the fit did not know
are within a factor of 1.4 (`bench/where.py`); other engines and loads are not (docs/savings.md). Input bears
the cost of prefill, output that of the steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from costprobe.core.units import HOUR_S
from costprobe.pricing.catalogue import Catalogue, GpuModel, PriceRange
from costprobe.serving.settings import ModelSize
from costprobe.serving.tokens import (
    BILLION,
    DEFAULT_SIZE_B,
    KV_BYTES_AT_8B,
    KV_EXPONENT,
    MILLION,
)

PREFILL: Final = 0.45
WEIGHTS: Final = 0.9
CACHE: Final = 0.8
LAYER_S: Final = 0.125e-3
EXCHANGE_S: Final = 0.2e-3
# Factor around a price: the range of the evidence.
ERROR: Final = 1.4
# Layers of a model of 8 billion parameters; they grow as the cache does.
_LAYERS_AT_8B: Final = 32
_KV_BYTES: Final = 2
# Part of the memory for weights and cache, and the most requests that an engine runs at a time.
_MEMORY_SHARE: Final = 0.9
_MOST_REQUESTS: Final = 4096
_BOARDS: Final = (1, 2, 4, 8)
# Boards that exchange results by NVLink or its like, as those of the fit do; others serve alone.
_LINKED: Final = re.compile(r"SXM|NVL|HBM3|\b(H200|GH200|G?B[23]00|MI3\d+[AX])")
_GB: Final = 1e9

Dtype = Literal["bf16", "fp8", "fp4"]


class _Type(NamedTuple):
    """Bytes of a parameter and of a value in the cache, the rate relative to bf16, and boards that have it."""

    weight_bytes: float
    cache_bytes: float
    rate: float
    boards: re.Pattern[str]


# Dense rates of the vendors' data sheets: each halving of the width doubles the rate.
_TYPES: Final[dict[Dtype, _Type]] = {
    "bf16": _Type(2.0, 2.0, 1.0, re.compile("")),
    "fp8": _Type(
        1.0,
        1.0,
        2.0,
        re.compile(r"\b(L4|L20|L40S?|H\d+|GH\d+|G?B\d+|MI3\d+[AX]|RTX (PRO|40|50)|Ada)"),
    ),
    "fp4": _Type(0.5, 1.0, 4.0, re.compile(r"\b(G?B\d+|MI35\d+X|RTX (PRO|50))")),
}


class Decoder(NamedTuple):
    """A model and its requests.

    Attributes:
        size: Parameters.
        dtype: Type of the weights.
        tokens_in: Tokens in of a request.
        tokens_out: Tokens out of a request.
        concurrency: Requests in flight of a replica; None for as many as fit.
    """

    size: ModelSize
    dtype: Dtype
    tokens_in: float
    tokens_out: float
    concurrency: int | None = None


class Passes(NamedTuple):
    """What the passes of a decoder take.

    Attributes:
        fitting: Requests whose cache fits beside the weights.
        decoding: Requests that a step decodes.
        prompt_s: Seconds of the prefill of a request.
        step_s: Seconds of a decode step.
    """

    fitting: int
    decoding: float
    prompt_s: float
    step_s: float


class Replica(NamedTuple):
    """A decoder on some boards of a model.

    Attributes:
        gpu: The board.
        boards: Their number.
        in_flight: Requests that are served at a time.
        prefill_s: Seconds for the prompts of all of them.
        decode_s: Seconds for their answers.
    """

    gpu: GpuModel
    boards: int
    in_flight: int
    prefill_s: float
    decode_s: float


@dataclass(frozen=True, slots=True)
class PricedReplica:
    """A replica at the median list price of its boards.

    Attributes:
        replica: The replica.
        price: List prices of a board per hour.
        tokens_out_per_s: Tokens out of the replica per second.
        cost_per_million_tokens_in: Currency of the prices.
        cost_per_million_tokens_out: Likewise.
    """

    replica: Replica
    price: PriceRange
    tokens_out_per_s: float
    cost_per_million_tokens_in: float
    cost_per_million_tokens_out: float


def is_served(dtype: Dtype, gpu: GpuModel) -> bool:
    """Whether a board has weights of a type, and its rates are known. Engines of today need one with bf16."""
    is_known = gpu.flop_per_s.get("bf16") and gpu.memory_bytes_per_s and gpu.memory_gb
    return bool(is_known and _TYPES[dtype].boards.search(gpu.model))


def passes(
    decoder: Decoder, gpu: GpuModel, boards: int, in_flight: float | None = None
) -> Passes | None:
    """Return the passes of a decoder on some boards; None if a rate is unknown, the type is not theirs, or it does not fit.

    Args:
        decoder: The model and its requests.
        gpu: The board.
        boards: Their number.
        in_flight: Requests in flight, of which as many decode as fit; None for as many as fit.
    """
    kind = _TYPES[decoder.dtype]
    rate, bandwidth, memory_gb = gpu.flop_per_s.get("bf16"), gpu.memory_bytes_per_s, gpu.memory_gb
    if not rate or not bandwidth or not memory_gb or not is_served(decoder.dtype, gpu):
        return None
    size, context = decoder.size, decoder.tokens_in + decoder.tokens_out / 2
    growth = (size.active_b / DEFAULT_SIZE_B) ** KV_EXPONENT
    kv_bytes = KV_BYTES_AT_8B / _KV_BYTES * kind.cache_bytes * growth
    weights = size.total_b * BILLION * kind.weight_bytes
    free = _MEMORY_SHARE * float(memory_gb) * _GB * boards - weights
    fitting = min(_MOST_REQUESTS, int(free / (context * kv_bytes)))
    if fitting < 1:
        return None
    batch = fitting if in_flight is None else min(in_flight, fitting)
    flop_per_s = boards * rate * kind.rate * PREFILL
    token_s = 2 * size.active_b * BILLION / flop_per_s
    # Experts that at least one of the batch's tokens uses; of a dense model all parameters.
    touched = weights * (1 - (1 - size.active_b / size.total_b) ** batch)
    layers = _LAYERS_AT_8B * growth
    step_s = (
        max(touched / (boards * bandwidth * WEIGHTS), batch * token_s)
        + batch * context * kv_bytes / (boards * bandwidth * CACHE)
        + layers * (LAYER_S + (EXCHANGE_S if boards > 1 else 0.0))
    )
    return Passes(fitting, batch, decoder.tokens_in * token_s, step_s)


def replica(decoder: Decoder, gpu: GpuModel, boards: int) -> Replica | None:
    """Return a decoder on some boards; None as of `passes`, or if fewer requests fit than are in flight."""
    found = passes(decoder, gpu, boards, decoder.concurrency)
    if found is None or found.decoding < (decoder.concurrency or 0):
        return None
    batch = int(found.decoding)
    return Replica(gpu, boards, batch, batch * found.prompt_s, decoder.tokens_out * found.step_s)


def counts_of(gpu: GpuModel) -> tuple[int, ...]:
    """Return how many boards of a model may serve a replica."""
    return _BOARDS if _LINKED.search(gpu.model) else _BOARDS[:1]


def priced_replicas(decoder: Decoder, catalogue: Catalogue) -> list[PricedReplica]:
    """Return the cheapest replica of a decoder on each board of the catalogue with a price, the cheapest first."""
    found = []
    for gpu in catalogue.gpus.gpus:
        price = catalogue.gpu_range([gpu.model])
        if price is not None:
            choices = list(_priced(decoder, gpu, price))
            found += [min(choices, key=_per_token)] if choices else []
    return sorted(found, key=_per_token)


def _priced(decoder: Decoder, gpu: GpuModel, price: PriceRange) -> Iterator[PricedReplica]:
    for boards in counts_of(gpu):
        one = replica(decoder, gpu, boards)
        if one is not None:
            per_s = float(price.median) * boards / HOUR_S
            requests = one.in_flight / MILLION
            yield PricedReplica(
                one,
                price,
                one.in_flight * decoder.tokens_out / (one.prefill_s + one.decode_s),
                one.prefill_s * per_s / (requests * decoder.tokens_in),
                one.decode_s * per_s / (requests * decoder.tokens_out),
            )


def _per_token(one: PricedReplica) -> float:
    """Return what a token out costs with the tokens in that lead to it, up to a factor that all share."""
    return float(one.price.median) * one.replica.boards / one.tokens_out_per_s
