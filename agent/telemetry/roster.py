"""The devices that the daemon knows of, and which of them are set aside."""

from __future__ import annotations

import threading
from typing import Any

from agent.model import NS_PER_S, Device
from agent.telemetry.backoff import Backoff
from agent.telemetry.wire import Message, Quarantined, SensorSettings, gpu_index, parse_device


class Roster:
    """Follows what the sensor child says of its devices, over all its lives.

    A GPU whose driver call hung, or that the child set aside, stays so for the next child: one
    that tried it at once would hang as well.

    Args:
        settings: How long a device that hung is left alone.
    """

    def __init__(self, settings: SensorSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._devices: dict[str, Device] = {}
        self._retry_ns: dict[str, int] = {}
        self._hangs: dict[str, Backoff] = {}
        self._ages_s: dict[str, float] = {}
        self._ratios: dict[str, tuple[float, bool]] = {}

    def devices(self) -> tuple[Device, ...]:
        """Every device that was seen: each GPU with its MIG devices by index, then the CPU."""
        with self._lock:
            known = self._devices.values()
            return tuple(sorted(known, key=_order))

    def is_available(self, name: str) -> bool:
        """Whether a device is known and not set aside."""
        with self._lock:
            return name in self._devices and name not in self._retry_ns

    def appeared(self, message: Message) -> bool:
        """Takes a device from the wire; True if it had been set aside.

        Raises:
            TypeError: It is not a device.
        """
        device = parse_device(message)
        with self._lock:
            self._devices[device.name] = device
            return self._retry_ns.pop(device.name, None) is not None

    def beat(self, ages_s: Message) -> None:
        """Takes the age of each device's last sample in s."""
        with self._lock:
            self._ages_s = {str(name): float(age_s) for name, age_s in ages_s.items()}

    def tested(self, name: str, ratio: float, *, suspect: bool) -> bool:
        """Takes the verdict of a device's self-test; True if it is not the one known before."""
        with self._lock:
            _, was_suspect = self._ratios.get(name, (1.0, False))
            self._ratios[name] = (ratio, suspect)
            return suspect != was_suspect

    def set_aside(self, name: str, retry_after_s: float, now_ns: int) -> None:
        """Takes a device that the child left alone, and for how long, in s."""
        with self._lock:
            self._retry_ns[name] = now_ns + int(retry_after_s * NS_PER_S)

    def hung(self, name: str, now_ns: int) -> float | None:
        """Sets a GPU aside on which the child hung; gives for how long, in s."""
        if gpu_index(name) is None:
            return None
        first_s, max_s = self._settings.quarantine_first_s, self._settings.quarantine_max_s
        backoff = self._hangs.setdefault(name, Backoff(first_s, max_s, reset_after_s=max_s))
        wait_s = backoff.next_s(now_ns)
        self.set_aside(name, wait_s, now_ns)
        return wait_s

    def quarantined(self, now_ns: int) -> tuple[Quarantined, ...]:
        """What a new child must leave alone, and for how much longer."""
        with self._lock:
            return tuple(
                Quarantined(index, max(0.0, (retry_ns - now_ns) / NS_PER_S))
                for name, retry_ns in self._retry_ns.items()
                if (index := gpu_index(name)) is not None
            )

    def status(self, now_ns: int) -> dict[str, dict[str, Any]]:
        """Each device's state, for people."""
        with self._lock:
            names = [*self._devices, *(self._retry_ns.keys() - self._devices.keys())]
            return {name: self._device_status(name, now_ns) for name in names}

    def _device_status(self, name: str, now_ns: int) -> dict[str, Any]:
        device, retry_ns = self._devices.get(name), self._retry_ns.get(name)
        ratio, suspect = self._ratios.get(name, (None, None))
        return {
            "kind": device.kind if device else "gpu",
            "model": device.model if device else None,
            "state": "good" if retry_ns is None else "set aside",
            "age_s": self._ages_s.get(name),
            "counter_to_power": ratio,
            "suspect": suspect,
            "retry_in_s": None if retry_ns is None else max(0.0, (retry_ns - now_ns) / NS_PER_S),
        }


def _order(device: Device) -> tuple[bool, int, str]:
    return (device.index is None, device.index or 0, device.name)
