"""The cost of a unit as plain records; unknown values are None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# What a cost is divided by: an inference of a probe or a service, or an output token.
Unit = Literal["inference", "request", "token"]


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one unit of a model costs on one device, or of a service.

    Attributes:
        tags: Its tags: device and probe, or service and served_model; basis and currency.
        unit: What the cost is divided by.
        cost: Currency per unit in the last hour with a value.
        scale: How many units the cost is written for; constant for a series.
        change_24h_pct: Change of the last hour against the same hour a day before, in percent.
        change_7d_pct: The same against a week before.
        trend: Times in UTC ns and currency per unit, of the last seven days; services from a sample of
            windows.
        latency_ms: Median latency.
        energy_j: Joules per unit, of tokens per million output tokens.
        time_ns: UTC in ns of the newest row.
        is_contended: Whether others used the device.
        devices: Its device, or those of the service.
        device_model: Product name of the device; empty for a service.
    """

    tags: Mapping[str, str]
    unit: Unit
    cost: float
    scale: int
    change_24h_pct: float | None
    change_7d_pct: float | None
    trend: Sequence[tuple[int, float]]
    latency_ms: float | None
    energy_j: float | None
    time_ns: int
    devices: Sequence[str]
    is_contended: bool = False
    device_model: str = ""

    @property
    def name(self) -> str:
        """The model or service: "encoder", "chat", "chat/llama-3.1-8b"."""
        tags = self.tags
        parts = (tags.get("service") or tags.get("probe", ""), tags.get("served_model", ""))
        return "/".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """A model on identical devices, or a service.

    Attributes:
        typical: The member with the median cost, whose figures stand for all.
        members: All of them, by device.
        spread: Largest minus smallest cost, as a share of the median; 0 for one member.
        outliers: Devices whose cost deviates from the median.
        moved: The member with the largest change against 24 h.
    """

    typical: UnitCost
    members: Sequence[UnitCost]
    spread: float
    outliers: Sequence[str]
    moved: UnitCost

    @property
    def changed(self) -> UnitCost:
        """The member whose changes and trend stand for all.

        The one that changed most if it deviates from the median, which would hide it; else the
        typical one.
        """
        is_outlier = self.moved.tags.get("device", "") in self.outliers
        return self.moved if is_outlier else self.typical
