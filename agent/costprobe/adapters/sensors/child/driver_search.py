"""The search for each vendor's devices, in a thread of its own: a driver may hang in its initialization."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.sensors.child.sensor import Sensor, SensorContext, SensorTable
from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.adapters.sensors.protocol.messages import Message, SensorSettings, fault_message
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

Emit = Callable[[Message], None]

# First wait after a failure in s; it doubles up to `quarantine_first_s`.
RETRY_FIRST_S: Final = 2.0
RETRY_RESET_S: Final = 600.0


@dataclass(slots=True)
class _Vendor:
    """The state of one vendor: when it is searched again, in CLOCK_MONOTONIC ns, and its fault."""

    backoff: Backoff
    retry_ns: int | None = 0
    began_ns: int | None = None
    is_reported: bool = False
    fault: SensorFault | None = None


class DriverSearch:
    """Calls the factories of the vendors, in their order, until each has returned its devices.

    What is found is passed on as a message of type `found`. A factory that hangs is reported and
    left behind in its thread; the vendors after it are searched by another one.

    Args:
        table: The table of sensors.
        settings: Deadlines and waits.
        clock: CLOCK_MONOTONIC.
        emit: Takes messages for the main thread; must not block.

    Attributes:
        versions: Versions of the drivers, by name.
    """

    def __init__(
        self,
        table: SensorTable,
        settings: SensorSettings,
        clock: Clock,
        emit: Emit,
    ) -> None:
        self.versions: dict[str, str] = {}
        self._table = table
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._found: dict[str, Sensor] = {}
        self._report_ns = int(settings.report_s * NS_PER_S)
        last_s = settings.quarantine_first_s
        self._vendors = {
            name: _Vendor(Backoff(min(RETRY_FIRST_S, last_s), last_s, RETRY_RESET_S))
            for name in table
        }
        self._thread: threading.Thread | None = None

    def step(self) -> None:
        """Search the vendors that are due, and report one that hangs; called by one thread, often."""
        now_ns = self._clock.monotonic_ns()
        for name, vendor in self._vendors.items():
            began_ns = vendor.began_ns
            if began_ns is None or vendor.is_reported or now_ns - began_ns < self._report_ns:
                continue
            vendor.is_reported = True
            waited_s = (now_ns - began_ns) / NS_PER_S
            detail = f"it has not returned for {waited_s:.1f} s; `dmesg` may show why"
            call = f"initialization of the {name} driver"
            self._fail(vendor, SensorFault(call, "DEADLINE", Reaction.TRANSIENT, detail))
            # The thread ends whenever the call returns.
            self._thread = None
        if self._thread is None and self._due(now_ns):
            self._thread = threading.Thread(target=self._search, name="drivers", daemon=True)
            self._thread.start()

    def is_settled(self) -> bool:
        """Whether every vendor was searched, failed, or was reported as hanging."""
        return self._thread is None and not self._due(self._clock.monotonic_ns())

    def hanging_ns(self, now_ns: int) -> int:
        """For how long a factory has not returned, in ns; 0 if none is running."""
        began = [
            vendor.began_ns for vendor in self._vendors.values() if vendor.began_ns is not None
        ]
        return now_ns - min(began, default=now_ns)

    def faults(self) -> dict[str, str]:
        """The reason for each vendor whose devices are unknown."""
        return {
            name: str(vendor.fault)
            for name, vendor in self._vendors.items()
            if vendor.fault is not None
        }

    def _due(self, now_ns: int) -> list[str]:
        return [
            name
            for name, vendor in self._vendors.items()
            if vendor.began_ns is None and vendor.retry_ns is not None and now_ns >= vendor.retry_ns
        ]

    def _search(self) -> None:
        this = threading.current_thread()
        for name in self._due(self._clock.monotonic_ns()):
            self._search_vendor(name)
            if self._thread is not this:
                return  # it hung, and another thread took over
        self._thread = None

    def _search_vendor(self, name: str) -> None:
        vendor, faults = self._vendors[name], list[SensorFault]()

        def report(device: str, fault: SensorFault) -> None:
            self._emit(fault_message(device or None, fault))
            faults.append(fault)

        vendor.began_ns = self._clock.monotonic_ns()
        is_complete = not self.faults()
        context = SensorContext(
            self._settings,
            self._clock,
            report,
            tuple(self._found.values()),
            self.versions,
            is_complete,
        )
        sensors: Sequence[Sensor] = ()
        try:
            sensors = list(self._table[name](context))
        except SensorFault as fault:
            self._fail(vendor, fault)
        except Exception as error:  # noqa: BLE001 - an error of one vendor must not end the search
            detail = f"{type(error).__name__}: {error}"
            self._fail(vendor, SensorFault(name, "FAILED", Reaction.TRANSIENT, detail))
        else:
            vendor.fault = None
        vendor.retry_ns = self._next_ns(vendor, is_done=bool(sensors) and not faults)
        vendor.began_ns, vendor.is_reported = None, False
        if sensors:
            self._found.update((sensor.name, sensor) for sensor in sensors)
            self._emit({"type": "found", "sensors": sensors})

    def _fail(self, vendor: _Vendor, fault: SensorFault) -> None:
        vendor.fault = fault
        self._emit(fault_message(None, fault))
        if fault.reaction is Reaction.RESTART:
            self._emit({"type": "restart", "device": None})

    def _next_ns(self, vendor: _Vendor, *, is_done: bool) -> int | None:
        """When a vendor is searched again: a driver may be loaded late, or again in an upgrade."""
        if is_done:
            return None
        now_ns, wait_s = self._clock.monotonic_ns(), self._settings.quarantine_first_s
        if vendor.fault is not None:
            wait_s = vendor.backoff.next_s(now_ns)
        return now_ns + int(wait_s * NS_PER_S)
