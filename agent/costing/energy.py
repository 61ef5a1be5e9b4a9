"""Energy per inference, and what is known of it when a run carried no energy window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.model import Energy, EnergyMethod, EnergyScope, FieldValue, ProbeResult


@dataclass(frozen=True, slots=True)
class ProbeEnergy:
    """Joules per inference with their method and uncertainty.

    Attributes:
        per_inference_j: Gross joules per inference, idle power included.
        above_idle_j: Joules per inference above the idle device's; None until that is learnt.
        method: How the energy was found; `last_known` if it is another run's.
        rel_err: Relative uncertainty of per_inference_j.
        scope: "parent" where it is the whole board's, of which the device is a part.
        suspect: Whether the device's sensors contradict each other; None until they were compared.
    """

    per_inference_j: float
    above_idle_j: float | None
    method: EnergyMethod
    rel_err: float
    scope: EnergyScope = "device"
    suspect: bool | None = None

    def fields(self) -> dict[str, FieldValue | None]:
        """The energy fields of the `probe` series."""
        return {
            "energy_per_inference_j": self.per_inference_j,
            "energy_above_idle_j": self.above_idle_j,
            "energy_method": self.method,
            "energy_rel_err": self.rel_err,
            "energy_scope": "parent" if self.scope == "parent" else None,
            "energy_suspect": self.suspect,
        }


def energy_per_inference(energy: Energy, result: ProbeResult) -> ProbeEnergy:
    """Shares a region's energy over its inferences."""
    above_idle_j = None
    if energy.idle_power_w is not None:
        above_j = energy.energy_j - energy.idle_power_w * result.region_s
        # Below the learnt idle power there is nothing that could be called the probe's.
        above_idle_j = above_j / result.inferences if above_j > 0 else None
    return ProbeEnergy(
        per_inference_j=energy.energy_j / result.inferences,
        above_idle_j=above_idle_j,
        method=energy.method,
        rel_err=energy.rel_err,
        scope=energy.scope,
        suspect=energy.suspect,
    )


class LastKnownEnergy:
    """The last measured energy per inference of each thing that was measured.

    A run without an energy window is priced with the last one of the same device, probe, batch
    and fingerprint, and tagged so; another fingerprint's energy says nothing about this one.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], tuple[tuple[int, str], ProbeEnergy]] = {}

    def remember(self, result: ProbeResult, energy: ProbeEnergy) -> None:
        """Keeps the energy of a run that had a window; one per device and probe."""
        identity = (result.batch, result.fingerprint)
        self._by_key[result.device, result.probe] = (identity, energy)

    def of(self, result: ProbeResult) -> ProbeEnergy | None:
        """The last known energy for a run without a window; None where there is none."""
        identity, energy = self._by_key.get((result.device, result.probe), (None, None))
        if energy is None or identity != (result.batch, result.fingerprint):
            return None
        return replace(energy, method="last_known")
