"""Whether another process uses a device before a probe starts."""

from __future__ import annotations

from typing import NamedTuple


class DeviceLoad(NamedTuple):
    """Load on a device before a probe.

    Attributes:
        util_pct: Recent utilization in percent; None where it is unknown, as on a MIG device.
        has_processes: Whether processes used it recently, or merely have it open where the
            driver reports no more; None where neither is known.
    """

    util_pct: float | None
    has_processes: bool | None


def is_busy(load: DeviceLoad, above_share: float) -> bool:
    """Return whether a probe would take time from another process, as far as is known.

    A process that only holds memory of an idle device is no reason to wait: a server may do so for
    months. Where utilization is unknown, an open device counts as busy.

    Args:
        load: Load on the device.
        above_share: Utilization above this share is busy.
    """
    if load.util_pct is not None:
        return load.util_pct > above_share * 100
    return bool(load.has_processes)
