"""Figures of a model on identical devices, or of a service: medians over them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from costprobe.core.money import PER_THOUSAND, price_scale, unit_price
from costprobe.core.periods import DAY_NS
from costprobe.ui.report.model import Bucket, Trend


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """A model on identical devices, or a service, over time.

    Attributes:
        name: The model or service.
        members: The trend on each device, by device.
        buckets: The median of the members in each step; currency for 1,000 inferences.
        before: The median of the members in the preceding period; None unless all are known.
        now: The median of the members in the period.
    """

    name: str
    members: Sequence[Trend]
    buckets: Sequence[Bucket]
    before: float | None
    now: float

    @property
    def moved_pct(self) -> float | None:
        """Change from the median of the first day's steps to that of the last day's, in percent."""
        first_ns, last_ns = self.buckets[0].time_ns, self.buckets[-1].time_ns
        first = statistics.median(b.value for b in self.buckets if b.time_ns < first_ns + DAY_NS)
        last = statistics.median(b.value for b in self.buckets if b.time_ns > last_ns - DAY_NS)
        return (last / first - 1) * 100 if first and last_ns > first_ns else None

    @property
    def scale(self) -> int:
        """Number of inferences that the cost is written for, the same in every period."""
        return price_scale(self.buckets[0].value / PER_THOUSAND)

    def price(self, per_thousand: float) -> str:
        """Format a cost of 1,000 inferences at the scale: "$0.455 per million inferences"."""
        currency = self.members[0].currency
        return unit_price(per_thousand / PER_THOUSAND, currency, self.scale, "inference")

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices; empty for a service."""
        return tuple(trend.device for trend in self.members if trend.basis == "probe")


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """A model on identical devices, or a service: medians over them; unknown values are None.

    Attributes:
        name: The model with batch and execution mode, or the service.
        devices: Names of the devices.
        cost: Currency per inference.
        latency_p50_ms: Median latency.
        latency_p99_ms: 99th percentile of it.
        energy_j: Joules per inference.
        carbon_g: Grams of carbon dioxide equivalent per inference.
        samples: Number of samples on all of them.
    """

    name: str
    devices: tuple[str, ...]
    cost: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    energy_j: float | None
    carbon_g: float | None
    samples: int
