"""The devices of the host, and which of them are quarantined."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.protocol.messages import (
    Message,
    Quarantined,
    SensorSettings,
    parse_device,
)
from costprobe.core.device_names import natural
from costprobe.core.records import NS_PER_S, Device


class DeviceRegistry:
    """Tracks the sensor child's devices, across restarts of the child.

    A device whose driver call hung, or that a child quarantined, stays quarantined for the next
    child, which would hang as well.

    Args:
        settings: How long a device that hung is quarantined.
    """

    def __init__(self, settings: SensorSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._devices: dict[str, Device] = {}
        self._retry_ns: dict[str, int] = {}
        self._hangs: dict[str, Backoff] = {}
        self._ages_s: dict[str, float] = {}
        self._ratios: dict[str, tuple[float, bool]] = {}
        # Names of the slices of each board.
        self._slices: dict[str, set[str]] = {}

    def devices(self) -> tuple[Device, ...]:
        """Every device seen: accelerators in natural order of their names, then the host's CPU."""
        with self._lock:
            known = self._devices.values()
            return tuple(sorted(known, key=lambda device: (device.is_host, natural(device.name))))

    def is_available(self, name: str) -> bool:
        """Whether a device is known and not quarantined."""
        with self._lock:
            return name in self._devices and name not in self._retry_ns

    def get(self, name: str) -> Device | None:
        """A device by its name; None for an unknown one."""
        with self._lock:
            return self._devices.get(name)

    def add(self, message: Message) -> bool:
        """Add a device that the child discovered; return True if it was quarantined.

        Raises:
            TypeError: The message does not describe a device.
        """
        device = parse_device(message)
        with self._lock:
            self._devices[device.name] = device
            return self._retry_ns.pop(device.name, None) is not None

    def keep_slices(self, board: str, names: Collection[str]) -> list[str]:
        """Forget the slices of a board except these, which exist; return those that are gone."""
        with self._lock:
            previous = {name for name, device in self._devices.items() if device.parent == board}
            removed = sorted((previous | self._slices.get(board, set())) - set(names))
            self._slices[board] = set(names)
            self._forget(removed)
            return removed

    def drop_fallback(self) -> list[str]:
        """Forget the CPUs where they are a device only without a GPU; return those that are gone."""
        if self._settings.cpu != "auto":
            return []
        with self._lock:
            removed = [name for name, device in self._devices.items() if device.is_host]
            self._forget(removed)
            return removed

    def _forget(self, names: Collection[str]) -> None:
        states: tuple[dict[str, Any], ...] = (
            self._devices,
            self._retry_ns,
            self._hangs,
            self._ages_s,
            self._ratios,
        )
        for name in names:
            for state in states:
                state.pop(name, None)

    def set_ages(self, ages_s: Message) -> None:
        """Set the age of each device's last sample in s."""
        with self._lock:
            self._ages_s = {str(name): float(age_s) for name, age_s in ages_s.items()}

    def set_selftest(self, name: str, ratio: float, *, suspect: bool) -> bool:
        """Set the result of a device's self-test; return True if `suspect` changed."""
        with self._lock:
            _, was_suspect = self._ratios.get(name, (1.0, False))
            self._ratios[name] = (ratio, suspect)
            return suspect != was_suspect

    def quarantine(self, name: str, retry_after_s: float, now_ns: int) -> None:
        """Record that a device is not accessed for `retry_after_s`."""
        with self._lock:
            self._retry_ns[name] = now_ns + int(retry_after_s * NS_PER_S)

    def quarantine_hung(self, name: str, now_ns: int) -> float:
        """Quarantine a device on which the child hung; return for how long, in s."""
        first_s, max_s = self._settings.quarantine_first_s, self._settings.quarantine_max_s
        backoff = self._hangs.setdefault(name, Backoff(first_s, max_s, reset_after_s=max_s))
        wait_s = backoff.next_s(now_ns)
        self.quarantine(name, wait_s, now_ns)
        return wait_s

    def quarantined(self, now_ns: int) -> tuple[Quarantined, ...]:
        """The devices that a new child must not access, and for how much longer."""
        with self._lock:
            return tuple(
                Quarantined(name, max(0.0, (retry_ns - now_ns) / NS_PER_S))
                for name, retry_ns in self._retry_ns.items()
            )

    def status(self, now_ns: int) -> dict[str, dict[str, Any]]:
        """Each device's state for `costprobe status`."""
        with self._lock:
            names = [*self._devices, *(self._retry_ns.keys() - self._devices.keys())]
            return {name: self._device_status(name, now_ns) for name in names}

    def _device_status(self, name: str, now_ns: int) -> dict[str, Any]:
        device, retry_ns = self._devices.get(name), self._retry_ns.get(name)
        ratio, suspect = self._ratios.get(name, (None, None))
        return {
            "kind": device.kind if device else None,
            "model": device.model if device else None,
            "state": "good" if retry_ns is None else "quarantined",
            "age_s": self._ages_s.get(name),
            "counter_to_power_ratio": ratio,
            "suspect": suspect,
            "retry_in_s": None if retry_ns is None else max(0.0, (retry_ns - now_ns) / NS_PER_S),
        }
