"""Whether a device is busy with someone else's work before a probe begins."""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """What is to be seen of a device before a probe.

    Attributes:
        util_pct: Share of the last moments in which it worked, in percent; None where it cannot
            be told, as on a MIG device.
        has_processes: Whether processes worked on it, or held it where no more is known; None
            where neither is.
    """

    util_pct: float | None
    has_processes: bool | None


def is_busy(load: Load, above_share: float) -> bool:
    """Whether a probe would take a neighbour's time, as far as it can be told.

    A process that holds an idle device's memory is no reason to wait: its server may stay for
    months. Where utilization is not told, that it holds the device is all there is to see.

    Args:
        load: What is to be seen of the device.
        above_share: Above this share of the time it is busy.
    """
    if load.util_pct is not None:
        return load.util_pct > above_share * 100
    return bool(load.has_processes)
