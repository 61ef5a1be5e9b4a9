"""Joules per request and per token on the serving basis, idle time included.

A device's energy is divided among its services like its cost, probing excluded, whatever its price.
Models and tokens share it like the cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from costprobe.core.records import Energy, FieldValue
from costprobe.domain.costing.energy_sum import energy_sum
from costprobe.domain.costing.money import exact
from costprobe.domain.costing.serving.allocation import DeviceUse, allocate
from costprobe.domain.costing.serving.serving_basis import MILLION, ServedCost, ServiceCost

# The share of a device's energy by the name of a service; that of none is under "".
EnergyShares = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class ServedEnergy:
    """Energy of a service, or of one of its models, in a window.

    Attributes:
        total: Of all of it, with method and uncertainty.
        tokens_in_j: Joules of prompt tokens; None without a division between tokens.
        tokens_out_j: Joules of generated tokens, likewise.
        per_inference_j: Joules per inferred item; None where none was inferred.
        per_request_j: Joules per request; None where none was answered.
        per_million_tokens_in_j: Joules per million prompt tokens, cached ones included.
        per_million_tokens_out_j: Joules per million generated tokens.
    """

    total: Energy
    tokens_in_j: float | None
    tokens_out_j: float | None
    per_inference_j: float | None
    per_request_j: float | None
    per_million_tokens_in_j: float | None
    per_million_tokens_out_j: float | None

    def figures(self) -> dict[str, float | None]:
        """Its figures by the names of fields."""
        return {
            "energy_j": self.total.energy_j,
            "energy_tokens_in_j": self.tokens_in_j,
            "energy_tokens_out_j": self.tokens_out_j,
            "energy_per_inference_j": self.per_inference_j,
            "energy_per_request_j": self.per_request_j,
            "energy_per_million_tokens_in_j": self.per_million_tokens_in_j,
            "energy_per_million_tokens_out_j": self.per_million_tokens_out_j,
        }

    def fields(self) -> dict[str, FieldValue | None]:
        """The energy fields of a row of `cost`."""
        return {
            **self.figures(),
            "energy_method": self.total.method,
            "energy_rel_err": self.total.rel_err,
            "energy_scope": "parent" if self.total.scope == "parent" else None,
            "energy_suspect": self.total.suspect,
        }


def service_energy(
    cost: ServiceCost, shares: Mapping[str, EnergyShares], drawn: Mapping[str, Energy | None]
) -> Energy | None:
    """Return the energy of a service; None where it has no cost or a device's energy is unknown.

    The uncertainty is that of the sensors; the division among services is not part of it.

    Args:
        cost: What the service cost.
        shares: Each service's share of the energy of each device, by the device's name.
        drawn: Energy of each device in the window, by name.
    """
    if cost.total is None:
        return None
    parts = []
    for name in cost.devices:
        energy = drawn.get(name)
        share = shares.get(name, {}).get(cost.window.service)
        if energy is None or share is None:
            return None
        parts.append(replace(energy, energy_j=energy.energy_j * float(share), idle_power_w=None))
    return energy_sum(parts)


def served_energy(cost: ServedCost, energy: Energy) -> ServedEnergy:
    """Return the energy of a service or one of its models, per request and token.

    Args:
        cost: What it cost.
        energy: Energy of the service.
    """
    energy_j = energy.energy_j * float(cost.share)
    counts, tokens = cost.counts, cost.tokens
    in_j = energy_j * float(tokens.tokens_in) if tokens and counts.tokens_in else None
    out_j = energy_j * float(tokens.tokens_out) if tokens and counts.tokens_out else None
    return ServedEnergy(
        total=replace(energy, energy_j=energy_j),
        tokens_in_j=in_j,
        tokens_out_j=out_j,
        per_inference_j=_per(energy_j, counts.inferred),
        per_request_j=_per(energy_j, counts.requests),
        per_million_tokens_in_j=_per(in_j, counts.tokens_in, MILLION),
        per_million_tokens_out_j=_per(out_j, counts.tokens_out, MILLION),
    )


def energy_shares(use: DeviceUse, energy_j: float, probing_j: float | None) -> EnergyShares:
    """Return each service's share of a device's energy in a window.

    Args:
        use: Use of the device; its prices do not matter.
        energy_j: Energy of the device.
        probing_j: Energy of probing in the window; None to take its part by time.
    """
    exact_energy = exact(max(energy_j, 0.0)) or Decimal(1)
    probing = None if probing_j is None or energy_j <= 0 else exact(max(probing_j, 0.0))
    allocation = allocate(
        replace(
            use, hardware=Decimal(0), energy=exact_energy, probing_energy=probing, idle_energy=None
        )
    )
    shares: dict[str, Fraction] = {}
    for line in allocation.lines:
        share = Fraction(line.energy) / Fraction(exact_energy)
        shares[line.service] = shares.get(line.service, Fraction(0)) + share
    return shares


def _per(energy_j: float | None, count: float | None, per: int = 1) -> float | None:
    return energy_j * per / count if energy_j is not None and count else None
