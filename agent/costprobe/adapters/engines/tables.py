"""The counters of each serving engine (vLLM, SGLang, TGI, Triton and others), by measure.

Other servers expose the counters of vLLM under a prefix of their own.

Requests and tokens of a LoRA adapter, by the servers' sources:

- Dynamo registers an adapter as a model, which the label `model` of its frontend names
  (`lib/llm/src/discovery/model_manager.rs`, `metric_model_for`, 2026), and LiteLLM's proxy counts by
  `requested_model` (`litellm/types/integrations/prometheus.py`, 1.109.1). There an adapter is a served model.
- vLLM, V0 and V1, up to 0.32.0 counts all under the first served name (`vllm/v1/metrics/loggers.py`;
  a run of 0.32.0 with two adapters shows it).
  `vllm:lora_requests_info` is the time of the last step with each set of adapters: both of its labels
  list every adapter with a request, running or waiting, and neither how many nor those of the base
  model (`LoRARequestStates` in `stats.py`). No share of the work can be computed from it, and it is
  not read.
- SGLang 0.5.23 counts slots of adapters (`sglang:lora_pool_slots_used`). Its counters of finished
  requests also have the labels that clients send (`--tokenizer-metrics-allowed-custom-labels`,
  `srt/managers/tokenizer_manager.py`): they can be those of tenants.
- TGI 3 and LoRAX (`router/src/server.rs`), TensorRT-LLM (`tensorrt_llm/metrics/collector.py`),
  LMDeploy (`lmdeploy/metrics/loggers.py`) and llama.cpp have no label of a request's adapter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal

from costprobe.core.schema import Measure
from costprobe.core.slo import figure_of

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
        up_to: Of the buckets of a histogram that with the largest edge up to this value; None of
            other counters.
    """

    name: str
    only: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    scale: float = 1.0
    one_of: tuple[str, ...] = ()
    plus: tuple[Counter, ...] = ()
    up_to: float | None = None


# One counter or several in order of preference, each with its attributes or only its name.
_Written = str | Counter | tuple[str | Counter, ...]


@dataclass(frozen=True)
class Engine:
    """A serving engine.

    Attributes:
        name: Its name in the configuration.
        prefix: Prefix of its metric names; "" if there is none.
        written: The counters of each measure.
        required: Measures without which a scrape reports missing counters.
        model_label: Label that names the served model; "" if there is none.
        may_lack_prefix: Whether some versions expose the same names without the prefix.
        path: Path of its metrics at the server.
        sleeps: Whether it may unload its model, which reading its counters would load again.
        counts_begin_at_zero: Whether a series is created by its first count, so that the whole
            value of a new series was counted since the last reading.
        reset_together: Which series are only reset together: all of the process, or those of a
            served model. One that fell then shows that the others were reset, whatever their
            values. "none" if several processes are on one page, or if start times are.
        option: What to set at the server for its metrics; "" if they are there by default.
        histograms: Histograms of the times of its requests that a service level can bound, in s,
            with one observation a request.
    """

    name: str
    prefix: str
    written: Mapping[str, _Written]
    required: tuple[str, ...] = ("requests",)
    model_label: str = "model_name"
    may_lack_prefix: bool = False
    path: str = METRICS_PATH
    sleeps: bool = False
    counts_begin_at_zero: bool = True
    reset_together: ResetGroup = "none"
    option: str = ""
    histograms: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def counters(self) -> Mapping[str, tuple[Counter, ...]]:
        """The counters of each measure in order of preference: the first one that is exposed is read."""
        ways = {
            measure: written if isinstance(written, tuple) else (written,)
            for measure, written in self.written.items()
        }
        return {
            measure: tuple(Counter(way) if isinstance(way, str) else way for way in written)
            for measure, written in ways.items()
        }

    def judging(self, bounds_ms: Mapping[str, float]) -> Engine:
        """Return it with two more measures for each bound of a service level.

        That of the bound ("ttft_p90") counts the requests that are surely within it: those up to the
        largest edge of a bucket that is not above it. That of its figure ("ttft") counts all.

        Args:
            bounds_ms: Bounds in ms; of figures of `histograms`.
        """
        written = dict(self.written)
        for bound, bound_ms in bounds_ms.items():
            buckets = f"{self.histograms[figure_of(bound)]}_bucket"
            written[figure_of(bound)] = Counter(buckets, up_to=math.inf)
            written[bound] = Counter(buckets, up_to=bound_ms / 1000)
        return replace(self, written=written, required=(*self.required, *bounds_ms))

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
_TTFT, _E2E = "time_to_first_token_seconds", "e2e_request_latency_seconds"
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
_TOKENS: tuple[Measure, ...] = ("requests", "tokens_in", "tokens_out")


