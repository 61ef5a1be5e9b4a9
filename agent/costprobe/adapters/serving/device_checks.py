"""Checks across services: devices that they share are allocated over the same windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.core.units import format_duration, percent

_ROUNDING = 1e-9


def service_problems(services: Sequence[ServiceConfig]) -> Iterator[str]:
    """Lines `key.path: what is wrong; the fix`, for windows and shares of shared devices.

    Args:
        services: In the file's order; in a file with other errors a required key may be None.
    """
    first: dict[str, tuple[int, float]] = {}
    shares: dict[str, float] = {}
    reported: set[int] = set()
    for index, service in enumerate(services):
        share = service.share or 0.0
        for device in service.devices or ():
            board = board_of(device)
            other, other_s = first.setdefault(board, (index, service.window_s))
            if service.window_s != other_s and index not in reported:
                reported.add(index)
                yield (
                    f"service[{index}].window: {format_duration(service.window_s)}, but"
                    f" service[{other}] has {format_duration(other_s)} and both use {board}: its"
                    " cost is allocated over one window; use the same"
                )
            shares[device] = shares.get(device, 0.0) + share
            if shares[device] > 1 + _ROUNDING >= shares[device] - share:
                yield (
                    f"service[{index}].share: the shares of {device} add up to"
                    f" {percent(shares[device])}; at most 100 % can be allocated"
                )


def board_of(device: str) -> str:
    """Return the board of a device or of a part of it: "gpu0" for "gpu0.mig1"."""
    return device.partition(".")[0]
