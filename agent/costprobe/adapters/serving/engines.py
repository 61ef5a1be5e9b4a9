"""The counters of each serving engine: one literal table."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.adapters.serving.counters import Counter, Engine
from costprobe.adapters.serving.sglang import SGLANG
from costprobe.adapters.serving.vllm import vllm

# Finish reasons of requests without a complete response.
_TRT_UNANSWERED = ("cancelled", "timeout")
_MICRO = 1e-6


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
            counts_begin_at_zero=True,
            option='callbacks: ["prometheus"]',
        ),
    )
}
