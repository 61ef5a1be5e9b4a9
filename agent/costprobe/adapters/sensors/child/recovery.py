"""What follows a fault of a device: another try, a wait, or the end of its worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.adapters.sensors.protocol.messages import Message, SensorSettings, fault_message
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

REINITS_MAX: Final = 3
# A slice that cannot be read may be about to be destroyed: its board lists its slices again, and the
# slice is tried this often, after this time, before it counts as failed.
SLICE_RETRIES_MAX: Final = 3
SLICE_RETRY_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True)
class NextStep:
    """What follows a fault.

    Attributes:
        retry_ns: When the device is discovered again, in CLOCK_MONOTONIC ns; None for never.
        messages: For the main thread.
        is_gone: The device does not exist any more.
    """

    retry_ns: int | None
    messages: tuple[Message, ...] = ()
    is_gone: bool = False


class Recovery:
    """Decides on the next step after each fault of a device; a fault that recurs is waited for longer.

    Args:
        sensor: Reads the device.
        settings: The shortest and the longest quarantine.
        clock: CLOCK_MONOTONIC.
    """

    def __init__(self, sensor: Sensor, settings: SensorSettings, clock: Clock) -> None:
        self._sensor = sensor
        self._clock = clock
        first_s, max_s = settings.quarantine_first_s, settings.quarantine_max_s
        self._backoff = Backoff(first_s, max_s, reset_after_s=max_s)
        self._reinits = 0
        self._slice_retries = 0

    def worked(self) -> None:
        """Note that the device was sampled."""
        self._reinits = self._slice_retries = 0

    def after(self, fault: SensorFault) -> NextStep:
        """Return what follows a fault that ended sampling."""
        name, now_ns = self._sensor.name, self._clock.monotonic_ns()
        if fault.reaction is Reaction.REINIT and self._reinits < REINITS_MAX:
            self._reinits += 1
            return NextStep(now_ns)
        if fault.reaction is Reaction.GONE:
            return NextStep(None, ({"type": "gone", "sensor": self._sensor},), is_gone=True)
        if fault.reaction in (Reaction.REINIT, Reaction.RESTART):
            restart = SensorFault(fault.call, fault.code, Reaction.RESTART, fault.detail)
            messages = (fault_message(name, restart), {"type": "restart", "device": name})
            return NextStep(None, messages)
        if self._sensor.parent and self._slice_retries < SLICE_RETRIES_MAX:
            self._slice_retries += 1
            relist = {"type": "relist", "device": self._sensor.parent}
            return NextStep(now_ns + SLICE_RETRY_NS, (relist,))
        wait_s = self._backoff.next_s(now_ns)
        quarantined = SensorFault(fault.call, fault.code, Reaction.QUARANTINE, fault.detail)
        message = fault_message(name, quarantined, retry_after_s=wait_s)
        return NextStep(now_ns + int(wait_s * NS_PER_S), (message,))
