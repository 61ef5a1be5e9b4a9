"""What an operator is told about faults of the sensors: what happened, and what to do."""

from __future__ import annotations

from typing import Final

from agent.model import NS_PER_S, Event, Severity
from agent.telemetry.wire import Message

TELL_AGAIN_S: Final = 600.0
TOLD_MAX: Final = 256

SEVERITIES: Final[dict[str, Severity]] = {
    "absent": "warning",
    "transient": "warning",
    "reinit": "warning",
    "restart": "warning",
    "quarantine": "critical",
    "modelled": "info",
}

CONSEQUENCES: Final[dict[str, str]] = {
    "absent": "This value is not read any more until the sensor process starts again.",
    "transient": "This value is left out until the driver gives it again.",
    "reinit": "The driver's library is initialized again.",
    "restart": "The sensor process is started again; other devices lose a few seconds.",
    "quarantine": "The device is left alone; the other devices go on.",
    "modelled": "Energy of the processors carries the method `modelled` and an error of 50 %.",
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
        retry = f" The next try is in {float(message['retry_after_s']):.0f} s."
    detail = str(message["detail"])
    return Event(
        kind="fault",
        severity="warning" if denied else SEVERITIES.get(reaction, "warning"),
        title=title,
        time_ns=time_ns,
        detail=f"{detail}. {CONSEQUENCES.get(reaction, '')}{retry}".lstrip(". "),
        device=device,
    )


def of_end(how: str, last_words: str, failures: int, wait_s: float, time_ns: int) -> Event:
    """The event for a child that ended, or was killed, without saying why.

    Args:
        how: What happened to it, as a clause.
        last_words: The end of what it said on stderr.
        failures: How often in a row.
        wait_s: When it is started again, in s.
        time_ns: UTC in ns since 1970.
    """
    said = f" It said: {last_words}." if last_words else ""
    times = f" This is failure {failures} in a row." if failures > 1 else ""
    return Event(
        kind="fault",
        severity="warning",
        title=f"sensors: the sensor process {how}",
        time_ns=time_ns,
        detail=f"It is started again in {wait_s:.0f} s.{said}{times}"
        " If this goes on, run `infercost doctor`.",
    )


def of_selftest(device: str, ratio: float, time_ns: int, *, suspect: bool) -> Event:
    """The event for a device whose energy sensors contradict each other, or no longer do.

    Args:
        device: Name of the device.
        ratio: The energy counter's energy over the integrated power's.
        time_ns: UTC in ns since 1970.
        suspect: Whether they contradict each other.
    """
    found = f"the energy counter counts {ratio * 100:.0f} % of the integrated power"
    if not suspect:
        return Event("fault", "info", f"{device}: the energy sensors agree again", time_ns, found)
    return Event(
        kind="fault",
        severity="warning",
        title=f"{device}: its energy is suspect",
        time_ns=time_ns,
        detail=f"{found}: one of the two is wrong, so every energy of this device is marked and"
        " its uncertainty grows by as much. Compare with a meter at the plug; a driver update may"
        " mend it.",
        device=device,
        cause="energy sensors disagree",
    )


def of_recovery(what: str, device: str, time_ns: int) -> Event:
    """The event for a device or a sensor process that is back."""
    return Event(kind="fault", severity="info", title=what, time_ns=time_ns, device=device)


class FaultLog:
    """Keeps a fault that goes on, or comes with every start of the child, from filling the log.

    Attributes:
        last: The last fault that can be mended, told or not; None where there was none.
    """

    def __init__(self) -> None:
        self.last: Event | None = None
        self._told_ns: dict[tuple[str, ...], int] = {}

    def take(self, message: Message, monotonic_ns: int, time_ns: int) -> Event | None:
        """The event for a `fault` line; None if the same was told in the last ten minutes.

        Args:
            message: The line.
            monotonic_ns: CLOCK_MONOTONIC ns of now.
            time_ns: UTC in ns since 1970.

        Raises:
            KeyError: The line lacks a key.
        """
        event = of_fault(message, time_ns)
        # What is merely less than ideal on this host, as energy that is modelled for want of
        # RAPL, is no fault to be mended and must not hide one.
        if event.severity != "info":
            self.last = event
        key = tuple(str(message[part]) for part in ("device", "call", "code", "reaction"))
        told_ns = self._told_ns.get(key)
        if told_ns is not None and monotonic_ns - told_ns < TELL_AGAIN_S * NS_PER_S:
            return None
        if len(self._told_ns) >= TOLD_MAX:
            self._told_ns.clear()
        self._told_ns[key] = monotonic_ns
        return event
