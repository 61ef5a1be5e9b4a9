"""The counters of SGLang."""

from __future__ import annotations

from costprobe.adapters.serving.counters import Counter, Engine

_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "attn_tp_rank", "attn_cp_rank")
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
