"""Claimants of devices: configured services, and containers that the kubelet gave a device to.

Claimants that share devices or boards are a group: one window for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costprobe.adapters.serving.device_checks import board_of
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.core.records import Device


@dataclass(frozen=True, slots=True)
class Claimant:
    """A user of devices, which bears a part of their cost.

    Attributes:
        name: Value of the tag `service`.
        devices: The devices that it uses.
        shares: Its share of a device, from 0 to 1, where it is known.
        processes: Its processes by their names in /proc/PID/comm.
        window_s: Length of its windows in s.
        labels: Further tags of its rows.
        service: How its requests are counted; None for a container that is not scraped.
    """

    name: str
    devices: tuple[str, ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    processes: tuple[str, ...] = ()
    window_s: float = 300.0
    labels: Mapping[str, str] = field(default_factory=dict)
    service: ServiceConfig | None = None

    @classmethod
    def of(cls, service: ServiceConfig) -> Claimant:
        """Return the claimant of a configured service."""
        shares = {} if service.share is None else dict.fromkeys(service.devices, service.share)
        return cls(
            service.name,
            service.devices,
            shares,
            service.processes,
            service.window_s,
            service.labels,
            service,
        )


@dataclass(frozen=True)
class Grouping:
    """Claimants that share devices or boards, and these devices.

    Attributes:
        claimants: The claimants; none for the devices without one.
        devices: The devices, each board with all of its MIG devices.
    """

    claimants: tuple[Claimant, ...]
    devices: tuple[Device, ...]

    def __hash__(self) -> int:
        return hash((tuple(claimant.name for claimant in self.claimants), self.devices))


def grouped(claimants: Sequence[Claimant], devices: Sequence[Device]) -> list[Grouping]:
    """Group claimants that share devices or boards; the last group is the unclaimed devices.

    Args:
        claimants: The claimants.
        devices: The host's devices.
    """
    groups: list[tuple[list[Claimant], set[str]]] = []
    for claimant in claimants:
        boards = {board_of(name) for name in claimant.devices}
        joined = [group for group in groups if group[1] & boards]
        groups = [group for group in groups if not group[1] & boards]
        members = [member for group in joined for member in group[0]]
        groups.append(([*members, claimant], boards.union(*(group[1] for group in joined))))
    groupings = [
        Grouping(
            tuple(together),
            tuple(device for device in devices if board_of(device.name) in boards),
        )
        for together, boards in groups
    ]
    claimed = {device.name for grouping in groupings for device in grouping.devices}
    unclaimed = tuple(device for device in devices if device.name not in claimed)
    return [*groupings, Grouping((), unclaimed)] if unclaimed else groupings
