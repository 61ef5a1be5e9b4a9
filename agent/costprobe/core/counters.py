"""The monotonic counters of `/metrics`: which fields of which rows they add up.

A counter is the sum of a field over all rows that were ever stored. Its labels are the tags of the
rows without those that describe rather than identify, so that it continues when a board or a plan is
replaced. The naming follows https://prometheus.io/docs/practices/naming: base units, `_total`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from costprobe.core.records import FieldValue

PREFIX: Final = "costprobe_"
# Money counters have the tag `currency`, all others do not.
_MONEY_TAG: Final = "currency"
# Tags that describe rather than identify: no labels of counters.
DESCRIPTIVE: Final = frozenset({"kind", "uuid", "plan", "basis", "engine"})
_MODEL_TAG: Final = "served_model"
# Prefix of quantities that count only in windows whose energy is known.
METERED: Final = "metered_"


class StoredCounter(NamedTuple):
    """A counter, and the rows that it adds up.

    Attributes:
        name: Name without prefix and `_total`; of rows of a served model, `service_` becomes `model_`.
        field: Field of the rows, or a quantity that `increments` derives from them.
        help: HELP text.
        is_money: Whether it has the label `currency`.
    """

    name: str
    field: str
    help: str
    is_money: bool = False


COUNTERS: Final[Mapping[str, tuple[StoredCounter, ...]]] = {
    "device": (
        StoredCounter("cost", "cost", "Cost of the device", is_money=True),
        StoredCounter("energy_joules", "energy_j", "Energy of the device"),
        StoredCounter(
            "throttle_power_seconds", "throttle_power_s", "Time throttled by a power limit"
        ),
        StoredCounter(
            "throttle_thermal_seconds", "throttle_thermal_s", "Time throttled by temperature"
        ),
        StoredCounter(
            "carbon_energy_joules", "carbon_energy_j", "Energy whose emissions are known"
        ),
        StoredCounter("carbon_grams", "carbon_g", "CO2-equivalent of the device's electricity"),
    ),
    "allocation": (
        StoredCounter(
            "allocated_cost", "cost", "Cost of the device by service and purpose", is_money=True
        ),
        StoredCounter(
            "allocated_hardware_cost", "cost_hardware", "Hardware part of it", is_money=True
        ),
        StoredCounter(
            "allocated_electricity_cost", "cost_energy", "Electricity part of it", is_money=True
        ),
    ),
    "tenant": (
        StoredCounter(
            "tenant_cost", "cost", "Cost of the service by team, user or key", is_money=True
        ),
        StoredCounter("tenant_tokens_in", "tokens_in", "Input tokens of the tenant"),
        StoredCounter("tenant_tokens_out", "tokens_out", "Output tokens of the tenant"),
        StoredCounter("tenant_requests", "requests", "Requests of the tenant"),
        StoredCounter("tenant_energy_joules", "energy_j", "Energy of the tenant"),
    ),
    "serving": (
        StoredCounter("service_requests", "requests", "Answered requests"),
        StoredCounter("service_errors", "errors", "Failed requests"),
        StoredCounter("service_tokens_in", "tokens_in", "Input tokens"),
        StoredCounter("service_tokens_out", "tokens_out", "Output tokens"),
        StoredCounter("service_cached_tokens", "cached_tokens", "Input tokens found in a cache"),
        StoredCounter("service_window_seconds", "window_s", "Length of the windows"),
        StoredCounter(
            "service_idle_seconds", "idle_s", "Time in which the service's devices were idle"
        ),
        StoredCounter("service_busy_seconds", "busy_s", "Time in which they were busy"),
    ),
    # Numerators and denominators of the ratios of production, of the same windows.
    "cost": (
        StoredCounter("service_cost", "cost_total", "Cost of the service", is_money=True),
        StoredCounter("service_idle_cost", "cost_idle", "Cost of idle time", is_money=True),
        StoredCounter(
            "service_tokens_in_cost", "cost_tokens_in", "Cost of input tokens", is_money=True
        ),
        StoredCounter(
            "service_tokens_out_cost", "cost_tokens_out", "Cost of output tokens", is_money=True
        ),
        StoredCounter("service_energy_joules", "energy_j", "Energy of the service"),
        StoredCounter("service_priced_requests", "requests", "Requests in windows with a cost"),
        StoredCounter(
            "service_priced_inferences", "inferences", "Inferences in windows with a cost"
        ),
        StoredCounter(
            "service_priced_tokens_in", "tokens_in", "Input tokens in windows with a cost"
        ),
        StoredCounter(
            "service_priced_tokens_out", "tokens_out", "Output tokens in windows with a cost"
        ),
        StoredCounter(
            "service_tokens_in_energy_joules", "energy_tokens_in_j", "Energy of input tokens"
        ),
        StoredCounter(
            "service_tokens_out_energy_joules", "energy_tokens_out_j", "Energy of output tokens"
        ),
        StoredCounter(
            "service_metered_requests", "metered_requests", "Requests in windows with known energy"
        ),
        StoredCounter(
            "service_metered_tokens_in",
            "metered_tokens_in",
            "Input tokens in windows with known energy",
        ),
        StoredCounter(
            "service_metered_tokens_out",
            "metered_tokens_out",
            "Output tokens in windows with known energy",
        ),
    ),
}
# A histogram of the median latency of each run of a probe; seconds.
RUN_LATENCY: Final = "probe_run_latency_seconds"
RUN_LATENCY_HELP: Final = "Median latency of each run of a probe"
# 1, 2.5 and 5 of each power of ten from 0.1 ms to 10 s.
BUCKETS_S: Final = (
    *(Decimal(f"{digits}e{power}") for power in range(-4, 1) for digits in ("1", "2.5", "5")),
    Decimal(10),
    Decimal("Infinity"),
)
COUNTED: Final = frozenset({*COUNTERS, "probe"})


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
    """Return what a row adds to counters; a negative value adds nothing.

    Args:
        measurement: Series family of the row.
        tags: Tags of the row.
        fields: Fields of the row.
    """
    if measurement == "probe":
        yield from _latency(tags, fields)
        return
    if measurement == "cost" and tags.get("basis") != "serving":
        return
    values = {**fields, **_derived(measurement, fields)}
    labels = {name: value for name, value in tags.items() if name not in DESCRIPTIVE}
    without_currency = {name: value for name, value in labels.items() if name != _MONEY_TAG}
    is_model = _MODEL_TAG in tags
    for counter in COUNTERS.get(measurement, ()):
        value = values.get(counter.field)
        # A cost in an unknown currency is no amount of money.
        if isinstance(value, bool | str | None) or value < 0:
            continue
        if counter.is_money and _MONEY_TAG not in tags:
            continue
        name = counter.name.replace("service_", "model_", 1) if is_model else counter.name
        yield StoredSample(
            f"{name}_total", labels if counter.is_money else without_currency, Decimal(repr(value))
        )


def _derived(measurement: str, fields: Mapping[str, FieldValue]) -> Mapping[str, FieldValue]:
    if measurement == "cost" and "energy_j" in fields:
        return {f"{METERED}{name}": value for name, value in fields.items()}
    busy_share, window_s = fields.get("busy_share"), fields.get("window_s")
    if not (isinstance(busy_share, float) and isinstance(window_s, float)):
        return {}
    return {"idle_s": max(0.0, 1 - busy_share) * window_s, "busy_s": busy_share * window_s}


def _latency(tags: Mapping[str, str], fields: Mapping[str, FieldValue]) -> Iterator[StoredSample]:
    latency_ms = fields.get("latency_p50_ms")
    if not isinstance(latency_ms, float) or latency_ms < 0:
        return
    latency_s = Decimal(repr(latency_ms)).scaleb(-3)
    for bound_s in BUCKETS_S:
        labels = {**tags, "le": str(bound_s)}
        yield StoredSample(f"{RUN_LATENCY}_bucket", labels, Decimal(int(latency_s <= bound_s)))
    yield StoredSample(f"{RUN_LATENCY}_sum", tags, latency_s)
