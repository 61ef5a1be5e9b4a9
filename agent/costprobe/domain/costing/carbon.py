"""Grams of CO2-equivalent of the electricity of an inference or a device.

Source: the GHG Protocol's activity data x emission factor; see `costprobe.domain.pricing.carbon`.
"""

from __future__ import annotations

from dataclasses import dataclass

from costprobe.domain.pricing.carbon import CarbonMethod, Intensity


@dataclass(frozen=True, slots=True)
class Emission:
    """Emissions.

    Attributes:
        g: Grams of CO2-equivalent.
        method: Source of the carbon intensity.
    """

    g: float
    method: CarbonMethod


def emission(energy_j: float | None, intensity: Intensity | None) -> Emission | None:
    """Return the emissions of an energy; None if energy or intensity is unknown.

    Args:
        energy_j: Joules consumed by the device.
        intensity: Carbon intensity at the time.
    """
    if energy_j is None or intensity is None:
        return None
    return Emission(energy_j * intensity.g_per_j, intensity.method)
