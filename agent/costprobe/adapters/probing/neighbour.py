"""Detection of other processes that use a device before a probe starts."""

from __future__ import annotations

from typing import NamedTuple


class DeviceLoad(NamedTuple):
    """Load on a device before a probe.

    Attributes:
        util_pct: Recent utilization in percent; None if unknown, as on a MIG device.
        has_processes: Whether processes used it recently, or have it open if the driver does not
            report use; None if unknown.
    """

    util_pct: float | None
    has_processes: bool | None


def is_busy(load: DeviceLoad, above_share: float) -> bool:
    """Return whether a probe would compete with another process, as far as is known.

    A process that only holds memory of an idle device does not defer a probe. If utilization is
    unknown, a device that is open counts as busy.

    Args:
        load: Load on the device.
        above_share: A device is busy above this share of utilization.
    """
    if load.util_pct is not None:
        return load.util_pct > above_share * 100
    return bool(load.has_processes)
