"""Fields of stored rows that comparisons, savings and reports read; hours of them are summarized."""

from __future__ import annotations

from costprobe.core.serving_ratios import SERVING_RATIOS, SERVING_SUMS

# The fields of `probe` and, on the probe basis, of `cost` that a comparison or savings read.
RUN_FIELDS = frozenset(
    {
        "fingerprint",
        "contended",
        "throttled_pct",
        "latency_p50_ms",
        "latency_p99_ms",
        "throughput_per_s",
        "energy_per_inference_j",
        "energy_above_idle_j",
        "energy_method",
        "energy_scope",
        "token_source",
        "energy_per_million_tokens_in_j",
        "energy_per_million_tokens_out_j",
    }
)
PAID_FIELDS = frozenset(
    {
        "contended",
        "cost_per_inference",
        "carbon_per_inference_g",
        "cost_per_million_tokens_in",
        "cost_per_million_tokens_out",
    }
)
# Those of `cost` on the serving basis.
SERVICE_FIELDS = frozenset({*SERVING_RATIOS, *SERVING_SUMS, "window_s"})
# Units of work of a service, the closest to what keeps a device busy first.
UNITS = ("inferences", "tokens_out", "requests")
# Counters of `serving` that increase only while a service works.
WORK = (*UNITS, "errors", "tokens_in", "prefill_s", "decode_s", "compute_s", "executions")
# The fields of `serving` that the history of a service is built from.
WORK_FIELDS = frozenset({*WORK, "window_s", "complete"})
