"""The counters of each serving engine: one literal table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from costprobe.domain.costing.serving.served import Measure

_NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Counter:
    """A cumulative counter, or a part of one.

    Attributes:
        name: As the engine exposes it; also matched with or without `_total`, and with "_" for ":".
        only: For each label, the values of which a series must have one.
        without: For each label, the values of which a series must have none.
        scale: Unit of a count in the measure's unit: 1e-6 for microseconds.
        one_of: Labels of ranks that each report the same count: the lowest rank is read.
        plus: Counters that are added, because this one leaves something out.
    """

    name: str
    only: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    scale: float = 1.0
    one_of: tuple[str, ...] = ()
    plus: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine.

    Attributes:
        name: Its name in the configuration.
        counters: The counters of each measure in order of preference: the first one that is
            exposed is read.
        required: Measures without which a scrape reports missing counters.
        model_label: Label that names the served model; "" if there is none.
        prefix: Prefix of its metric names; "" if there is none.
        counts_begin_at_zero: Whether a series is created by its first count, so that the whole
            value of a new series was counted since the last reading.
    """

    name: str
    counters: Mapping[Measure, tuple[Counter, ...]]
    required: tuple[Measure, ...] = ("requests",)
    model_label: str = ""
    prefix: str = ""
    counts_begin_at_zero: bool = False


# Finish reasons of requests without a complete response.
_UNANSWERED = ("abort", "error")
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_tp_rank", "attn_cp_rank")
_SGLANG_HITS = ("device_hit", "host_hit", "storage_hit")
# With the passes of speculative decoding.
_SGLANG_DECODE = ("decode", "target_verify", "draft_extend", "eagle_draft", "eagle_draft_extend")
_MICRO = 1e-6

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="vllm",
            counters={
                # Requests that the client aborted are in none of its series.
                "requests": (
                    Counter("vllm:request_success_total", without={"finished_reason": _UNANSWERED}),
                ),
                "errors": (
                    Counter("vllm:request_success_total", only={"finished_reason": _UNANSWERED}),
                ),
                "tokens_in": (Counter("vllm:prompt_tokens_total"),),
                "tokens_out": (Counter("vllm:generation_tokens_total"),),
                # The hits are counted again with each retry to schedule a request.
                "cached_tokens": (
                    Counter("vllm:prompt_tokens_cached_total"),
                    Counter("vllm:prefix_cache_hits_total"),
                    Counter("vllm:gpu_prefix_cache_hits_total"),
                ),
                # Updated with each token, the last one only when a request ends.
                "decode_request_s": (
                    Counter("vllm:inter_token_latency_seconds_sum"),
                    Counter("vllm:time_per_output_token_seconds_sum"),
                    Counter("vllm:request_decode_time_seconds_sum"),
                ),
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
                # The last of the alternatives increases only when a request finishes.
                "tokens_in": (
                    # Without what is computed again after a retraction.
                    Counter(
                        "sglang:prefill_effective_tokens_total",
                        only={"mode": ("input", *_SGLANG_HITS)},
                        one_of=_RANKS,
                    ),
                    Counter(
                        "sglang:realtime_tokens_total",
                        only={"mode": ("prefill_compute", "prefill_cache")},
                        one_of=_RANKS,
                    ),
                    Counter("sglang:prompt_tokens_total"),
                ),
                "tokens_out": (
                    Counter(
                        "sglang:realtime_tokens_total",
                        only={"mode": ("decode",)},
                        one_of=_RANKS,
                        # Prefill generates the first token of each request.
                        plus=(Counter("sglang:num_requests_total"),),
                    ),
                    Counter("sglang:generation_tokens_total"),
                ),
                "cached_tokens": (
                    Counter(
                        "sglang:prefill_effective_tokens_total",
                        only={"mode": _SGLANG_HITS},
                        one_of=_RANKS,
                    ),
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
                        only={"category": ("extend", "split_prefill")},
                        one_of=_RANKS,
                    ),
                ),
                "decode_s": (
                    Counter(
                        "sglang:forward_execution_seconds_total",
                        only={"category": _SGLANG_DECODE},
                        one_of=_RANKS,
                    ),
                ),
                # Passes with prefill and decode together (--enable-mixed-chunk).
                "compute_s": (
                    Counter(
                        "sglang:forward_execution_seconds_total",
                        only={"category": ("mixed",)},
                        one_of=_RANKS,
                    ),
                ),
                "decode_request_s": (Counter("sglang:inter_token_latency_seconds_sum"),),
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
                # Each request of a batch adds the whole length of the batch.
                "compute_request_s": (
                    Counter("nv_inference_compute_infer_duration_us", scale=_MICRO),
                ),
                "executions": (Counter("nv_inference_exec_count"),),
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
                "compute_request_s": (Counter("ts_inference_latency_microseconds", scale=_MICRO),),
            },
            model_label="model_name",
            prefix="ts_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="kserve",
            counters={
                "requests": (Counter("request_predict_seconds_count"),),
                "compute_request_s": (Counter("request_predict_seconds_sum"),),
            },
            model_label="model_name",
            prefix="request_",
            counts_begin_at_zero=True,
        ),
    )
}
