"""Grams of CO2-equivalent beside the money: what the electricity of an inference emitted.

Source: the GHG Protocol's activity data x emission factor, as `agent.pricing.carbon` says.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.pricing.carbon import CarbonMethod, Intensity


@dataclass(frozen=True, slots=True)
class Emission:
    """What was emitted.

    Attributes:
        g: Grams of CO2-equivalent.
        method: How the intensity of the electricity was known.
    """

    g: float
    method: CarbonMethod


def emission(energy_j: float | None, intensity: Intensity | None) -> Emission | None:
    """What drawing an energy emitted; None where the energy or the intensity is not known.

    Args:
        energy_j: Joules at the device.
        intensity: What electricity emitted then.
    """
    if energy_j is None or intensity is None:
        return None
    return Emission(energy_j * intensity.g_per_j, intensity.method)
