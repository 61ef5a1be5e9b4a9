"""The schema of the series: every measurement, its tags, its fields, their types and counters.

A database determines a field's type by its first value and rejects all others, so each value is
converted to its declared type here, and an undeclared name is an error.

A counter of `/metrics` is the sum of a field over all rows that were ever stored. Its labels are
the tags of the rows without those that describe rather than identify, so that it continues when a
board or a plan is replaced. The naming follows https://prometheus.io/docs/practices/naming: base
units, `_total`.

Ratios of production: a cost over several windows is a sum of costs over a sum of counts. Rows of
`cost` on the serving basis hold the numerators and denominators of their ratios. A mean of the
ratios of windows would weigh an idle window as much as a busy one. Roll-ups, reports, `trend` and
the dashboards of Grafana divide sums by this table.

The fields that comparisons, savings and reports read are listed: hours of them are summarized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from costprobe.core.records import Event, FieldValue, Point, present

PREFIX: Final = "costprobe_"
# Money counters have the tag `currency`, all others do not.
_MONEY_TAG: Final = "currency"
# Tags that describe rather than identify: no labels of counters.
DESCRIPTIVE: Final = frozenset({"kind", "uuid", "plan", "basis", "engine"})
_MODEL_TAG: Final = "served_model"
# The service of several hosts that a row's service belongs to, and what it is of it.
GROUP_TAGS: Final = ("service_group", "service_role")
# A histogram of the median latency of each run of a probe; seconds.
RUN_LATENCY: Final = "probe_run_latency_seconds"
RUN_LATENCY_HELP: Final = "Median latency of each run of a probe"
# 1, 2.5 and 5 of each power of ten from 0.1 ms to 10 s.
BUCKETS_S: Final = (
    *(Decimal(f"{digits}e{power}") for power in range(-4, 1) for digits in ("1", "2.5", "5")),
    Decimal(10),
    Decimal("Infinity"),
)
# Tag `metric` of the event of a changed load curve.
LOAD_CURVE = "load_curve"
_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000
_TOKENS: Final = ("cost_tokens_in", "cost_tokens_out")
_TOKENS_J: Final = ("energy_tokens_in_j", "energy_tokens_out_j")
Measure = Literal[
    "requests",
    "errors",
    "inferences",
    "tokens_in",
    "tokens_out",
    "cached_tokens",
    "prefill_s",
    "decode_s",
    "compute_s",
    "decode_request_s",
    "compute_request_s",
    "executions",
    "estimated_flop",
    "estimated_bytes",
    "kv_transfer_bytes",
    "kv_transfer_s",
    "kv_transfer_failures",
]
MEASURES: tuple[Measure, ...] = get_args(Measure)
# What a part of a device's cost was for.
Part = Literal["busy", "idle", "held", "probing", "unallocated"]
# Tenant of the cost that no counter attributes.
UNATTRIBUTED: Final = "unattributed"
# Plan of a price that nobody configured.
ASSUMED: Final = "assumed"


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
            bools="energy_suspect price_stale price_assumed",
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
            " latency_rel_err latency_spread device_ms pass_low_ms pass_high_ms"
            " cpu_others_pct cpu_steal_pct cpu_wait_pct"
            " ttft_p50_ms ttft_p90_ms ttft_p99_ms ttft_mean_ms"
            " tpot_p50_ms tpot_p90_ms tpot_p99_ms tpot_mean_ms tokens_in tokens_out cached_tokens"
            " tokens_in_per_s tokens_out_per_s"
            " energy_per_million_tokens_in_j energy_per_million_tokens_out_j"
            " flop_per_pass bytes_per_pass mfu_pct mbu_pct roofline_ms",
            ints="samples samples_delayed outliers threads ecc_uncorrected requests errors",
            strings="stop_reason energy_method energy_scope fingerprint token_source",
            bools="contended unsteady energy_suspect cached",
        ),
    ),
    "software": Measurement(
        tags=("device", "probe", "driver", "torch", "cuda", "dtype", "weights_hash"),
        fields=_typed(ints="probe_runs"),
    ),
    "cost": Measurement(
        tags=(
            *("device", "probe", "service", "served_model", "basis", "plan", "currency"),
            *GROUP_TAGS,
        ),
        fields=_typed(
            floats="cost_per_inference cost_hardware cost_energy cost_reference cost_roofline"
            " rolling_1h rolling_1h_iqr rolling_1h_coverage"
            " rolling_24h rolling_24h_iqr rolling_24h_coverage"
            " rolling_7d rolling_7d_iqr rolling_7d_coverage"
            " cost_per_million_tokens_in cost_per_million_tokens_out"
            " cost_per_million_tokens_fresh cost_per_million_tokens_cached"
            " cost_roofline_per_million_tokens_in cost_roofline_per_million_tokens_out"
            " cost_total cost_idle idle_share cost_per_request cost_per_thousand_inferences"
            " cost_total_hardware cost_total_energy cost_tokens_in cost_tokens_out"
            " cost_tokens_fresh cost_tokens_cached cost_cache_saved cached_share"
            " requests inferences tokens_in tokens_out cached_tokens fresh_tokens"
            " device_s device_busy_s decode_request_s"
            " window_s carbon_per_inference_g carbon_g carbon_inferences"
            " cost_idle_known metered_inferences metered_requests metered_tokens_in metered_tokens_out"
            " energy_j energy_tokens_in_j energy_tokens_out_j energy_per_inference_j"
            " energy_per_request_j"
            " energy_per_million_tokens_in_j energy_per_million_tokens_out_j energy_rel_err",
            strings="energy_method energy_scope token_split model_split carbon_method",
            bools="price_stale energy_suspect contended",
        ),
    ),
    "serving": Measurement(
        tags=("service", "engine", "served_model", *GROUP_TAGS),
        fields=_typed(
            floats="requests errors inferences tokens_in tokens_out cached_tokens prefill_s"
            " decode_s compute_s decode_request_s compute_request_s executions estimated_flop"
            " estimated_bytes kv_transfer_bytes kv_transfer_s kv_transfer_failures busy_share kv_cache_share requests_waiting window_s",
            ints="restarts readings",
            strings="problem missing",
            bools="complete",
        ),
    ),
    "allocation": Measurement(
        tags=("device", "service", "part", "currency", *GROUP_TAGS),
        fields=_typed(floats="cost cost_hardware cost_energy", strings="basis"),
    ),
    "tenant": Measurement(
        tags=("service", "tenant", "currency", *GROUP_TAGS),
        fields=_typed(
            floats="cost cost_cache_saved tokens_in cached_tokens tokens_out requests energy_j"
        ),
    ),
    "slo": Measurement(
        tags=("service", "bound", *GROUP_TAGS),
        fields=_typed(floats="requests requests_met bound_ms within_ms"),
    ),
    "server": Measurement(
        tags=("currency",),
        fields=_typed(
            floats="power_w energy_j window_s cost devices_energy_j others_energy_j"
            " others_window_s cost_others",
            strings="energy_method",
        ),
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
            strings="instance",
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
            floats="prompt_s token_in_s token_out_s context_token_s cached_token_s tokens_in tokens_out"
            " time_per_million_tokens_cached_s time_per_million_tokens_cached_low_s"
            " time_per_million_tokens_cached_high_s energy_per_million_tokens_cached_j"
            " energy_per_million_tokens_cached_low_j energy_per_million_tokens_cached_high_j"
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
# InfluxDB 3 refuses a row with a tag and a field of the same name, and a column is either.
OWN_NAMES = OWN_TAGS.union(*(measurement.fields for measurement in SCHEMA.values()))


def part_words(tags: Mapping[str, str]) -> str:
    """Return what the rows of a part of a group lack, and where that is; empty for other rows."""
    group, role = (tags.get(tag, "") for tag in GROUP_TAGS)
    if role in ("", "all"):
        return ""
    return f"a part ({role}) of the group {group}: costprobe compare --fleet --by group has its unit costs"


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


def event_point(event: Event, tags: Mapping[str, str]) -> Point:
    """Return a row of `event`; tags are the host and static labels."""
    fields: dict[str, FieldValue | None] = {
        "severity": event.severity,
        "title": event.title,
        "detail": event.detail or None,
        "before": event.before or None,
        "after": event.after or None,
        "cause": event.cause or None,
        "change_pct": event.change_pct,
        "level_pct": event.level_pct,
        "since_ns": event.since_ns,
        "cost_per_month": event.cost_per_month,
        "currency": event.currency or None,
    }
    metric = {"metric": event.metric} if event.metric else {}
    own_tags = {"kind": event.kind, "device": event.device, **event.subject, **metric}
    return make_point("event", {**tags, **own_tags}, fields, event.time_ns)


class StoredCounter(NamedTuple):
    """A counter, and the rows that it adds up.

    Attributes:
        name: Name without prefix and `_total`; of rows of a served model, `service_` becomes `model_`.
        field: Field of the rows, or a quantity that `increments` derives from them.
        help: HELP text.
    """

    name: str
    field: str
    help: str

    @property
    def is_money(self) -> bool:
        """Whether it has the label `currency`."""
        return self.name.endswith("cost")


# Those of `cost` are numerators and denominators of the ratios of production, of the same windows.
_COUNTERS: Final = {
    "device": (
        ("cost", "cost", "Cost of the device"),
        ("energy_joules", "energy_j", "Energy of the device"),
        ("throttle_power_seconds", "throttle_power_s", "Time throttled by a power limit"),
        ("throttle_thermal_seconds", "throttle_thermal_s", "Time throttled by temperature"),
        ("carbon_energy_joules", "carbon_energy_j", "Energy whose emissions are known"),
        ("carbon_grams", "carbon_g", "CO2-equivalent of the device's electricity"),
    ),
    "allocation": (
        ("allocated_cost", "cost", "Cost of the device by service and purpose"),
        ("allocated_hardware_cost", "cost_hardware", "Hardware part of it"),
        ("allocated_electricity_cost", "cost_energy", "Electricity part of it"),
    ),
    "tenant": (
        ("tenant_cost", "cost", "Cost of the service by team, user or key"),
        ("tenant_tokens_in", "tokens_in", "Input tokens of the tenant"),
        ("tenant_cached_tokens", "cached_tokens", "Those found in a cache"),
        ("tenant_tokens_out", "tokens_out", "Output tokens of the tenant"),
        ("tenant_cache_saved_cost", "cost_cache_saved", "What the cache saved"),
        ("tenant_requests", "requests", "Requests of the tenant"),
        ("tenant_energy_joules", "energy_j", "Energy of the tenant"),
    ),
    "slo": (
        ("service_slo_requests", "requests", "Requests that were timed, by bound of the SLO"),
        ("service_slo_met_requests", "requests_met", "Those surely within the bound"),
    ),
    "server": (
        ("server_energy_joules", "energy_j", "Energy of the whole server"),
        ("server_electricity_cost", "cost", "Cost of its electricity"),
    ),
    "serving": (
        ("service_requests", "requests", "Answered requests"),
        ("service_errors", "errors", "Failed requests"),
        ("service_tokens_in", "tokens_in", "Input tokens"),
        ("service_tokens_out", "tokens_out", "Output tokens"),
        ("service_cached_tokens", "cached_tokens", "Input tokens found in a cache"),
        ("service_kv_transfer_bytes", "kv_transfer_bytes", "Transferred KV cache"),
        ("service_kv_transfer_seconds", "kv_transfer_s", "Time of its transfers"),
        ("service_kv_transfer_failures", "kv_transfer_failures", "Failed transfers"),
        ("service_window_seconds", "window_s", "Length of the windows"),
        ("service_idle_seconds", "idle_s", "Time in which the service's devices were idle"),
        ("service_busy_seconds", "busy_s", "Time in which they were busy"),
    ),
    "cost": (
        ("service_cost", "cost_total", "Cost of the service"),
        ("service_idle_cost", "cost_idle", "Cost of idle time"),
        ("service_idle_known_cost", "cost_idle_known", "Cost in windows with a known idle part"),
        ("service_tokens_in_cost", "cost_tokens_in", "Cost of input tokens"),
        ("service_tokens_cached_cost", "cost_tokens_cached", "Part of it for cached tokens"),
        ("service_cache_saved_cost", "cost_cache_saved", "What the cache saved"),
        ("service_tokens_out_cost", "cost_tokens_out", "Cost of output tokens"),
        ("service_energy_joules", "energy_j", "Energy of the service"),
        ("service_priced_seconds", "window_s", "Length of the windows with a cost"),
        ("service_priced_requests", "requests", "Requests in windows with a cost"),
        ("service_priced_inferences", "inferences", "Inferences in windows with a cost"),
        ("service_priced_tokens_in", "tokens_in", "Input tokens in windows with a cost"),
        ("service_priced_cached_tokens", "cached_tokens", "Those found in a cache"),
        ("service_priced_tokens_out", "tokens_out", "Output tokens in windows with a cost"),
        ("service_tokens_in_energy_joules", "energy_tokens_in_j", "Energy of input tokens"),
        ("service_tokens_out_energy_joules", "energy_tokens_out_j", "Energy of output tokens"),
        ("service_metered_requests", "metered_requests", "Requests in windows with known energy"),
        (
            "service_metered_tokens_in",
            "metered_tokens_in",
            "Input tokens in windows with known energy",
        ),
        (
            "service_metered_tokens_out",
            "metered_tokens_out",
            "Output tokens in windows with known energy",
        ),
    ),
}
COUNTERS: Final[Mapping[str, tuple[StoredCounter, ...]]] = {
    measurement: tuple(StoredCounter(*row) for row in rows)
    for measurement, rows in _COUNTERS.items()
}


class StoredSample(NamedTuple):
    """A sample of a counter: its total, or what one row adds to it.

    Attributes:
        name: Name of the sample, without prefix.
        labels: Its labels.
        value: Not negative.
    """

    name: str
    labels: Mapping[str, str]
    value: Decimal


def increments(
    measurement: str, tags: Mapping[str, str], fields: Mapping[str, FieldValue]
) -> Iterator[StoredSample]:
    """Return what a row adds to counters; a negative value, NaN or an infinity adds nothing.

    Args:
        measurement: Series family of the row.
        tags: Tags of the row.
        fields: Fields of the row.
    """
    if measurement == "probe":
        yield from _latency(tags, fields)
        return
    counters = COUNTERS.get(measurement, ())
    if not counters or (measurement == "cost" and tags.get("basis") != "serving"):
        return
    values = {**fields, **_derived(fields)}
    labels = {name: value for name, value in tags.items() if name not in DESCRIPTIVE}
    without_currency = {name: value for name, value in labels.items() if name != _MONEY_TAG}
    is_model = _MODEL_TAG in tags
    for counter in counters:
        value = values.get(counter.field)
        # A cost in an unknown currency is no amount of money.
        if isinstance(value, bool | str | None) or not 0 <= value < math.inf:
            continue
        if counter.is_money and _MONEY_TAG not in tags:
            continue
        name = counter.name.replace("service_", "model_", 1) if is_model else counter.name
        yield StoredSample(
            f"{name}_total", labels if counter.is_money else without_currency, Decimal(repr(value))
        )


def _derived(fields: Mapping[str, FieldValue]) -> Mapping[str, FieldValue]:
    busy_share, window_s = fields.get("busy_share"), fields.get("window_s")
    if not (isinstance(busy_share, float) and isinstance(window_s, float)):
        return {}
    return {"idle_s": max(0.0, 1 - busy_share) * window_s, "busy_s": busy_share * window_s}


def _latency(tags: Mapping[str, str], fields: Mapping[str, FieldValue]) -> Iterator[StoredSample]:
    latency_ms = fields.get("latency_p50_ms")
    if not isinstance(latency_ms, float) or not 0 <= latency_ms < math.inf:
        return
    latency_s = Decimal(repr(latency_ms)).scaleb(-3)
    for bound_s in BUCKETS_S:
        labels = {**tags, "le": str(bound_s)}
        yield StoredSample(f"{RUN_LATENCY}_bucket", labels, Decimal(int(latency_s <= bound_s)))
    yield StoredSample(f"{RUN_LATENCY}_sum", tags, latency_s)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of sums over windows.

    Attributes:
        over: Field whose sum is divided.
        per: Field by whose sum it is divided.
        scale: Factor, such as 1,000 for "per 1,000".
        part: Field whose share of `whole` is taken of `over`; empty for all of it. Windows without
            tokens have a cost but no part for tokens: it is divided like that of the others.
        whole_fields: Fields that add up to the whole.
        older: Field that has the same in a row without `per`, which older versions wrote; empty for none.
    """

    over: str
    per: str
    scale: int = 1
    part: str = ""
    whole_fields: tuple[str, ...] = ()
    older: str = ""

    @property
    def is_of_counts(self) -> bool:
        """Whether it is an amount for so many requests or tokens, not a share of a cost."""
        return not self.per.startswith("cost_")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields whose sums are needed."""
        others = [name for name in (self.part, self.older) if name]
        return tuple(dict.fromkeys((self.over, self.per, *self.whole_fields, *others)))

    def of(self, sums: Mapping[str, float]) -> float | None:
        """Return the ratio; None where a sum is missing, or nothing was counted."""
        per = self.per if self.per in sums or not self.older else self.older
        needed = (self.over, per, *([self.part] if self.part else []))
        if any(name not in sums for name in needed) or not sums[per]:
            return None
        value = sums[self.over] / sums[per] * self.scale
        if not self.part:
            return value
        total = sum(sums.get(name, 0.0) for name in self.whole_fields)
        return value * (sums[self.part] / total) if total else None

    def written(self, sum_of: Callable[[str], str]) -> str:
        """Return the ratio as an expression of a query language.

        Args:
            sum_of: Writes the sum of a field.
        """
        text = f"{sum_of(self.over)} / {sum_of(self.per)}"
        if self.part:
            total = " + ".join(sum_of(name) for name in self.whole_fields)
            text = f"{text} * {sum_of(self.part)} / ({total})"
        return text if self.scale == 1 else f"{self.scale}.0 * {text}"


# Fields of `cost` on the serving basis that are ratios.
SERVING_RATIOS: Final[Mapping[str, Ratio]] = MappingProxyType(
    {
        "cost_per_inference": Ratio("cost_total", "inferences"),
        "cost_per_thousand_inferences": Ratio("cost_total", "inferences", _THOUSAND),
        "cost_per_request": Ratio("cost_total", "requests"),
        "cost_hardware": Ratio("cost_total_hardware", "inferences"),
        "cost_energy": Ratio("cost_total_energy", "inferences"),
        "cost_per_million_tokens_in": Ratio(
            "cost_total", "tokens_in", _MILLION, "cost_tokens_in", _TOKENS
        ),
        "cost_per_million_tokens_out": Ratio(
            "cost_total", "tokens_out", _MILLION, "cost_tokens_out", _TOKENS
        ),
        "cost_per_million_tokens_fresh": Ratio(
            "cost_total", "fresh_tokens", _MILLION, "cost_tokens_fresh", _TOKENS
        ),
        "cost_per_million_tokens_cached": Ratio(
            "cost_total", "cached_tokens", _MILLION, "cost_tokens_cached", _TOKENS
        ),
        "cached_share": Ratio("cached_tokens", "tokens_in"),
        # Not each window's idle part, energy and emissions are known: divided by what is of windows in which they are.
        "idle_share": Ratio("cost_idle", "cost_idle_known", older="cost_total"),
        "energy_per_inference_j": Ratio("energy_j", "metered_inferences", older="inferences"),
        "energy_per_request_j": Ratio("energy_j", "metered_requests", older="requests"),
        "energy_per_million_tokens_in_j": Ratio(
            "energy_j", "metered_tokens_in", _MILLION, "energy_tokens_in_j", _TOKENS_J, "tokens_in"
        ),
        "energy_per_million_tokens_out_j": Ratio(
            "energy_j",
            *("metered_tokens_out", _MILLION, "energy_tokens_out_j", _TOKENS_J, "tokens_out"),
        ),
        "carbon_per_inference_g": Ratio("carbon_g", "carbon_inferences"),
    }
)
# Their numerators and denominators, and the sums that a change of cost is decomposed by.
SERVING_SUMS: Final = tuple(
    dict.fromkeys(
        [
            *(name for ratio in SERVING_RATIOS.values() for name in ratio.fields),
            *("cost_cache_saved", "device_s", "device_busy_s", "decode_request_s"),
        ]
    )
)


# The fields of `probe` and, on the probe basis, of `cost` that a comparison or savings read.
RUN_FIELDS = frozenset(
    [
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
    ]
)
PAID_FIELDS = frozenset(
    [
        "contended",
        "cost_per_inference",
        "carbon_per_inference_g",
        "cost_per_million_tokens_in",
        "cost_per_million_tokens_out",
    ]
)
# Those of `cost` on the serving basis.
SERVICE_FIELDS = frozenset({*SERVING_RATIOS, *SERVING_SUMS, "window_s"})
SLO_FIELDS = frozenset(SCHEMA["slo"].fields)
# Units of work of a service, the closest to what keeps a device busy first.
UNITS = ("inferences", "tokens_out", "requests")
# Counters of `serving` that increase only while a service works.
WORK = (*UNITS, "errors", "tokens_in", "prefill_s", "decode_s", "compute_s", "executions")
# The fields of `serving` that the history of a service is built from.
WORK_FIELDS = frozenset({*WORK, "window_s", "complete"})
