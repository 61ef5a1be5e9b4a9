"""The schema of the series: every measurement, its tags, its fields and their types.

A database determines a field's type by its first value and rejects all others, so each value is
converted to its declared type here, and an undeclared name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costprobe.core.records import FieldValue, Point, present

# Tag `metric` of the event of a changed load curve.
LOAD_CURVE = "load_curve"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Tags and typed fields of one series family."""

    tags: tuple[str, ...]
    fields: Mapping[str, type]


def _typed(floats: str = "", ints: str = "", strings: str = "", bools: str = "") -> dict[str, type]:
    names = {float: floats, int: ints, str: strings, bool: bools}
    return {name: kind for kind, text in names.items() for name in text.split()}


SCHEMA: dict[str, Measurement] = {
    "device": Measurement(
        tags=("device", "kind", "uuid", "model", "currency"),
        fields=_typed(
            floats="power_w power_max_w energy_j util_pct mem_util_pct temp_c sm_clock_mhz"
            " mem_clock_mhz power_limit_w throttle_power_s throttle_thermal_s price_rate_per_h cost"
            " dram_energy_j carbon_g carbon_energy_j",
            ints="mem_used_bytes mem_total_bytes ecc_uncorrected processes",
            strings="energy_method energy_scope carbon_method",
            bools="energy_suspect price_stale",
        ),
    ),
    "probe": Measurement(
        tags=(
            "device",
            "probe",
            "batch",
            "cold",
            "compile",
            "cuda_graph",
            "weights",
            "concurrency",
        ),
        fields=_typed(
            floats="latency_p50_ms latency_p90_ms latency_p99_ms latency_mean_ms latency_cv"
            " throughput_per_s h2d_ms energy_per_inference_j"
            " energy_above_idle_j energy_rel_err throttled_pct throttled_power_pct"
            " throttled_thermal_pct sm_clock_mhz mem_clock_mhz power_limit_w temp_max_c mem_used_pct"
            " latency_rel_err cpu_others_pct cpu_steal_pct cpu_wait_pct"
            " ttft_p50_ms ttft_p90_ms ttft_p99_ms ttft_mean_ms"
            " tpot_p50_ms tpot_p90_ms tpot_p99_ms tpot_mean_ms tokens_in tokens_out cached_tokens"
            " tokens_in_per_s tokens_out_per_s"
            " energy_per_million_tokens_in_j energy_per_million_tokens_out_j",
            ints="samples outliers threads ecc_uncorrected requests errors",
            strings="stop_reason energy_method energy_scope fingerprint token_source",
            bools="contended energy_suspect cached",
        ),
    ),
    "software": Measurement(
        tags=("device", "probe", "driver", "torch", "cuda", "dtype", "weights_hash"),
        fields=_typed(ints="probe_runs"),
    ),
    "cost": Measurement(
        tags=("device", "probe", "service", "served_model", "basis", "plan", "currency"),
        fields=_typed(
            floats="cost_per_inference cost_hardware cost_energy cost_reference"
            " rolling_1h rolling_1h_iqr rolling_1h_coverage"
            " rolling_24h rolling_24h_iqr rolling_24h_coverage"
            " rolling_7d rolling_7d_iqr rolling_7d_coverage"
            " cost_per_million_tokens_in cost_per_million_tokens_out"
            " cost_total cost_idle idle_share cost_per_request cost_per_thousand_inferences"
            " cost_total_hardware cost_total_energy cost_tokens_in cost_tokens_out"
            " requests inferences tokens_in tokens_out cached_tokens device_s device_busy_s"
            " window_s carbon_per_inference_g carbon_g carbon_inferences"
            " energy_j energy_tokens_in_j energy_tokens_out_j energy_per_inference_j"
            " energy_per_request_j"
            " energy_per_million_tokens_in_j energy_per_million_tokens_out_j energy_rel_err",
            strings="energy_method energy_scope token_split model_split carbon_method",
            bools="price_stale energy_suspect contended",
        ),
    ),
    "serving": Measurement(
        tags=("service", "engine", "served_model"),
        fields=_typed(
            floats="requests errors inferences tokens_in tokens_out cached_tokens prefill_s"
            " decode_s compute_s decode_request_s compute_request_s executions busy_share window_s",
            ints="restarts readings",
            strings="problem missing",
            bools="complete",
        ),
    ),
    "allocation": Measurement(
        tags=("device", "service", "part", "currency"),
        fields=_typed(floats="cost cost_hardware cost_energy"),
    ),
    "tenant": Measurement(
        tags=("service", "tenant", "currency"),
        fields=_typed(floats="cost tokens_in tokens_out requests energy_j"),
    ),
    "budget": Measurement(
        tags=("budget", "period", "currency", "device", "service"),
        fields=_typed(
            floats="amount spent forecast forecast_low forecast_high coverage elapsed_share",
            ints="period_start_ns period_end_ns",
            strings="text",
            bools="exceeded forecast_exceeded",
        ),
    ),
    "event": Measurement(
        tags=("kind", "device", "probe", "service", "served_model", "metric", "budget"),
        fields=_typed(
            floats="change_pct level_pct cost_per_month",
            ints="since_ns",
            strings="severity title detail before after cause currency",
        ),
    ),
    "alert": Measurement(
        tags=("rule", "state", "device", "probe", "service", "served_model", "budget"),
        fields=_typed(
            floats="value threshold since",
            ints="symptoms",
            strings="id severity summary detail cause",
            bools="flapping silenced",
        ),
    ),
    "agent": Measurement(
        tags=("version",),
        fields=_typed(
            floats="cpu_s outbox_lag_s",
            ints="rss_bytes outbox_points sent_points dropped_points late_jobs child_restarts",
        ),
    ),
    "watcher": Measurement(tags=("state",), fields=_typed(floats="every_s")),
    "cold_start": Measurement(
        tags=("device", "probe", "cache"),
        fields=_typed(
            floats="process_start_s load_s first_answer_s total_s",
            ints="read_bytes",
            strings="fingerprint",
        ),
    ),
    "calibration": Measurement(
        tags=("service", "probe", "device"),
        fields=_typed(
            floats="prompt_s token_in_s token_out_s context_token_s tokens_in tokens_out"
            " time_per_million_tokens_in_s time_per_million_tokens_in_low_s"
            " time_per_million_tokens_in_high_s time_per_million_tokens_out_s"
            " time_per_million_tokens_out_low_s time_per_million_tokens_out_high_s"
            " energy_per_million_tokens_in_j energy_per_million_tokens_in_low_j"
            " energy_per_million_tokens_in_high_j energy_per_million_tokens_out_j"
            " energy_per_million_tokens_out_low_j energy_per_million_tokens_out_high_j",
            ints="in_flight windows",
            strings="fingerprint",
        ),
    ),
    "sweep": Measurement(
        tags=("device", "probe", "batch", "threads", "loop", "concurrency", "step", "currency"),
        fields=_typed(
            floats="latency_p50_ms latency_p90_ms latency_rel_err throughput_per_s"
            " energy_per_inference_j energy_rel_err cost_per_inference"
            " latency_p99_ms latency_mean_ms"
            " ttft_p50_ms ttft_p90_ms ttft_p99_ms ttft_mean_ms"
            " tpot_p50_ms tpot_p90_ms tpot_p99_ms tpot_mean_ms"
            " itl_p50_ms itl_p90_ms itl_p99_ms itl_mean_ms"
            " offered_per_s goodput_per_s tokens_in_per_s tokens_out_per_s tokens_per_s_user"
            " tokens_in tokens_out cached_tokens in_flight window_s late_ms client_busy_share"
            " energy_per_million_tokens_in_j energy_per_million_tokens_out_j"
            " cost_per_million_tokens_in cost_per_million_tokens_out",
            ints="peak_memory_bytes requests errors",
            strings="energy_method fingerprint slo loop_end",
            bools="cheapest contended meets_slo front",
        ),
    ),
}
# All other tags of a row are labels that the operator gave it.
OWN_TAGS = {"host", "time"}.union(*(measurement.tags for measurement in SCHEMA.values()))


def make_point(
    measurement: str,
    tags: Mapping[str, str],
    fields: Mapping[str, FieldValue | None],
    time_ns: int,
) -> Point:
    """Build a point that conforms to the schema, without absent values.

    Args:
        measurement: A key of SCHEMA.
        tags: Declared tags, and the operator's static labels, to values.
        fields: Declared fields to values; None, NaN and infinities are omitted.
        time_ns: UTC in ns since 1970.

    Raises:
        KeyError: A field that is not in the schema.
    """
    kinds = SCHEMA[measurement].fields
    typed = {name: kinds[name](value) for name, value in present(fields).items()}
    return Point(measurement, {k: v for k, v in tags.items() if v}, typed, time_ns)
