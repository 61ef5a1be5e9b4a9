"""Energy of several devices, or of several intervals, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from costprobe.core.records import Energy, EnergyMethod, EnergyScope

# From the least to the most accurate: a sum has the method of its least accurate part.
TRUST: Final[tuple[EnergyMethod, ...]] = ("modelled", "rapl", "poll", "samples", "counter")
# What energies cover beyond their devices, the widest first: a sum covers what its parts do.
WIDER: Final[tuple[EnergyScope, ...]] = ("parent", "module")


def energy_sum(energies: Sequence[Energy]) -> Energy:
    """Return the sum of energies, with the least accurate of their methods.

    Their errors are assumed to be correlated, as those of boards of one model may be.

    Args:
        energies: At least one.
    """
    if len(energies) == 1:
        return energies[0]
    total_j = sum(energy.energy_j for energy in energies)
    idle_w = [energy.idle_power_w for energy in energies if energy.idle_power_w is not None]
    scopes = {energy.scope for energy in energies}
    known_suspect = [energy.suspect for energy in energies if energy.suspect is not None]
    error_j = sum(energy.rel_err * energy.energy_j for energy in energies)
    return Energy(
        energy_j=total_j,
        method=min((energy.method for energy in energies), key=TRUST.index),
        rel_err=error_j / total_j if total_j else max(energy.rel_err for energy in energies),
        idle_power_w=sum(idle_w) if len(idle_w) == len(energies) else None,
        scope=next((scope for scope in WIDER if scope in scopes), "device"),
        suspect=any(known_suspect) if known_suspect else None,
    )
