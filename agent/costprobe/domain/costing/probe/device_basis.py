"""Cost of a device over time, whatever it does."""

from __future__ import annotations

from costprobe.domain.pricing.book import Terms


def device_cost(terms: Terms, duration_s: float, energy_j: float | None) -> float | None:
    """Return the currency for holding a device for a time, electricity included.

    Args:
        terms: The terms in force.
        duration_s: Length of the interval in seconds.
        energy_j: Joules drawn in it; None where unknown.

    Returns:
        None if electricity is paid for apart and the energy is unknown.
    """
    hardware = terms.per_s * duration_s
    if terms.electricity_per_j == 0.0:
        return hardware
    return None if energy_j is None else hardware + terms.electricity_per_j * energy_j
