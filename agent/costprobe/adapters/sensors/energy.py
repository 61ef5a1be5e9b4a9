"""What daemon and child compute alike of energy: idle power, mean power, and relative errors."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from costprobe.adapters.sensors.messages import CounterMethod

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


# Boards are specified to about 5 % and are not calibrated: Yang, Adamek and Armour, "Part-time
# Power Measurements: nvidia-smi's Lack of Attention" (2023), find that order against a meter.
# RAPL: Khan et al., "RAPL in Action" (2018), find a good correlation with power at the plug and
# give no general bound, so the uncertainty of a board is assumed.
BOARD_REL_ERR: Final = 0.05
# The model uses only the number of CPUs and their utilization.
MODEL_REL_ERR: Final = 0.5

# Longest time in s by which a counter lags behind the energy: GPUs publish theirs every 20 to
# 100 ms (Yang et al. 2023), RAPL about every ms, /proc/stat counts ticks of 10 ms.
COUNTER_STEP_S: Final[dict[CounterMethod, float]] = {
    "counter": 0.1,
    "rapl": 0.001,
    "modelled": 0.01,
}
BASE_REL_ERR: Final[dict[CounterMethod, float]] = {
    "counter": BOARD_REL_ERR,
    "rapl": BOARD_REL_ERR,
    "modelled": MODEL_REL_ERR,
}

# A power reading is the mean of up to a second, published every 100 ms: only this long after the
# start of the load does it average none of the time before (Yang et al. 2023, table 2).
POWER_LAG_S: Final = 1.1

# Power readings that follow each other overlap, so that the error of their mean is taken from the
# means of blocks (batch means: Law, Simulation Modeling and Analysis, ch. 9), with Student's
# 97.5 % quantile for a small number of blocks.
BLOCKS: Final = 5
STUDENT: Final[dict[int, float]] = {3: 4.303, 4: 3.182, 5: 2.776}


def mean_power_w(powers: Sequence[tuple[int, float]]) -> float:
    """Mean power in W over the time between the first reading and the last, at least two."""
    joules = sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in pairwise(powers))
    return joules / (powers[-1][0] - powers[0][0])


def mean_rel_err(watts: Sequence[float]) -> float:
    """Half width of a 95 % interval of the mean of correlated readings, as a share of it.

    Args:
        watts: In order of time, at least three, their mean above zero.
    """
    blocks = min(BLOCKS, len(watts))
    size = len(watts) // blocks
    # Without `statistics`, which needs 0.5 MB in the sensor child.
    means = [math.fsum(watts[i * size : (i + 1) * size]) / size for i in range(blocks)]
    mean = math.fsum(means) / blocks
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in means) / (blocks - 1))
    return STUDENT[blocks] * deviation / math.sqrt(blocks) / (math.fsum(watts) / len(watts))
