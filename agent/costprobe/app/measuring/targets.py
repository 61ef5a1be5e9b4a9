"""The devices that a probe runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.served_settings import ServedProbeConfig
from costprobe.core.device_names import TOGETHER
from costprobe.core.records import Device

AnyProbe = ProbeConfig | ServedProbeConfig


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The devices of one run: one for a model, one or several for a server.

    Attributes:
        devices: At least one.
    """

    devices: tuple[Device, ...]

    @property
    def name(self) -> str:
        """The tag `device` of its rows: "gpu0", or "gpu0+gpu1" for a group."""
        return TOGETHER.join(device.name for device in self.devices)

    @property
    def board(self) -> str:
        """Identities of its boards; empty for a CPU or MIG devices, whose identity may change."""
        has_one = all(device.is_board for device in self.devices)
        return TOGETHER.join(device.uuid for device in self.devices) if has_one else ""


def targets(probe: AnyProbe, devices: Sequence[Device]) -> list[ProbeTarget]:
    """Return a target for each device of a model's probe, or one for all devices of a server.

    A board that is partitioned into MIG devices is not a target, because it cannot run a model.
    """
    divided = {device.parent for device in devices}
    chosen = [
        device
        for device in devices
        if (device.name in probe.devices if probe.devices != "all" else device.name not in divided)
    ]
    if isinstance(probe, ProbeConfig):
        return [ProbeTarget((device,)) for device in chosen]
    return [ProbeTarget(tuple(chosen))] if chosen else []