def _of_ranks(name: str, label: str, *texts: str, plus: tuple[Counter, ...] = ()) -> Counter:
    return Counter(name, only={label: texts}, one_of=_RANKS, plus=plus)


SGLANG = Engine(
    "sglang",
    "sglang:",
    {
        "requests": "sglang:num_requests_total",
        "errors": "sglang:num_aborted_requests_total",
        # The last of the alternatives increases only when a request finishes.
        "tokens_in": (
            # Without what is computed again after a retraction.
            _of_ranks("sglang:prefill_effective_tokens_total", "mode", "input", *_HITS),
            _of_ranks("sglang:realtime_tokens_total", "mode", "prefill_compute", "prefill_cache"),
            "sglang:prompt_tokens_total",
        ),
        "tokens_out": (
            # Prefill generates the first token of each request.
            _of_ranks(
                "sglang:realtime_tokens_total",
                "mode",
                "decode",
                plus=(Counter("sglang:num_requests_total"),),
            ),
            "sglang:generation_tokens_total",
        ),
        "cached_tokens": (
            _of_ranks("sglang:prefill_effective_tokens_total", "mode", *_HITS),
            _of_ranks("sglang:realtime_tokens_total", "mode", "prefill_cache"),
            "sglang:cached_tokens_total",
        ),
        "prefill_s": _of_ranks(
            "sglang:forward_execution_seconds_total", "category", "extend", "split_prefill"
        ),
        "decode_s": _of_ranks("sglang:forward_execution_seconds_total", "category", *_DECODE),
        # Passes with prefill and decode together (--enable-mixed-chunk).
        "compute_s": _of_ranks("sglang:forward_execution_seconds_total", "category", "mixed"),
        "decode_request_s": "sglang:inter_token_latency_seconds_sum",
        # Of a prefill server: SGLang 0.5.23, srt/observability/metrics_collector.py; MB are of 2^20.
        "kv_transfer_bytes": Counter("sglang:kv_transfer_total_mb_sum", scale=2**20),
        "kv_transfer_s": Counter("sglang:kv_transfer_latency_ms_sum", scale=1e-3),
        "kv_transfer_failures": "sglang:num_transfer_failed_reqs_total",
    },
    required=_TOKENS,
    option="--enable-metrics",
    # Of a disaggregated server decode observes the time to first token, and prefill does not:
    # srt/managers/tokenizer_manager.py, collect_metrics.
    histograms={
        "ttft": f"sglang:{_TTFT}",
        "tpot": "sglang:request_time_per_output_token_seconds",
        "latency": f"sglang:{_E2E}",
    },
)


