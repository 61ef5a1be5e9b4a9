"""The devices of the host, which of them are quarantined, and the events for faults of sensors.

An event has the problem, its consequence and the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from costprobe.adapters.sensors.messages import Backoff, Message, SensorSettings
from costprobe.core.records import NS_PER_S, Device, Event, Severity, natural


@dataclass(slots=True)
class DeviceState:
    """What is known of a device.

    Attributes:
        hangs: Waits after calls that hung.
        device: The device; None before it was discovered.
        retry_ns: CLOCK_MONOTONIC ns until which it is quarantined; None if it is not.
        age_s: Age of its last sample in s.
        ratio: Counter over power in the last self-test.
        suspect: Whether they disagree.
    """

    hangs: Backoff
    device: Device | None = None
    retry_ns: int | None = None
    age_s: float | None = None
    ratio: float | None = None
    suspect: bool | None = None

    def retry_in_s(self, now_ns: int) -> float | None:
        """For how much longer it is quarantined, in s; None if it is not."""
        return None if self.retry_ns is None else max(0.0, (self.retry_ns - now_ns) / NS_PER_S)


class DeviceRegistry:
    """Tracks the sensor child's devices, across restarts of the child.

    A device whose driver call hung, or that a child quarantined, stays quarantined for the next
    child, which would hang as well. One thread changes it, and any may read it.

    Args:
        settings: How long a device that hung is quarantined.
    """

    def __init__(self, settings: SensorSettings) -> None:
        self._settings = settings
        # Replaced when a device is added or removed.
        self._states: dict[str, DeviceState] = {}

    def devices(self) -> tuple[Device, ...]:
        """Every device seen: accelerators in natural order of their names, then the host's CPU."""
        known = [state.device for state in self._states.values() if state.device is not None]
        return tuple(sorted(known, key=lambda device: (device.is_host, natural(device.name))))

    def is_available(self, name: str) -> bool:
        """Whether a device is known and not quarantined."""
        state = self._states.get(name)
        return state is not None and state.device is not None and state.retry_ns is None

    def get(self, name: str) -> Device | None:
        """A device by its name; None for an unknown one."""
        state = self._states.get(name)
        return None if state is None else state.device

    def add(self, message: Message) -> bool:
        """Add a device that the child discovered; return True if it was quarantined.

        The name that it had before, if it was another one, does not remain.

        Raises:
            TypeError: The message does not describe a device.
        """
        device = Device(**message)
        self._forget(
            lambda name, known: (
                known is not None and known.uuid == device.uuid != "" and name != device.name
            )
        )
        state = self._state(device.name)
        was_quarantined = state.retry_ns is not None
        state.device, state.retry_ns = device, None
        return was_quarantined

    def keep_slices(self, board: str, names: Collection[str]) -> list[str]:
        """Forget the slices of a board except these, which exist; return those that are gone."""
        return self._forget(lambda name, _: name.startswith(f"{board}.") and name not in names)

    def drop_fallback(self) -> list[str]:
        """Forget the CPUs where they are a device only without a GPU; return those that are gone."""
        if self._settings.cpu != "auto":
            return []
        return self._forget(lambda _, known: known is not None and known.is_host)

    def _forget(self, is_gone: Callable[[str, Device | None], bool]) -> list[str]:
        removed = [name for name, state in self._states.items() if is_gone(name, state.device)]
        self._states = {name: state for name, state in self._states.items() if name not in removed}
        return sorted(removed)

    def _state(self, name: str) -> DeviceState:
        if name not in self._states:
            first_s, max_s = self._settings.quarantine_first_s, self._settings.quarantine_max_s
            state = DeviceState(Backoff(first_s, max_s, reset_after_s=max_s))
            self._states = {**self._states, name: state}
        return self._states[name]

    def set_ages(self, ages_s: Message) -> None:
        """Set the age of each device's last sample in s."""
        known_s = {str(name): float(age_s) for name, age_s in ages_s.items()}
        for name, state in self._states.items():
            state.age_s = known_s.get(name)

    def set_selftest(self, name: str, ratio: float, *, suspect: bool) -> bool:
        """Set the result of a device's self-test; return True if `suspect` changed."""
        state = self._state(name)
        was_suspect, state.ratio, state.suspect = bool(state.suspect), ratio, suspect
        return suspect != was_suspect

    def quarantine(self, name: str, retry_after_s: float, now_ns: int) -> None:
        """Record that a device is not accessed for `retry_after_s`."""
        self._state(name).retry_ns = now_ns + int(retry_after_s * NS_PER_S)

    def quarantine_hung(self, name: str, now_ns: int) -> None:
        """Quarantine a device on which the child hung, each time for longer."""
        self.quarantine(name, self._state(name).hangs.next_s(now_ns), now_ns)

    def quarantined_s(self, now_ns: int) -> dict[str, float]:
        """The devices that a new child must not access, and for how much longer, in s."""
        waits_s = {name: state.retry_in_s(now_ns) for name, state in self._states.items()}
        return {name: wait_s for name, wait_s in waits_s.items() if wait_s is not None}

    def status(self, now_ns: int) -> dict[str, dict[str, Any]]:
        """Each device's state for `costprobe status`."""
        return {
            name: {
                "kind": state.device.kind if state.device else None,
                "model": state.device.model if state.device else None,
                "state": "good" if state.retry_ns is None else "quarantined",
                "age_s": state.age_s,
                "counter_to_power_ratio": state.ratio,
                "suspect": state.suspect,
                "retry_in_s": state.retry_in_s(now_ns),
            }
            for name, state in self._states.items()
        }


# Of other reactions it is a warning.
SEVERITIES: Final[dict[str, Severity]] = {"quarantine": "critical", "modelled": "info"}

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
