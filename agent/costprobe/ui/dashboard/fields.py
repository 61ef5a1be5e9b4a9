"""The fields that the trend offers, and the words for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from costprobe.ui.dashboard.parameters import TrendQuery


class TrendField(NamedTuple):
    """A field that the trend offers.

    Attributes:
        label: What it is.
        unit: Its unit; of a price for one unit that unit.
    """

    label: str
    unit: str


# By field and, where it has several, basis.
TREND_FIELDS: Final[Mapping[str, Mapping[str, TrendField]]] = {
    "Cost": {
        "cost.cost_reference&basis=probe": TrendField("cost at constant price", "inference"),
        "cost.cost_per_inference&basis=probe": TrendField("cost of an inference, probes", "inference"),
        "cost.cost_per_inference&basis=serving": TrendField("cost of an inference, services", "inference"),
        "cost.cost_per_million_tokens_in": TrendField("cost per million input tokens", "per M input tokens"),
        "cost.cost_per_million_tokens_fresh": TrendField("cost per million fresh input tokens", "per M fresh input tokens"),
        "cost.cost_per_million_tokens_cached": TrendField("cost per million cached input tokens", "per M cached input tokens"),
        "cost.cost_per_million_tokens_out": TrendField("cost per million output tokens", "per M output tokens"),
    },
    "Latency, throughput and energy": {
        "probe.latency_p50_ms": TrendField("latency p50, ms", "ms"),
        "probe.latency_p99_ms": TrendField("latency p99, ms", "ms"),
        "probe.throughput_per_s": TrendField("throughput, inferences/s", "/s"),
        "probe.energy_per_inference_j": TrendField("energy per inference, J", "J"),
        "probe.throttled_pct": TrendField("throttled, %", "%"),
        "cost.energy_per_request_j": TrendField("energy per request, J", "J per request"),
        "cost.energy_per_million_tokens_in_j": TrendField("energy per million input tokens, J", "J per M input tokens"),
        "cost.energy_per_million_tokens_out_j": TrendField("energy per million output tokens, J", "J per M output tokens"),
    },
    "Devices": {
        "device.power_w": TrendField("power, W", "W"),
        "device.util_pct": TrendField("utilization, %", "%"),
        "device.temp_c": TrendField("temperature, °C", "°C"),
        "device.sm_clock_mhz": TrendField("SM clock, MHz", "MHz"),
        "device.mem_clock_mhz": TrendField("memory clock, MHz", "MHz"),
        "device.power_limit_w": TrendField("power limit, W", "W"),
        "device.throttle_thermal_s": TrendField("thermal throttling, s per sample", "s"),
        "device.throttle_power_s": TrendField("power throttling, s per sample", "s"),
        "device.price_rate_per_h": TrendField("price, per hour", "per hour"),
    },
}  # fmt: skip
# What the trend begins with: the first of these that the host has.
FIRST_FIELDS: Final = (
    "cost.cost_reference&basis=probe",
    "cost.cost_per_inference&basis=probe",
    "cost.cost_per_million_tokens_out",
    "cost.cost_per_inference&basis=serving",
    "probe.latency_p50_ms",
    "device.power_w",
)


def trend_choices(known: Iterable[str]) -> dict[str, Any]:
    """Return the fields that the trend offers, by heading, and the first.

    Args:
        known: Fields of which the host has values, also with their basis.
    """
    fields = set(known)
    groups = {
        heading: [[field, one.label] for field, one in of.items() if field in fields]
        for heading, of in TREND_FIELDS.items()
    }
    return {
        "fields": [[heading, own] for heading, own in groups.items() if own],
        "first": next((field for field in FIRST_FIELDS if field in fields), ""),
    }


def trend_field(query: TrendQuery) -> TrendField:
    """Return the words for a field; for one that is not offered its own name."""
    name = f"{query.measurement}.{query.field}"
    own = f"{name}&basis={query.tags.get('basis', '')}"
    known = {field: one for of in TREND_FIELDS.values() for field, one in of.items()}
    return known.get(own) or known.get(name) or TrendField(name, "")
