"""Cost per inference on the probe basis: with the device used by nothing else.

Source: DESIGN "Cost per inference (probe basis)" = (∫ r dt + tariff x PUE x E / 3.6e6) / N over
the steady-state window, r in currency per device-second, E in joules, N inferences.
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
    """Return the cost of one inference in a window, or None where it is unknown.

    A region lasts seconds and a plan holds from midnight, so the rate is constant in it and
    the integral is a product.

    Args:
        terms: The terms in force during the window.
        reference: The terms in force when the baseline started.
        window_s: Seconds of the region that went into its inferences.
        inferences: Inferences in the region.
        energy_per_inference_j: Joules per inference; None where it was not measured.

    Returns:
        None if nothing was inferred, or if electricity is paid for apart and the energy is
        unknown: a cost without its electricity would look like a saving.
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
