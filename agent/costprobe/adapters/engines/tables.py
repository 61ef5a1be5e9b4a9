"""The counters of each serving engine (vLLM, SGLang, TGI, Triton and others), by measure.

Other servers expose the counters of vLLM under a prefix of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from costprobe.core.schema import Measure

METRICS_PATH = "/metrics"
ResetGroup = Literal["process", "model", "none"]
# Share of the KV cache in use; requests that wait to be scheduled.
Gauge = Literal["kv_cache_share", "requests_waiting"]
# Above this share a server delays or preempts requests.
KV_FULL: Final = 0.9
_NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Counter:
    """A cumulative counter, or a part of one.

    Attributes:
        name: As the engine exposes it; `Engine.spellings` has the names that are matched.
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
        may_lack_prefix: Whether some versions expose the same names without the prefix.
        path: Path of its metrics at the server.
        sleeps: Whether it may unload its model, which reading its counters would load again.
        counts_begin_at_zero: Whether a series is created by its first count, so that the whole
            value of a new series was counted since the last reading.
        reset_together: Which series are only reset together: all of the process, or those of a
            served model. One that fell then shows that the others were reset, whatever their
            values. "none" if several processes are on one page, or if start times are.
        option: What to set at the server for its metrics; "" if they are there by default.
    """

    name: str
    counters: Mapping[Measure, tuple[Counter, ...]]
    required: tuple[Measure, ...] = ("requests",)
    model_label: str = ""
    prefix: str = ""
    may_lack_prefix: bool = False
    path: str = METRICS_PATH
    sleeps: bool = False
    counts_begin_at_zero: bool = False
    reset_together: ResetGroup = "none"
    option: str = ""

    @property
    def gauges(self) -> Mapping[Gauge, tuple[Counter, ...]]:
        """Its present saturation, likewise; of no engine but those that are known."""
        known = _GAUGES.items() if self.name in ENGINES else ()
        return {
            gauge: tuple(Counter(self.prefix + name, one_of=_RANKS) for name in names.split())
            for gauge, names in known
        }

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefix as servers, routers and agents expose it: with ":", and with "_" for it."""
        ends = dict.fromkeys((self.prefix[-1:], ":", "_")) if self.prefix else ()
        return tuple(self.prefix[:-1] + end for end in ends)

    def spellings(self, name: str) -> tuple[str, ...]:
        """Return the names under which a metric may be exposed.

        With each of the prefixes, or none; with "_" for ":"; with and without `_total`.
        """
        rest = name.removeprefix(self.prefix)
        starts = self.prefixes if rest != name else ()
        if self.may_lack_prefix or not starts:
            starts = (*starts, "")
        bare = rest.removesuffix("_total")
        ends = (rest, bare if rest.endswith("_total") else f"{rest}_total")
        names = [start + end for start in starts for end in ends]
        return tuple(dict.fromkeys((*names, *(each.replace(":", "_") for each in names))))


_MICRO = 1e-6
# Finish reasons of requests without a complete response: of vLLM, and of TensorRT-LLM.
_UNANSWERED = ("abort", "error")
_TRT_UNANSWERED = ("cancelled", "timeout")
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_tp_rank", "attn_cp_rank")
# Gauges after the prefix: of vLLM, SGLang, TensorRT-LLM and llama.cpp (until May 2025); of these,
# TGI and Triton.
_GAUGES: Mapping[Gauge, str] = {
    "kv_cache_share": "kv_cache_usage_perc gpu_cache_usage_perc token_usage kv_cache_utilization"
    " kv_cache_usage_ratio",
    "requests_waiting": "num_requests_waiting num_queue_reqs requests_deferred queue_size"
    " inference_pending_request_count",
}
_HITS = ("device_hit", "host_hit", "storage_hit")
# With the passes of speculative decoding.
_DECODE = ("decode", "target_verify", "draft_extend", "eagle_draft", "eagle_draft_extend")

