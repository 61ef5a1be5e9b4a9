"""A simulated LLM server with continuous batching, whose GPU time of prefill and decode is known.

Requests are sent in a closed loop. With `serial` scheduling a pass is either the prefill of a whole
prompt or a decode step of all running requests; with `chunked` every pass decodes all running
requests and fills the rest of its token budget with prompt tokens. The duration of a pass is its
roofline: parameters are read once or multiplied with each token, whichever takes longer; attention
reads the KV cache of each decoding request, and multiplies each prompt token with its context.

GPU time of a pass with both: a decode step alone is decode, and what the prompt tokens add is
prefill. The counters are those of vLLM: seconds of each request, from its first pass to its first
token, and from there to its last, in all and per generated token but the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import NamedTuple


class Gpu(NamedTuple):
    """Rates that a device reaches in serving, and the fixed time of a pass."""

    flop_per_s: float
    bytes_per_s: float
    pass_s: float = 0.002


class Model(NamedTuple):
    """A transformer with grouped-query attention in bf16."""

    parameters: float
    layers: int
    width: int
    kv_heads: int
    head: int = 128

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache of a token."""
        return 2 * 2 * self.layers * self.kv_heads * self.head


class Shape(NamedTuple):
    """Lengths of a request."""

    tokens_in: int
    tokens_out: int


class RequestLoad(NamedTuple):
    """Requests of one shape, or of several in turn, and how many are sent at a time.

    Attributes:
        tokens_in: Mean prompt tokens.
        tokens_out: Mean generated tokens.
        concurrency: Requests in flight.
        shapes: The shapes, with these means; none for requests of one shape.
    """

    tokens_in: int
    tokens_out: int
    concurrency: int
    shapes: tuple[Shape, ...] = ()


@dataclass
class Served:
    """GPU seconds, and the sums of a server's counters."""

    prefill_gpu_s: float = 0.0
    decode_gpu_s: float = 0.0
    prefill_request_s: float = 0.0
    decode_request_s: float = 0.0
    time_per_output_token_s: float = 0.0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    busy_s: float = 0.0
    decode_steps: int = 0
    done: list[BatchedRequest] = field(default_factory=list)

    @property
    def prefill_share(self) -> float:
        """Share of the GPU time."""
        return self.prefill_gpu_s / (self.prefill_gpu_s + self.decode_gpu_s)


@dataclass(eq=False)
class BatchedRequest:
    shape: Shape
    sent_s: float = 0.0
    read: int = 0
    written: int = 0
    begun_s: float = -1.0
    first_s: float = -1.0
    last_s: float = -1.0

    @property
    def left(self) -> int:
        """Tokens to generate."""
        return self.shape.tokens_out - self.written


# A request, and how many of its prompt tokens a pass computes.
Chunk = tuple[BatchedRequest, int]


@dataclass
class BatchingServer:
    """A server with one device.

    Args:
        gpu: The device.
        model: The model.
        budget: Tokens of a pass with chunked prefill; None for serial scheduling.
        fitting: Requests that fit its memory; others wait.
    """

    gpu: Gpu
    model: Model
    budget: int | None = None
    fitting: int | None = None
    now_s: float = field(default=0.0, init=False)

    def serve(self, load: RequestLoad, requests: int) -> Served:
        """Serve a number of requests, always as many at a time as there are clients."""
        served = Served()
        shapes = cycle(load.shapes or (Shape(load.tokens_in, load.tokens_out),))
        unsent = deque(BatchedRequest(shape) for shape in islice(shapes, requests))
        waiting = deque(unsent.popleft() for _ in range(min(load.concurrency, requests)))
        running: list[BatchedRequest] = []
        while waiting or running:
            fresh = None if self.fitting is None else self.fitting - len(running)
            chunks = self._chunks(list(islice(waiting, fresh)), running)
            decoding = [] if self.budget is None and chunks else running
            self._run(chunks, decoding, served)
            for request, tokens in chunks:
                request.read += tokens
                if request.read == request.shape.tokens_in:
                    waiting.remove(request)
                    request.written, request.first_s = 1, self.now_s
                    request.last_s = self.now_s
                    served.prefill_request_s += self.now_s - request.begun_s
                    served.tokens_in += request.read
                    running.append(request)
            done = [request for request in running if request.left <= 0]
            running = [request for request in running if request.left > 0]
            for request in done:
                served.requests += 1
                served.done.append(request)
                served.tokens_out += request.written
                decode_s = request.last_s - request.first_s
                served.decode_request_s += decode_s
                served.time_per_output_token_s += decode_s / max(1, request.written - 1)
            for _ in range(min(len(done), len(unsent))):
                waiting.append(unsent.popleft())
                waiting[-1].sent_s = self.now_s
        return served

    def _chunks(
        self,
        waiting: Collection[BatchedRequest],
        running: Sequence[BatchedRequest],
    ) -> list[Chunk]:
        """Return requests with the number of their prompt tokens in the next pass."""
        if self.budget is None:
            return [(one, one.shape.tokens_in - one.read) for one in islice(waiting, 1)]
        left = self.budget - len(running)
        chunks: list[Chunk] = []
        for request in waiting:
            tokens = min(left, request.shape.tokens_in - request.read)
            if tokens <= 0:
                break
            chunks.append((request, tokens))
            left -= tokens
        return chunks

    def _run(
        self,
        chunks: Sequence[Chunk],
        decoding: Sequence[BatchedRequest],
        served: Served,
    ) -> None:
        """Advance the clock by a pass, and divide its GPU time."""
        for request, _ in chunks:
            if request.begun_s < 0:
                request.begun_s = self.now_s
        whole_s = self._pass_s(chunks, decoding)
        decode_s = self._pass_s([], decoding) if decoding else 0.0
        served.decode_gpu_s += decode_s
        served.prefill_gpu_s += whole_s - decode_s
        served.busy_s += whole_s
        served.decode_steps += bool(decoding)
        self.now_s += whole_s
        for request in decoding:
            request.written += 1
            request.last_s = self.now_s

    def _pass_s(self, chunks: Sequence[Chunk], decoding: Sequence[BatchedRequest]) -> float:
        """Return the duration of a pass with prompt tokens and a decode step."""
        gpu, model = self.gpu, self.model
        tokens = len(decoding) + sum(count for _, count in chunks)
        linear_s = max(
            2 * model.parameters * tokens / gpu.flop_per_s,
            2 * model.parameters / gpu.bytes_per_s,
        )
        context = sum(request.read + request.written for request in decoding)
        # 4 FLOP for each layer, channel and pair of tokens, of which a token sees half.
        pairs = sum(count * (request.read + count / 2) for request, count in chunks)
        attention_s = context * model.kv_bytes / gpu.bytes_per_s
        attention_s += 4 * model.layers * model.width * pairs / gpu.flop_per_s
        return linear_s + attention_s + gpu.pass_s
