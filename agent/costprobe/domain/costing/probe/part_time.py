"""Boards whose power sensor sees a quarter of the time, and what that adds to the error of an energy.

Source: Yang, Adamek and Armour, "Part-time Power Measurements: nvidia-smi's Lack of Attention"
(arXiv 2312.02741): A100 and H100 publish every 100 ms the mean of 25 ms. A load whose passes last a
multiple or a simple fraction of 100 ms shows the sensor the same part of each pass, however long
the window is.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from costprobe.core.records import Device, Energy, ProbeResult

PERIOD_S: Final = 0.1
SEEN_S: Final = 0.025
# The sensor's period is nominal: passes this close to a ratio count as having it.
TOLERANCE: Final = 0.01
# With four or more passes to a common period their phases overlap.
MOST_PASSES: Final = round(PERIOD_S / SEEN_S)
# Mean range of a random walk of n steps with standard deviation 1, over the root of n (Feller 1951).
WALK_RANGE: Final = math.sqrt(8 / math.pi)
# The chips of the A100 and the H100, GA100 and GH100, under the names of their products.
_BOARDS: Final = re.compile(r"\b(?:A100|A800|A30|H100|H800|H200|H20|GH200)(?!\d)")


def with_sampling_error(energy: Energy, device: Device, result: ProbeResult) -> Energy:
    """Return an energy, its uncertainty enlarged by what the device's sensor may not have seen.

    Args:
        energy: Energy of the device in the window.
        device: The device.
        result: Result of the probe that loaded it.
    """
    concurrency = int(result.tags.get("concurrency", "1"))
    if device.is_host or concurrency > 1 or not _BOARDS.search(device.model):
        # Several clients of a server are not in step.
        return energy
    pass_s = result.window_s * result.batch / result.inferences
    unseen = sampling_error(pass_s, result.window_s, result.latency_ms["cv"])
    return replace(energy, rel_err=energy.rel_err + unseen)


def sampling_error(pass_s: float, window_s: float, cv: float) -> float:
    """Return the error that a part-time sensor may add to the mean power of periodic passes.

    If p passes last as long as q periods of the sensor, it sees p x 25 of each 100 ms of a pass, in q
    places. The places move if the ratio is not exact, or if the passes differ in length. The unseen
    rest is taken to draw between nothing and twice the mean, independently around each place.

    Args:
        pass_s: Mean duration of a pass.
        window_s: Duration of the window.
        cv: Coefficient of variation of the duration of a pass.

    Returns:
        A relative error, from 0 to 0.75.
    """
    wandered_s = WALK_RANGE * cv * math.sqrt(window_s * pass_s)
    worst = 0.0
    for passes in range(1, MOST_PASSES):
        periods = max(1, round(passes * pass_s / PERIOD_S))
        mismatch = abs(passes * pass_s / (periods * PERIOD_S) - 1)
        moved_s = max(0.0, mismatch - TOLERANCE) * window_s + wandered_s
        seen_share = passes * (SEEN_S + moved_s) / PERIOD_S
        worst = max(worst, (1 - seen_share) / math.sqrt(periods))
    return worst
