"""Cost per inference on the probe basis: on a device without other load.

Source: docs/cost.md: (∫ r dt + tariff x PUE x E / 3.6e6) / N over the steady-state window, with r in
currency per device-second, E in joules and N inferences.
"""

from __future__ import annotations

from costprobe.core.records import CostSample
from costprobe.domain.pricing.book import Terms


def cost_sample(
    terms: Terms,
    reference: Terms,
    *,
    window_s: float,
    inferences: float,
    energy_per_inference_j: float | None,
) -> CostSample | None:
    """Return the cost of one inference in a window.

    A window lasts seconds and plans change at midnight, so the rate is assumed to be constant and
    the integral is a product.

    Args:
        terms: The terms in force during the window.
        reference: The terms in force when the baseline started.
        window_s: Seconds of the window that were spent on inferences.
        inferences: Inferences in the window.
        energy_per_inference_j: Joules per inference; None if unknown.

    Returns:
        None without inferences, or if electricity is paid separately and the energy is unknown: a
        cost without electricity would look like a saving.
    """
    if inferences <= 0 or window_s <= 0:
        return None
    hardware, energy = _split(terms, window_s / inferences, energy_per_inference_j)
    if energy is None:
        return None
    reference_hardware, reference_energy = _split(
        reference, window_s / inferences, energy_per_inference_j
    )
    if reference_energy is None:
        return None
    return CostSample(
        currency=terms.rate.currency,
        plan=terms.rate.plan,
        hardware=hardware,
        energy=energy,
        reference=reference_hardware + reference_energy,
        is_stale=terms.rate.is_stale,
    )


def _split(
    terms: Terms, time_per_inference_s: float, energy_per_inference_j: float | None
) -> tuple[float, float | None]:
    hardware = terms.per_s * time_per_inference_s
    if terms.electricity_per_j == 0.0:
        return hardware, 0.0
    if energy_per_inference_j is None:
        return hardware, None
    return hardware, terms.electricity_per_j * energy_per_inference_j
