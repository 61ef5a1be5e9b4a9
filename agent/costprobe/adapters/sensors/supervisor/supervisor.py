"""The daemon's supervisor of the sensor child: starts it, reads it, restarts it when it hangs."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from costprobe.adapters.sensors.protocol.activity import UNKNOWN, Activity
from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.protocol.messages import (
    Message,
    SensorSettings,
    parse_activity,
    parse_energy,
    settings_message,
)
from costprobe.adapters.sensors.protocol.sample import Absent
from costprobe.adapters.sensors.supervisor import events
from costprobe.adapters.sensors.supervisor.message_handler import MessageHandler, ReadingConsumer
from costprobe.adapters.sensors.supervisor.process import ChildProcess
from costprobe.adapters.sensors.supervisor.session import (
    HEARTBEAT_MARGIN_S,
    SensorSession,
    describe_end,
)
from costprobe.core.clock import Clock
from costprobe.core.records import Device, Energy, Event

# -P: do not import from the folder that a command is run in.
CHILD_COMMAND: Final = (sys.executable, "-P", "-m", "costprobe.adapters.sensors.child.main")

REAP_WAIT_S: Final = 2.0
UNKILLABLE_MAX: Final = 16
RESTART_MAX_S: Final = 60.0
RESTART_RESET_S: Final = 300.0
OWN_PIDS_MAX: Final = 256

log = logging.getLogger(__name__)


class SensorSupervisor:
    """Keeps one sensor child running and exchanges messages with it.

    One thread starts the child, reads it and enforces its deadline; any thread may make requests.
    Consumers and `on_event` are called in that one thread, in the order of the child's lines; an
    error of theirs is logged and counted.

    Args:
        command: How to start the child; CHILD_COMMAND in production.
        settings: What to read, and how often.
        on_event: Receives faults and recoveries.
        clock: CLOCK_MONOTONIC for deadlines, UTC for events.
        restart_first_s: Wait before the first restart in s; it doubles up to a minute.
        margin_s: Time beyond its deadline in which the child must write something, in s.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: SensorSettings,
        on_event: Callable[[Event], None],
        clock: Clock,
        restart_first_s: float = 1.0,
        margin_s: float = HEARTBEAT_MARGIN_S,
    ) -> None:
        self._command = tuple(command)
        self._settings = settings
        self._clock = clock
        self._margin_s = margin_s
        self._restart = Backoff(restart_first_s, RESTART_MAX_S, RESTART_RESET_S)
        self._handler = MessageHandler(settings, on_event, clock)
        self._session: SensorSession | None = None
        self._unkillable: list[ChildProcess] = []
        self._starts = 0
        self._malformed_lines = 0
        self._stopping = threading.Event()
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def deliver_to(self, *consumers: ReadingConsumer) -> None:
        """Set the consumers of the readings; readings without a consumer are discarded."""
        self._handler.consumers = consumers

    def start(self) -> None:
        """Start the thread that starts the child."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Let the child write its incomplete intervals, and wait for its end.

        Args:
            timeout_s: Time in s after which it is killed.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.write(self._wake_write_fd, b"x")
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        session = self._session
        if self._thread.is_alive() and session is not None:
            session.process.kill()
            self._thread.join(2 * REAP_WAIT_S)
        if not self._thread.is_alive():
            os.close(self._wake_read_fd)
            os.close(self._wake_write_fd)

    def is_alive(self) -> bool:
        """Return whether the thread that reads the child is running, or was not started yet."""
        return self._thread.ident is None or self._thread.is_alive()

    def devices(self) -> tuple[Device, ...]:
        """Return every device seen since the start, quarantined ones included."""
        return self._handler.registry.devices()

    def wait_for_devices(self, timeout_s: float) -> tuple[Device, ...]:
        """Return the devices after the first handshake of a child, or those known at the timeout in s."""
        self._handler.known.wait(timeout_s)
        return self._handler.registry.devices()

    def has_looked(self) -> bool:
        """Return whether a child has reported its devices, if any."""
        return self._handler.known.is_set()

    def is_available(self, device: str) -> bool:
        """Whether a device is known and not quarantined."""
        return self._handler.registry.is_available(device)

    @property
    def restarts(self) -> int:
        """Number of restarts of the child."""
        return max(0, self._starts - 1)

    def watch(self, device: str, until_ns: int) -> bool:
        """Request that every metric is read at every sample; False if the child cannot be reached.

        Args:
            device: Name of the device.
            until_ns: CLOCK_MONOTONIC ns; one in the past ends it.
        """
        return self._send({"cmd": "watch", "device": device, "until_ns": until_ns})

    def mark(self, device: str) -> bool:
        """Request a reading of the energy counter, at an edge of a window; False if that fails."""
        return self._send({"cmd": "mark", "device": device})

    def energy(
        self,
        device: str,
        start_ns: int,
        end_ns: int,
        steady_start_ns: int,
        steady_end_ns: int,
        timeout_s: float = 5.0,
    ) -> Energy | Absent:
        """Return the energy of a device between two instants, or the reason why it is unknown.

        Args:
            device: Name of the device.
            start_ns: CLOCK_MONOTONIC ns of the window's start.
            end_ns: CLOCK_MONOTONIC ns of its end.
            steady_start_ns: Start of the time in which the load was the window's.
            steady_end_ns: End of that time.
            timeout_s: How long to wait in s; polled devices answer after the next sample.
        """
        request = {
            "cmd": "energy",
            "device": device,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "steady_start_ns": steady_start_ns,
            "steady_end_ns": steady_end_ns,
        }
        answer = self._handler.answers.ask(self._send, request, timeout_s)
        return Absent(answer) if isinstance(answer, str) else parse_energy(answer)

    def activity(
        self,
        device: str,
        start_ns: int,
        end_ns: int,
        own_pids: Collection[int],
        timeout_s: float = 5.0,
    ) -> Activity:
        """Return a device's conditions in a window: other processes, throttling, clock, memory.

        Args:
            device: Name of the device.
            start_ns: CLOCK_MONOTONIC ns of the window's start.
            end_ns: CLOCK_MONOTONIC ns of its end.
            own_pids: Processes that belong to the measurement, at most 256.
            timeout_s: How long to wait in s; the answer follows the first sample after the window.
        """
        request = {
            "cmd": "activity",
            "device": device,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "own_pids": sorted(own_pids)[:OWN_PIDS_MAX],
        }
        answer = self._handler.answers.ask(self._send, request, timeout_s)
        return UNKNOWN if isinstance(answer, str) else parse_activity(answer)

    def status(self) -> dict[str, Any]:
        """Return the state of the sensors for `costprobe status`."""
        session = self._session
        state = "waiting"
        if self._stopping.is_set():
            state = "stopped"
        elif session is not None:
            state = "running" if session.has_handshake.is_set() else "starting"
        return {
            "state": state,
            "pid": session.process.pid if session else None,
            "driver_version": self._handler.handshake.get("driver_version"),
            "nvml_version": self._handler.handshake.get("nvml_version"),
            "driver_faults": self._handler.driver_faults,
            "child_restarts": self.restarts,
            "malformed_lines": self._malformed_lines + (session.malformed_lines if session else 0),
            "callback_errors": self._handler.callback_errors,
            "unkillable": len(self._unkillable),
            "last_fault": self._handler.faults.last.title if self._handler.faults.last else "",
            "devices": self._handler.registry.status(self._clock.monotonic_ns()),
        }

    def _send(self, message: Message) -> bool:
        session = self._session
        if session is None or not session.has_handshake.is_set():
            return False
        return session.process.send(message)

    def _run(self) -> None:
        """Start one child after the other until `stop`."""
        while not self._stopping.is_set():
            try:
                how, stderr_line = self._run_child()
            except Exception:
                log.exception("the sensor process could not be read")
                how, stderr_line = "could not be read, and was killed", ""
            self._handler.answers.fail("the sensor process ended")
            if self._stopping.is_set():
                break
            self._handler.is_down = True
            wait_s = self._restart.next_s(self._clock.monotonic_ns())
            failures = self._restart.failures
            # In a series of failures, the first, second, fourth, eighth ... is reported.
            if how and failures & (failures - 1) == 0:
                now_ns = self._clock.time_ns()
                self._handler.report(events.of_end(how, stderr_line, failures, wait_s, now_ns))
            self._stopping.wait(wait_s)

    def _run_child(self) -> tuple[str, str]:
        """Run one child; return how it ended, empty if it wrote the reason, and its last line."""
        self._unkillable = [child for child in self._unkillable if child.reap(0) is None]
        try:
            process = ChildProcess(self._command)
        except OSError as error:
            return f"cannot be started: {error}", ""
        self._starts += 1
        session = SensorSession(
            process,
            self._settings,
            self._clock,
            self._handler.take,
            self._wake_read_fd,
            self._margin_s,
        )
        quarantined = self._handler.registry.quarantined(self._clock.monotonic_ns())
        process.send(settings_message(self._settings, quarantined))
        self._session = session
        how = ""
        try:
            how = session.run()
        finally:
            self._session = None
            self._malformed_lines += session.malformed_lines + process.overlong_lines
            status = process.end(REAP_WAIT_S if how in ("", "ended") else 0, REAP_WAIT_S)
            process.close()
        if status is None:
            self._unkillable = [*self._unkillable, process][-UNKILLABLE_MAX:]
        if how == "ended" or status is None:
            how = describe_end(status)
        return how, process.stderr_line()
