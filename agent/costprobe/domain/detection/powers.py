"""Idle and busy power of a service's devices, from the energy of its work.

The energy of a unit of work falls with the load because idle power is divided among more work. With the
idle and the busy seconds of a unit at a load, two powers describe that at every load, observed or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# Below this share of the product of both sums of squares there is one load only.
LEAST_DETERMINANT = 1e-4


class Powers(NamedTuple):
    """Mean power of a device in W while it is idle, and while it is busy."""

    idle_w: float
    busy_w: float

    def energy_j(self, idle_s: float, busy_s: float) -> float:
        """Return the energy of idle and busy device-seconds."""
        return self.idle_w * idle_s + self.busy_w * busy_s


def fitted_powers(work: Iterable[tuple[float, float, float]]) -> Powers | None:
    """Return the powers by least squares of relative errors; None where the loads do not separate them.

    Args:
        work: Energy in J, idle and busy device-seconds of a unit of work, of each block.
    """
    ii = ib = bb = of_idle = of_busy = 0.0
    for energy_j, idle_s, busy_s in work:
        idle, busy = idle_s / energy_j, busy_s / energy_j
        ii += idle * idle
        ib += idle * busy
        bb += busy * busy
        of_idle += idle
        of_busy += busy
    determinant = ii * bb - ib * ib
    if determinant <= LEAST_DETERMINANT * ii * bb:
        return None
    idle_w = (bb * of_idle - ib * of_busy) / determinant
    busy_w = (ii * of_busy - ib * of_idle) / determinant
    return Powers(idle_w, busy_w) if idle_w >= 0 < busy_w else None
