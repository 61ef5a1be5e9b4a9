"""How many devices of a group the same work needs at a higher utilization."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

# Rounding of a share times a number of devices.
_ROUNDING: Final = 1e-9


class Consolidation(NamedTuple):
    """The devices that a group of equal devices could do without.

    Attributes:
        needed: Number of devices that the same work needs.
        spare: Number of the others.
    """

    needed: int
    spare: int


def consolidation(devices: int, utilization: float, target: float) -> Consolidation:
    """Return how many devices the same work needs: n u / t, rounded up, at least one.

    It assumes that work may move between the devices, and scales with utilization; a mean hides peaks,
    for which the target leaves room.

    Args:
        devices: Number of devices, n; at least one.
        utilization: Their mean utilization, u, from 0 to 1.
        target: Utilization that they may reach, t, above 0 up to 1.
    """
    needed = max(1, math.ceil(devices * utilization / target - _ROUNDING))
    return Consolidation(min(devices, needed), max(0, devices - needed))
