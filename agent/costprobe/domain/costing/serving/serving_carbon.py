"""Grams of CO2-equivalent on the serving basis, from the electricity of a service's devices.

A service's part of a device's emissions is its share of the device's energy, idle time included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costprobe.domain.costing.carbon import Emission
from costprobe.domain.costing.serving.serving_basis import ServedCost, ServiceCost
from costprobe.domain.costing.serving.serving_energy import EnergyShares


@dataclass(frozen=True, slots=True)
class ServedEmission:
    """Emissions of serving in a window.

    Attributes:
        service: Emissions of the whole service.
        models: Emissions of each model by name, if there are several; they sum to the whole.
    """

    service: Emission
    models: Mapping[str, Emission]


def served_emission(
    cost: ServiceCost,
    shares: Mapping[str, EnergyShares],
    emitted: Mapping[str, Emission | None],
) -> ServedEmission | None:
    """Return the emissions of a service; None without a cost, or if those of a device are unknown.

    Args:
        cost: Cost of the service.
        shares: Each service's share of the energy of each device, by the device's name.
        emitted: Emissions of each device, by name.
    """
    if cost.total is None:
        return None
    parts = [shares.get(name, {}).get(cost.window.service) for name in cost.devices]
    emissions = [emitted.get(name) for name in cost.devices]
    borne = [
        Emission(emission.g * float(part), emission.method)
        for emission, part in zip(emissions, parts, strict=True)
        if emission is not None and part is not None
    ]
    if len(borne) < len(cost.devices):
        return None
    service_emission = Emission(sum(emission.g for emission in borne), borne[0].method)
    return ServedEmission(service_emission, _of_models(service_emission, cost.models))


def _of_models(service_emission: Emission, models: Sequence[ServedCost]) -> dict[str, Emission]:
    """Each model's part, by its share of the cost."""
    return {
        model.model: Emission(service_emission.g * float(model.share), service_emission.method)
        for model in models
    }
