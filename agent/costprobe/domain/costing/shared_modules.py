"""GPUs on one module, each of which reports the energy of the whole module.

NVML does not report which GPUs share a module, but their counters are the same: over an hour the sums
of two modules differ by more than one counter may lag behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import fsum
from typing import Final

from costprobe.core.records import Point

# Twice what a module of 1.5 kW draws in the 0.1 s by which a counter lags.
SAME_J: Final = 300.0
# Of less energy two modules at equal power could agree.
LEAST_J: Final = 600_000.0


def shared_modules(rows: Iterable[Point]) -> list[tuple[str, str]]:
    """Return the pairs of devices that report one module's energy.

    Args:
        rows: Rows of `device` as measured, of the same time.
    """
    energies_j: dict[str, dict[int, float]] = {}
    for row in rows:
        energy_j, device = row.fields.get("energy_j"), row.tags.get("device")
        if device and isinstance(energy_j, float) and row.fields.get("energy_scope") == "module":
            energies_j.setdefault(device, {})[row.time_ns] = energy_j
    pairs = []
    for first, other in combinations(sorted(energies_j), 2):
        times_ns = energies_j[first].keys() & energies_j[other].keys()
        totals_j = [fsum(energies_j[device][at] for at in times_ns) for device in (first, other)]
        if min(totals_j) >= LEAST_J and abs(totals_j[0] - totals_j[1]) <= SAME_J:
            pairs.append((first, other))
    return pairs
