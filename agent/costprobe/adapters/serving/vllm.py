"""The counters of vLLM, which other servers expose under a prefix of their own."""

from __future__ import annotations

from costprobe.adapters.serving.counters import Counter, Engine

# Finish reasons of requests without a complete response.
_UNANSWERED = ("abort", "error")


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
        },
        required=("requests", "tokens_in", "tokens_out"),
        model_label="model_name",
        prefix=prefix,
        counts_begin_at_zero=True,
    )
