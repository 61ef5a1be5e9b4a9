"""The devices of the host, which of them are quarantined, and the events for faults of sensors.

An event has the problem, its consequence and the fix.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, Final

from costprobe.adapters.sensors.messages import (
    Backoff,
    Message,
    SensorSettings,
)
from costprobe.core.records import (
    NS_PER_S,
    REMOVED,
    Device,
    Event,
    Severity,
    natural,
)


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

        The name that it had before, if it was another one, does not remain.

        Raises:
            TypeError: The message does not describe a device.
        """
        device = Device(**message)
        with self._lock:
            same = (known for known in self._devices.values() if device.uuid == known.uuid != "")
            self._forget([known.name for known in same if known.name != device.name])
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

    def quarantined_s(self, now_ns: int) -> dict[str, float]:
        """The devices that a new child must not access, and for how much longer, in s."""
        with self._lock:
            return {
                name: max(0.0, (retry_ns - now_ns) / NS_PER_S)
                for name, retry_ns in self._retry_ns.items()
            }

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


REPEAT_AFTER_S: Final = 600.0
REPORTED_MAX: Final = 256

SEVERITIES: Final[dict[str, Severity]] = {
    "absent": "warning",
    "transient": "warning",
    "restart": "warning",
    "quarantine": "critical",
    "modelled": "info",
}

CONSEQUENCES: Final[dict[str, str]] = {
    "absent": "This value is not read until the sensor process is restarted.",
    "transient": "This value is missing until it can be read again.",
    "restart": "The sensor process is restarted; other devices lose a few seconds.",
    "quarantine": "The device is quarantined; the other devices are not affected.",
    "modelled": "Energy of the processors has the method `modelled` and an uncertainty of 50 %.",
}


def fault_event(message: Message, time_ns: int) -> Event:
    """The event for a `fault` line of the child.

    Raises:
        KeyError: The line lacks a key.
    """
    device, reaction = str(message["device"] or ""), str(message["reaction"])
    denied = reaction == "modelled" and message["code"] != "ENOENT"
    title = f"{device or 'sensors'}: {message['code']} from {message['call']}"
    if reaction == "modelled":
        title = f"{device}: energy is modelled ({message['code']} from {message['call']})"
    retry = ""
    if "retry_after_s" in message:
        retry = f" Next try in {float(message['retry_after_s']):.0f} s."
    detail = str(message["detail"])
    return Event(
        kind="fault",
        severity="warning" if denied else SEVERITIES.get(reaction, "warning"),
        title=title,
        time_ns=time_ns,
        detail=f"{detail}. {CONSEQUENCES.get(reaction, '')}{retry}".lstrip(". "),
        device=device,
    )


def child_end_event(
    how: str, stderr_line: str, failures: int, wait_s: float, time_ns: int
) -> Event:
    """The event for a child that ended, or was killed, without a reason of its own.

    Args:
        how: How it ended, as a clause.
        stderr_line: The last line of its stderr.
        failures: Failures in a row.
        wait_s: Time until it is restarted in s.
        time_ns: UTC in ns since 1970.
    """
    last_line = f" Last line of its stderr: {stderr_line}." if stderr_line else ""
    times = f" This is failure {failures} in a row." if failures > 1 else ""
    return Event(
        kind="fault",
        severity="warning",
        title=f"sensors: the sensor process {how}",
        time_ns=time_ns,
        detail=f"It is restarted in {wait_s:.0f} s.{last_line}{times}"
        " If this persists, run `costprobe doctor`.",
    )


def selftest_event(device: str, ratio: float, time_ns: int, *, suspect: bool) -> Event:
    """The event for a device whose energy sensors disagree, or agree again.

    Args:
        device: Name of the device.
        ratio: The energy counter's energy over the integrated power's.
        time_ns: UTC in ns since 1970.
        suspect: Whether they disagree.
    """
    detail = f"the energy counter counts {ratio * 100:.0f} % of the integrated power"
    if not suspect:
        return Event("fault", "info", f"{device}: the energy sensors agree again", time_ns, detail)
    return Event(
        kind="fault",
        severity="warning",
        title=f"{device}: its energy is suspect",
        time_ns=time_ns,
        detail=f"{detail}: one of the two is wrong, so every energy of this device is marked and"
        " its uncertainty grows by as much. Compare with a meter at the plug; a driver update may"
        " fix it.",
        device=device,
        cause="energy sensors disagree",
    )


def recovery_event(what: str, device: str, time_ns: int) -> Event:
    """The event for a device or a sensor process that works again."""
    return Event(kind="fault", severity="info", title=what, time_ns=time_ns, device=device)


def removal_event(device: str, time_ns: int) -> Event:
    """The event for a slice of a board that does not exist any more."""
    title = f"{device}: this MIG device was destroyed, and is not measured any more"
    return Event("fault", "info", title, time_ns, device=device, cause=REMOVED)


def replacement_event(device: str, time_ns: int) -> Event:
    """The event for the CPUs, which are a device only until a GPU is found."""
    title = f"{device}: a GPU was found, and the CPUs are not measured any more"
    detail = "cpu = true in [telemetry] measures both"
    return Event("fault", "info", title, time_ns, device=device, detail=detail, cause=REMOVED)


class FaultLog:
    """Suppresses repetitions of a fault that persists, or recurs at every start of the child.

    Attributes:
        last: The last fault that an operator can fix; None if there was none.
    """

    def __init__(self) -> None:
        self.last: Event | None = None
        self._reported_ns: dict[tuple[str, ...], int] = {}

    def event(self, message: Message, monotonic_ns: int, time_ns: int) -> Event | None:
        """The event for a `fault` line; None if the same was reported in the last ten minutes.

        Args:
            message: The line.
            monotonic_ns: CLOCK_MONOTONIC ns of now.
            time_ns: UTC in ns since 1970.

        Raises:
            KeyError: The line lacks a key.
        """
        event = fault_event(message, time_ns)
        # Energy that is modelled because the host has no RAPL cannot be fixed, and must not hide a
        # fault that can.
        if event.severity != "info":
            self.last = event
        key = tuple(str(message[part]) for part in ("device", "call", "code", "reaction"))
        reported_ns = self._reported_ns.get(key)
        if reported_ns is not None and monotonic_ns - reported_ns < REPEAT_AFTER_S * NS_PER_S:
            return None
        if len(self._reported_ns) >= REPORTED_MAX:
            self._reported_ns.clear()
        self._reported_ns[key] = monotonic_ns
        return event
