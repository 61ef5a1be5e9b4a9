"""Device time of a prompt token and of a generated token, where the server does not measure it.

Prefill is limited by compute and decode by memory bandwidth, so that the ratio of the two depends
on the model's size and on how many requests decode at a time. Source: the roofline model as in
Pope et al., "Efficiently Scaling Transformer Inference" (2022): 2 x parameters FLOP for a token,
and for a decode step the weights and the batch's KV cache are read once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from costprobe.domain.costing.serving.model_size import ModelSize, size_of
from costprobe.domain.costing.serving.served import Counts

BILLION: Final = 1e9
# NVIDIA H100 SXM data sheet: dense bf16 FLOP/s and bytes/s. Only their ratio matters.
PEAK_FLOP_PER_S: Final = 989e12
PEAK_BYTES_PER_S: Final = 3.35e12
# Shares of the peaks that serving engines reach in prefill and in decode: assumptions.
PREFILL_EFFICIENCY: Final = 0.5
DECODE_EFFICIENCY: Final = 0.8
BYTES_PER_PARAMETER: Final = 2
# KV cache of a token of Llama 3.1 8B: 32 layers x 8 heads x 128 x key and value x 2 bytes. The
# exponent fits its family: 28 layers at 3 billion parameters, 80 at 70, 126 at 405.
KV_BYTES_AT_8B: Final = 131_072
KV_EXPONENT: Final = 0.4
# Where the server does not report how many requests it decodes at a time.
DEFAULT_BATCH: Final = 32.0
MAX_BATCH: Final = 1024.0
# Where neither configuration nor name states the model's size.
DEFAULT_SIZE_B: Final = 8.0
# Context in tokens where requests are not counted, and the longest that is plausible.
DEFAULT_CONTEXT: Final = 1000.0
MAX_CONTEXT: Final = 1e6


@dataclass(frozen=True, slots=True)
class Weights:
    """Relative device time of tokens.

    Attributes:
        token_in: Of a prompt token that was not cached.
        token_out: Of a generated token.
    """

    token_in: float
    token_out: float


@dataclass(frozen=True, slots=True)
class TokenWeighing:
    """How the tokens of a service are weighed.

    Attributes:
        configured: Weights that the operator gave; they apply to all models.
        size: Size of the models that the operator gave; None to read it from their names.
        batch: Requests that a server decodes at a time while it is busy; None where unknown.
        calibrated: Weights by a calibration of the service's only model, for counts; None without.
    """

    configured: Weights | None = None
    size: ModelSize | None = None
    batch: float | None = None
    calibrated: Callable[[Counts], Weights] | None = None

    def weights(self, model: str, counts: Counts) -> Weights:
        """Return the weights of a model's tokens.

        Args:
            model: Its name at the server; "" where there is none.
            counts: What it served, for the length of its contexts.
        """
        if self.calibrated is not None:
            return self.calibrated(counts)
        if self.configured is not None:
            return self.configured
        size = self.size or size_of(model) or ModelSize(DEFAULT_SIZE_B, DEFAULT_SIZE_B)
        batch = DEFAULT_BATCH if self.batch is None else min(MAX_BATCH, max(1.0, self.batch))
        return estimated_weights(size, batch, mean_context(counts))


def estimated_weights(size: ModelSize, batch: float, context: float) -> Weights:
    """Estimate the device seconds of tokens by the roofline of one H100.

    Args:
        size: Size of the model.
        batch: Requests that are decoded at a time, at least 1.
        context: Mean tokens of a request that a decode step reads from the KV cache.
    """
    flop_per_s = PEAK_FLOP_PER_S * PREFILL_EFFICIENCY
    bytes_per_s = PEAK_BYTES_PER_S * DECODE_EFFICIENCY
    token_in = 2 * size.active_b * BILLION / flop_per_s
    # Experts that at least one of the batch's tokens uses; of a dense model all parameters.
    touched_b = size.total_b * (1 - (1 - size.active_b / size.total_b) ** batch)
    reading_s = touched_b * BILLION * BYTES_PER_PARAMETER / bytes_per_s
    kv_bytes = KV_BYTES_AT_8B * (size.active_b / DEFAULT_SIZE_B) ** KV_EXPONENT
    step_s = max(reading_s, batch * token_in) + batch * context * kv_bytes / bytes_per_s
    return Weights(token_in, step_s / batch)


def mean_context(counts: Counts) -> float:
    """Return the mean context of a generated token: the prompt, and half of the answer."""
    if not counts.requests:
        return DEFAULT_CONTEXT
    tokens = (counts.tokens_in or 0.0) + (counts.tokens_out or 0.0) / 2
    return min(MAX_CONTEXT, tokens / counts.requests)


def decode_batch(counts: Counts, busy_s: float, servers: int) -> float | None:
    """Return the mean number of requests that a server decodes at a time, by Little's law.

    Args:
        counts: Of all models of all servers.
        busy_s: Seconds in which the devices were busy.
        servers: Number of servers that share the work.

    Returns:
        None where the servers do not count the decode time of requests.
    """
    if not counts.decode_request_s or busy_s <= 0:
        return None
    return counts.decode_request_s / busy_s / servers
