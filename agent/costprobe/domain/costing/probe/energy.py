"""Energy per inference, measured or carried over from an earlier run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costprobe.core.records import Energy, EnergyMethod, EnergyScope, FieldValue, ProbeResult


@dataclass(frozen=True, slots=True)
class ProbeEnergy:
    """Joules per inference with their method and uncertainty.

    Attributes:
        per_inference_j: Gross joules per inference, idle power included.
        above_idle_j: Joules per inference above idle power; None until idle power is measured.
        method: How the energy was measured; `last_known` if it is that of an earlier run.
        rel_err: Relative uncertainty of per_inference_j.
        scope: What it covers, as in `Energy`.
        suspect: True if energy counter and power disagree; None until they were compared.
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
            "energy_scope": None if self.scope == "device" else self.scope,
            "energy_suspect": self.suspect,
        }


def energy_per_inference(energy: Energy, result: ProbeResult) -> ProbeEnergy:
    """Divide the energy of a steady-state window by its inferences."""
    above_idle_j = None
    if energy.idle_power_w is not None:
        above_j = energy.energy_j - energy.idle_power_w * result.window_s
        # Energy below idle power cannot be attributed to the probe.
        above_idle_j = above_j / result.inferences if above_j > 0 else None
    return ProbeEnergy(
        per_inference_j=energy.energy_j / result.inferences,
        above_idle_j=above_idle_j,
        method=energy.method,
        rel_err=energy.rel_err,
        scope=energy.scope,
        suspect=energy.suspect,
    )


@dataclass(frozen=True, slots=True)
class KnownEnergy:
    """The last measured energy per inference of a probe on a device.

    A run without an energy window is priced with it if batch and fingerprint are the same.

    Attributes:
        batch: Items per forward pass of the measured run.
        fingerprint: Hash of its software and model.
        energy: Its joules per inference.
    """

    batch: int
    fingerprint: str
    energy: ProbeEnergy

    def for_run(self, result: ProbeResult) -> ProbeEnergy | None:
        """Return the energy for a run without an energy window; None if batch or software differ."""
        if (self.batch, self.fingerprint) != (result.batch, result.fingerprint):
            return None
        return replace(self.energy, method="last_known")