def vllm(name: str, prefix: str) -> Engine:
    """Return the counters of vLLM under a prefix."""
    return Engine(
        name,
        prefix,
        {
            # Sequences: each prompt of a list and each of `n` answers is one. Requests that the
            # client aborted are in none of its series.
            "requests": Counter(
                f"{prefix}request_success_total", without={"finished_reason": _UNANSWERED}
            ),
            "errors": Counter(
                f"{prefix}request_success_total",
                only={"finished_reason": _UNANSWERED},
                # Refused by a limit of the queue.
                plus=(Counter(f"{prefix}admission_rejections_total"),),
            ),
            "tokens_in": f"{prefix}prompt_tokens_total",
            "tokens_out": f"{prefix}generation_tokens_total",
            # The hits are counted again with each retry to schedule a request.
            "cached_tokens": (
                f"{prefix}prompt_tokens_cached_total",
                f"{prefix}prefix_cache_hits_total",
                f"{prefix}gpu_prefix_cache_hits_total",
            ),
            # Updated with each token, the last one only when a request ends.
            "decode_request_s": (
                f"{prefix}inter_token_latency_seconds_sum",
                f"{prefix}time_per_output_token_seconds_sum",
                f"{prefix}request_decode_time_seconds_sum",
            ),
            # Estimated from the model's shape, of one GPU of each engine (--enable-mfu-metrics).
            "estimated_flop": f"{prefix}estimated_flops_per_gpu_total",
            "estimated_bytes": Counter(
                f"{prefix}estimated_read_bytes_per_gpu_total",
                plus=(Counter(f"{prefix}estimated_write_bytes_per_gpu_total"),),
            ),
            # Of the server that reads the KV cache, over NIXL only: vLLM 0.11.1 and newer,
            # vllm/distributed/kv_transfer/kv_connector/v1/nixl.
            "kv_transfer_bytes": f"{prefix}nixl_bytes_transferred_sum",
            "kv_transfer_s": f"{prefix}nixl_xfer_time_seconds_sum",
            "kv_transfer_failures": f"{prefix}nixl_num_failed_transfers_total",
        },
        required=_TOKENS,
        # vllm/v1/metrics/loggers.py: that of tokens, inter_token_latency_seconds, counts no requests.
        histograms={
            "ttft": f"{prefix}{_TTFT}",
            "tpot": f"{prefix}request_time_per_output_token_seconds",
            "latency": f"{prefix}{_E2E}",
        },
    )


ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        vllm("vllm", "vllm:"),
        # Ray's agent exposes the counters of all vLLM processes of its node.
        vllm("ray_vllm", "ray_vllm_"),
        SGLANG,
        Engine(
            "tgi",
            "tgi_",
            {
                "requests": "tgi_request_success",
                "errors": "tgi_request_failure",
                "tokens_in": "tgi_request_input_length_sum",
                "tokens_out": "tgi_request_generated_tokens_sum",
                "prefill_s": Counter(
                    "tgi_batch_inference_duration_sum", only={"method": ("prefill",)}
                ),
                "decode_s": Counter(
                    "tgi_batch_inference_duration_sum", only={"method": ("decode",)}
                ),
            },
            required=_TOKENS,
            model_label="",
            reset_together="process",
            # Its mean time per token contains prefill.
            histograms={"latency": "tgi_request_duration"},
        ),
        Engine(
            "triton",
            "nv_",
            {
                "requests": "nv_inference_request_success",
                "errors": "nv_inference_request_failure",
                "inferences": "nv_inference_count",
                # Each request of a batch adds the whole length of the batch.
                "compute_request_s": Counter(
                    "nv_inference_compute_infer_duration_us", scale=_MICRO
                ),
                "executions": "nv_inference_exec_count",
            },
            required=("requests", "inferences"),
            model_label="model",
            reset_together="model",
        ),
        Engine(
            "torchserve",
            "ts_",
            {
                "requests": "ts_inference_requests_total",
                "errors": "Requests5XX",
                "compute_request_s": Counter("ts_inference_latency_microseconds", scale=_MICRO),
            },
            reset_together="process",
            option="metrics_mode=prometheus",
        ),
        Engine(
            "kserve",
            "request_",
            {
                # A failed prediction has a prediction time and no postprocessing.
                "requests": "request_postprocess_seconds_count",
                "compute_request_s": "request_predict_seconds_sum",
            },
        ),
        Engine(
            "mlserver",
            "model_infer_",
            {
                "requests": "model_infer_request_success_total",
                "errors": "model_infer_request_failure_total",
                "compute_request_s": "model_infer_request_duration_sum",
            },
            model_label="model",
        ),
        Engine(
            "tensorrt_llm",
            "trtllm_",
            {
                "requests": Counter(
                    "trtllm_request_success_total", without={"finished_reason": _TRT_UNANSWERED}
                ),
                "errors": Counter(
                    "trtllm_request_success_total",
                    only={"finished_reason": _TRT_UNANSWERED},
                    plus=(Counter("trtllm_request_error_total"),),
                ),
                "tokens_in": "trtllm_prompt_tokens_total",
                "tokens_out": "trtllm_generation_tokens_total",
                "cached_tokens": "trtllm_prompt_cached_tokens_total",
                "decode_request_s": "trtllm_request_decode_time_seconds_sum",
            },
            may_lack_prefix=True,
            path="/prometheus/metrics",
            option="return_perf_metrics: true",
            # tensorrt_llm/metrics/perf_utils.py: decode time of a request by its tokens after the first.
            histograms={
                "ttft": f"trtllm_{_TTFT}",
                "tpot": "trtllm_time_per_output_token_seconds",
                "latency": f"trtllm_{_E2E}",
            },
        ),
        Engine(
            "dynamo",
            "dynamo_frontend_",
            {
                "requests": Counter(
                    "dynamo_frontend_requests_total", only={"status": ("success",)}
                ),
                "errors": Counter("dynamo_frontend_requests_total", only={"status": ("error",)}),
                "tokens_in": "dynamo_frontend_input_sequence_tokens_sum",
                "tokens_out": "dynamo_frontend_output_tokens_total",
                "cached_tokens": "dynamo_frontend_cached_tokens_sum",
                "decode_request_s": "dynamo_frontend_inter_token_latency_seconds_sum",
            },
            required=_TOKENS,
            model_label="model",
            histograms={
                "ttft": f"dynamo_frontend_{_TTFT}",
                "latency": "dynamo_frontend_request_duration_seconds",
            },
        ),
        Engine(
            "llamacpp",
            "llamacpp:",
            # It counts no requests.
            {
                # Without what is in the cache, which versions before August 2026 do not count.
                "tokens_in": Counter(
                    "llamacpp:prompt_tokens_total",
                    plus=(Counter("llamacpp:prompt_tokens_cached_total"),),
                ),
                "tokens_out": "llamacpp:tokens_predicted_total",
                "cached_tokens": "llamacpp:prompt_tokens_cached_total",
                # The time of prompts is not read: a batch decodes other requests meanwhile.
                "decode_request_s": "llamacpp:tokens_predicted_seconds_total",
            },
            required=("tokens_in", "tokens_out"),
            model_label="",
            sleeps=True,
            reset_together="process",
            option="--metrics",
        ),
        Engine(
            "lmdeploy",
            "lmdeploy:",
            {
                "requests": "lmdeploy:request_success_total",
                # Cancelled, aborted and failed ones; a gauge that only increases.
                "errors": "lmdeploy:num_requests_failed",
                "tokens_in": "lmdeploy:prompt_tokens_total",
                "tokens_out": "lmdeploy:generation_tokens_total",
                "cached_tokens": "lmdeploy:cached_tokens_total",
                "decode_request_s": (
                    "lmdeploy:iter_token_latency_sum",
                    "lmdeploy:request_decode_time_seconds_sum",
                ),
            },
            required=_TOKENS,
            # Its time per output token is that of a step.
            histograms={"ttft": f"lmdeploy:{_TTFT}", "latency": f"lmdeploy:{_E2E}"},
        ),
        Engine(
            "nim",
            "",
            {
                "requests": "request_success_total",
                "errors": "request_failure_total",
                "tokens_in": "prompt_tokens_total",
                "tokens_out": "generation_tokens_total",
                "decode_request_s": "time_per_output_token_seconds_sum",
            },
            required=_TOKENS,
            path="/v1/metrics",
            histograms={"ttft": _TTFT, "latency": _E2E},
        ),
        Engine(
            "litellm",
            "litellm_",
            {
                "requests": Counter(
                    "litellm_proxy_total_requests_metric", only={"status_code": ("200",)}
                ),
                "errors": "litellm_proxy_failed_requests_metric",
                "tokens_in": "litellm_input_tokens_metric",
                "tokens_out": "litellm_output_tokens_metric",
                "cached_tokens": "litellm_input_cached_tokens_metric",
            },
            required=_TOKENS,
            model_label="requested_model",
            path="/metrics/",
            option='callbacks: ["prometheus"]',
        ),
    )
}
