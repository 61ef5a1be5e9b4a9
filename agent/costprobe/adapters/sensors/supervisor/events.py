"""Events for faults of the sensors: problem, consequence and fix."""

from __future__ import annotations

from typing import Final

from costprobe.adapters.sensors.protocol.messages import Message
from costprobe.core.records import NS_PER_S, REMOVED, Event, Severity

REPEAT_AFTER_S: Final = 600.0
REPORTED_MAX: Final = 256

SEVERITIES: Final[dict[str, Severity]] = {
    "absent": "warning",
    "transient": "warning",
    "reinit": "warning",
    "restart": "warning",
    "quarantine": "critical",
    "modelled": "info",
}

CONSEQUENCES: Final[dict[str, str]] = {
    "absent": "This value is not read until the sensor process is restarted.",
    "transient": "This value is missing until the driver returns it again.",
    "reinit": "The driver's library is initialized again.",
    "restart": "The sensor process is restarted; other devices lose a few seconds.",
    "quarantine": "The device is quarantined; the other devices are not affected.",
    "modelled": "Energy of the processors has the method `modelled` and an uncertainty of 50 %.",
}


def of_fault(message: Message, time_ns: int) -> Event:
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


def of_end(how: str, stderr_line: str, failures: int, wait_s: float, time_ns: int) -> Event:
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


def of_selftest(device: str, ratio: float, time_ns: int, *, suspect: bool) -> Event:
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


def of_recovery(what: str, device: str, time_ns: int) -> Event:
    """The event for a device or a sensor process that works again."""
    return Event(kind="fault", severity="info", title=what, time_ns=time_ns, device=device)


def of_removal(device: str, time_ns: int) -> Event:
    """The event for a slice of a board that does not exist any more."""
    title = f"{device}: this MIG device was destroyed, and is not measured any more"
    return Event("fault", "info", title, time_ns, device=device, cause=REMOVED)


def of_replacement(device: str, time_ns: int) -> Event:
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
        event = of_fault(message, time_ns)
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
