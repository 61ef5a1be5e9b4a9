"""Finds driver calls that hang, and does not take a stopped process for a hanging call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from costprobe.adapters.sensors.child.worker import DeviceWorker
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# A check that is later than expected by this, in s, follows a stop of the process (SIGSTOP, a frozen
# control group): the calls were stopped, too.
LATE_S: Final = 2.0


class HangWatch:
    """The watchdog of the driver calls.

    Args:
        clock: CLOCK_MONOTONIC.
        every_s: Longest time between two checks in s, unless the process is stopped.
    """

    def __init__(self, clock: Clock, every_s: float) -> None:
        self._clock = clock
        self._late_ns = int((every_s + LATE_S) * NS_PER_S)
        self._checked_ns = clock.monotonic_ns()
        # The last stop: its end in CLOCK_MONOTONIC ns, and its length in ns.
        self._stop_end_ns = 0
        self._stop_ns = 0

    def hung(self, workers: Iterable[DeviceWorker]) -> tuple[str, SensorFault] | None:
        """Return the device whose call hangs longest, others may only wait for its lock, with the fault."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._checked_ns > self._late_ns:
            self._stop_end_ns, self._stop_ns = now_ns, now_ns - self._checked_ns
        self._checked_ns = now_ns
        visits = [(worker.visit, worker.sensor) for worker in workers]
        hung = [
            (visit.began_ns, sensor.name, sensor.call)
            for visit, sensor in visits
            if visit is not None and now_ns > visit.deadline_ns + self.stopped_ns(visit.began_ns)
        ]
        if not hung:
            return None
        began_ns, device, call = min(hung)
        detail = (
            f"the call has not returned for {(now_ns - began_ns) / NS_PER_S:.1f} s;"
            " `dmesg` may show why (Xid messages)"
        )
        return device, SensorFault(call, "DEADLINE", Reaction.RESTART, detail)

    def stopped_ns(self, since_ns: int) -> int:
        """Return for how long the process was stopped since an instant, in ns."""
        return self._stop_ns if since_ns < self._stop_end_ns else 0
