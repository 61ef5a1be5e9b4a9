"""Idle power of a device, estimated from its samples."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

IDLE_SAMPLES_MIN: Final = 10


IDLE_SAMPLES_MAX: Final = 600


IDLE_PERCENTILE: Final = 10


class IdlePower:
    """Idle power of a device: the 10th percentile of its power while it was idle.

    A low percentile, because power takes some seconds to settle after a load; over the last 600
    idle samples, because idle power depends on the ambient temperature.
    """

    def __init__(self) -> None:
        self._watts: deque[float] = deque(maxlen=IDLE_SAMPLES_MAX)

    def add(self, *powers_w: float) -> None:
        """Add samples in W that were taken while the device was idle."""
        self._watts.extend(powers_w)

    def value_w(self) -> float | None:
        """The idle power in W; None until there are 10 samples."""
        if len(self._watts) < IDLE_SAMPLES_MIN:
            return None
        rank = math.ceil(len(self._watts) * IDLE_PERCENTILE / 100)
        return sorted(self._watts)[rank - 1]