SGLANG = Engine(
    name="sglang",
    counters={
        "requests": (Counter("sglang:num_requests_total"),),
        "errors": (Counter("sglang:num_aborted_requests_total"),),
        # The last of the alternatives increases only when a request finishes.
        "tokens_in": (
            # Without what is computed again after a retraction.
            Counter(
                "sglang:prefill_effective_tokens_total",
                only={"mode": ("input", *_HITS)},
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
                only={"mode": _HITS},
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
                only={"category": _DECODE},
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
    option="--enable-metrics",
)


def vllm(name: str, prefix: str) -> Engine:
    """Return the counters of vLLM under a prefix."""
    return Engine(
        name=name,
        counters={
            # Sequences: each prompt of a list and each of `n` answers is one. Requests that the
            # client aborted are in none of its series.
            "requests": (
                Counter(f"{prefix}request_success_total", without={"finished_reason": _UNANSWERED}),
            ),
            "errors": (
                Counter(
                    f"{prefix}request_success_total",
                    only={"finished_reason": _UNANSWERED},
                    # Refused by a limit of the queue.
                    plus=(Counter(f"{prefix}admission_rejections_total"),),
                ),
            ),
            "tokens_in": (Counter(f"{prefix}prompt_tokens_total"),),
            "tokens_out": (Counter(f"{prefix}generation_tokens_total"),),
            # The hits are counted again with each retry to schedule a request.
            "cached_tokens": (
                Counter(f"{prefix}prompt_tokens_cached_total"),
                Counter(f"{prefix}prefix_cache_hits_total"),
                Counter(f"{prefix}gpu_prefix_cache_hits_total"),
            ),
            # Updated with each token, the last one only when a request ends.
            "decode_request_s": (
                Counter(f"{prefix}inter_token_latency_seconds_sum"),
                Counter(f"{prefix}time_per_output_token_seconds_sum"),
                Counter(f"{prefix}request_decode_time_seconds_sum"),
            ),
            # Estimated from the model's shape, of one GPU of each engine (--enable-mfu-metrics).
            "estimated_flop": (Counter(f"{prefix}estimated_flops_per_gpu_total"),),
            "estimated_bytes": (
                Counter(
                    f"{prefix}estimated_read_bytes_per_gpu_total",
                    plus=(Counter(f"{prefix}estimated_write_bytes_per_gpu_total"),),
                ),
            ),
        },
        required=("requests", "tokens_in", "tokens_out"),
        model_label="model_name",
        prefix=prefix,
        counts_begin_at_zero=True,
    )


ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        vllm("vllm", "vllm:"),
        # Ray's agent exposes the counters of all vLLM processes of its node.
        vllm("ray_vllm", "ray_vllm_"),
        SGLANG,
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
            reset_together="process",
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
            reset_together="model",
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
            reset_together="process",
            option="metrics_mode=prometheus",
        ),
        Engine(
            name="kserve",
            counters={
                # A failed prediction has a prediction time and no postprocessing.
                "requests": (Counter("request_postprocess_seconds_count"),),
                "compute_request_s": (Counter("request_predict_seconds_sum"),),
            },
            model_label="model_name",
            prefix="request_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="mlserver",
            counters={
                "requests": (Counter("model_infer_request_success_total"),),
                "errors": (Counter("model_infer_request_failure_total"),),
                "compute_request_s": (Counter("model_infer_request_duration_sum"),),
            },
            model_label="model",
            prefix="model_infer_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="tensorrt_llm",
            counters={
                "requests": (
                    Counter(
                        "trtllm_request_success_total", without={"finished_reason": _TRT_UNANSWERED}
                    ),
                ),
                "errors": (
                    Counter(
                        "trtllm_request_success_total",
                        only={"finished_reason": _TRT_UNANSWERED},
                        plus=(Counter("trtllm_request_error_total"),),
                    ),
                ),
                "tokens_in": (Counter("trtllm_prompt_tokens_total"),),
                "tokens_out": (Counter("trtllm_generation_tokens_total"),),
                "cached_tokens": (Counter("trtllm_prompt_cached_tokens_total"),),
                "decode_request_s": (Counter("trtllm_request_decode_time_seconds_sum"),),
            },
            model_label="model_name",
            prefix="trtllm_",
            may_lack_prefix=True,
            path="/prometheus/metrics",
            counts_begin_at_zero=True,
            option="return_perf_metrics: true",
        ),
        Engine(
            name="dynamo",
            counters={
                "requests": (
                    Counter("dynamo_frontend_requests_total", only={"status": ("success",)}),
                ),
                "errors": (Counter("dynamo_frontend_requests_total", only={"status": ("error",)}),),
                "tokens_in": (Counter("dynamo_frontend_input_sequence_tokens_sum"),),
                "tokens_out": (Counter("dynamo_frontend_output_tokens_total"),),
                "cached_tokens": (Counter("dynamo_frontend_cached_tokens_sum"),),
                "decode_request_s": (Counter("dynamo_frontend_inter_token_latency_seconds_sum"),),
            },
            required=("requests", "tokens_in", "tokens_out"),
            model_label="model",
            prefix="dynamo_frontend_",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="llamacpp",
            # It counts no requests.
            counters={
                # Without what is in the cache, which versions before August 2026 do not count.
                "tokens_in": (
                    Counter(
                        "llamacpp:prompt_tokens_total",
                        plus=(Counter("llamacpp:prompt_tokens_cached_total"),),
                    ),
                ),
                "tokens_out": (Counter("llamacpp:tokens_predicted_total"),),
                "cached_tokens": (Counter("llamacpp:prompt_tokens_cached_total"),),
                # The time of prompts is not read: a batch decodes other requests meanwhile.
                "decode_request_s": (Counter("llamacpp:tokens_predicted_seconds_total"),),
            },
            required=("tokens_in", "tokens_out"),
            prefix="llamacpp:",
            sleeps=True,
            counts_begin_at_zero=True,
            reset_together="process",
            option="--metrics",
        ),
        Engine(
            name="lmdeploy",
            counters={
                "requests": (Counter("lmdeploy:request_success_total"),),
                # Cancelled, aborted and failed ones; a gauge that only increases.
                "errors": (Counter("lmdeploy:num_requests_failed"),),
                "tokens_in": (Counter("lmdeploy:prompt_tokens_total"),),
                "tokens_out": (Counter("lmdeploy:generation_tokens_total"),),
                "cached_tokens": (Counter("lmdeploy:cached_tokens_total"),),
                "decode_request_s": (
                    Counter("lmdeploy:iter_token_latency_sum"),
                    Counter("lmdeploy:request_decode_time_seconds_sum"),
                ),
            },
            required=("requests", "tokens_in", "tokens_out"),
            model_label="model_name",
            prefix="lmdeploy:",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="nim",
            counters={
                "requests": (Counter("request_success_total"),),
                "errors": (Counter("request_failure_total"),),
                "tokens_in": (Counter("prompt_tokens_total"),),
                "tokens_out": (Counter("generation_tokens_total"),),
                "decode_request_s": (Counter("time_per_output_token_seconds_sum"),),
            },
            required=("requests", "tokens_in", "tokens_out"),
            model_label="model_name",
            path="/v1/metrics",
            counts_begin_at_zero=True,
        ),
        Engine(
            name="litellm",
            counters={
                "requests": (
                    Counter("litellm_proxy_total_requests_metric", only={"status_code": ("200",)}),
                ),
                "errors": (Counter("litellm_proxy_failed_requests_metric"),),
                "tokens_in": (Counter("litellm_input_tokens_metric"),),
                "tokens_out": (Counter("litellm_output_tokens_metric"),),
                "cached_tokens": (Counter("litellm_input_cached_tokens_metric"),),
            },
            required=("requests", "tokens_in", "tokens_out"),
            model_label="requested_model",
            prefix="litellm_",
            path="/metrics/",
            counts_begin_at_zero=True,
            option='callbacks: ["prometheus"]',
        ),
    )
}
