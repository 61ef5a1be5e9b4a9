"""The cost of devices in a window, with all that the rows of services state about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costprobe.core.records import Energy
from costprobe.domain.costing.carbon import Emission
from costprobe.domain.costing.serving.allocation import Allocation
from costprobe.domain.costing.serving.serving_energy import EnergyShares


@dataclass(frozen=True, slots=True)
class DeviceBill:
    """Cost of a group's devices in a window.

    Attributes:
        allocations: Cost allocation of each device, by name.
        plans: Kinds of the price plans in force for each device, by name.
        currencies: ISO 4217 codes of each device, by name.
        busy_shares: Share of the window in which each device was busy, if known.
        emitted: Emissions of each device, if known.
        drawn: Energy of each device, where known; of a MIG device its slices' share of the board's.
        energy_shares: Each service's share of it, by the name of the device.
    """

    allocations: Mapping[str, Allocation]
    plans: Mapping[str, str] = field(default_factory=dict)
    currencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    busy_shares: Mapping[str, float] = field(default_factory=dict)
    emitted: Mapping[str, Emission | None] = field(default_factory=dict)
    drawn: Mapping[str, Energy | None] = field(default_factory=dict)
    energy_shares: Mapping[str, EnergyShares] = field(default_factory=dict)

    def currency_of(self, devices: Sequence[str]) -> str:
        """Return the currency of devices; empty where nothing is priced."""
        return next(
            (currency for name in devices for currency in self.currencies.get(name, ())), ""
        )
