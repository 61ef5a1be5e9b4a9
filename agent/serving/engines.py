"""Which counters say what: one literal table, a row for each serving engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.costing.served import Measure

_NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Counter:
    """A cumulative counter, or a part of one.

    Attributes:
        name: As the engine writes it; a `_total` more or less, and "_" for ":", are taken too.
        only: Labels and the values of which one must be there.
        without: Labels and the values of which none may be there.
        scale: What a count is worth in the measure's unit: 1e-6 for microseconds.
        one_of: Labels of ranks that each repeat the same count: of them the lowest is read.
    """

    name: str
    only: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    scale: float = 1.0
    one_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """How a kind of server counts.

    Attributes:
        name: As the configuration has it.
        counters: For each measure its counters in order of preference: the first that is there
            is read.
        required: Measures without which something is wrong.
        model_label: Label that names the served model; "" where there is none.
        prefix: What the names of its metrics begin with; "" if nothing.
        counts_begin_at_zero: Whether a series comes into being with its first count, so that one
            which was not there at the last reading has counted all it shows since then.
    """

    name: str
    counters: Mapping[Measure, tuple[Counter, ...]]
    required: tuple[Measure, ...] = ("requests",)
    model_label: str = ""
    prefix: str = ""
    counts_begin_at_zero: bool = False


# A request that ended so got no whole answer.
_UNANSWERED = ("abort", "error")
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_tp_rank", "attn_cp_rank")
_MICRO = 1e-6

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="vllm",
            counters={
                # Ended requests of all kinds are in it, aborted ones too.
                "requests": (
                    Counter("vllm:request_success_total", without={"finished_reason": _UNANSWERED}),
                ),
                "errors": (
                    Counter("vllm:request_success_total", only={"finished_reason": _UNANSWERED}),
                ),
                "tokens_in": (Counter("vllm:prompt_tokens_total"),),
                "tokens_out": (Counter("vllm:generation_tokens_total"),),
                "cached_tokens": (
                    Counter("vllm:prefix_cache_hits_total"),
                    Counter("vllm:gpu_prefix_cache_hits_total"),
                ),
                "prefill_s": (Counter("vllm:request_prefill_time_seconds_sum"),),
                "decode_s": (Counter("vllm:request_decode_time_seconds_sum"),),
            },
            required=("requests", "tokens_in", "tokens_out"),
            model_label="model_name",
            prefix="vllm:",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="sglang",
            counters={
                "requests": (Counter("sglang:num_requests_total"),),
                "errors": (Counter("sglang:num_aborted_requests_total"),),
                # The others move only when a request finishes.
                "tokens_in": (
                    Counter(
                        "sglang:realtime_tokens_total",
                        only={"mode": ("prefill_compute", "prefill_cache")},
                        one_of=_RANKS,
                    ),
                    Counter("sglang:prompt_tokens_total"),
                ),
                "tokens_out": (
                    Counter(
                        "sglang:realtime_tokens_total", only={"mode": ("decode",)}, one_of=_RANKS
                    ),
                    Counter("sglang:generation_tokens_total"),
                ),
                "cached_tokens": (
                    Counter(
                        "sglang:realtime_tokens_total",
                        only={"mode": ("prefill_cache",)},
                        one_of=_RANKS,
                    ),
                    Counter("sglang:cached_tokens_total"),
                ),
                "prefill_s": (
                    Counter(
                        "sglang:forward_execution_seconds_total",
                        only={"category": ("extend",)},
                        one_of=_RANKS,
                    ),
                ),
                "decode_s": (
                    Counter(
                        "sglang:forward_execution_seconds_total",
                        only={"category": ("decode",)},
                        one_of=_RANKS,
                    ),
                ),
            },
            required=("requests", "tokens_in", "tokens_out"),
            model_label="model_name",
            prefix="sglang:",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="tgi",
            counters={
                "requests": (Counter("tgi_request_success"),),
                "errors": (Counter("tgi_request_failure"),),
                "tokens_in": (Counter("tgi_request_input_length_sum"),),
                "tokens_out": (Counter("tgi_request_generated_tokens_sum"),),
                "prefill_s": (
                    Counter("tgi_batch_inference_duration_sum", only={"method": ("prefill",)}),
                ),
                "decode_s": (
                    Counter("tgi_batch_inference_duration_sum", only={"method": ("decode",)}),
                ),
            },
            required=("requests", "tokens_in", "tokens_out"),
            prefix="tgi_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="triton",
            counters={
                "requests": (Counter("nv_inference_request_success"),),
                "errors": (Counter("nv_inference_request_failure"),),
                "inferences": (Counter("nv_inference_count"),),
                "compute_s": (Counter("nv_inference_compute_infer_duration_us", scale=_MICRO),),
            },
            required=("requests", "inferences"),
            model_label="model",
            prefix="nv_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="torchserve",
            counters={
                "requests": (Counter("ts_inference_requests_total"),),
                "errors": (Counter("Requests5XX"),),
                "compute_s": (Counter("ts_inference_latency_microseconds", scale=_MICRO),),
            },
            model_label="model_name",
            prefix="ts_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="kserve",
            counters={
                "requests": (Counter("request_predict_seconds_count"),),
                "compute_s": (Counter("request_predict_seconds_sum"),),
            },
            model_label="model_name",
            prefix="request_",
            counts_begin_at_zero=True,
        ),
    )
}
