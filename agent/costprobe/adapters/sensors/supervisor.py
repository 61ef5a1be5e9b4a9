"""The daemon's supervisor of the sensor child: starts it, reads it, restarts it when it hangs.

The child is a process group with three pipes; the tail of its stderr is kept.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from costprobe.adapters.host.processes import child_environment
from costprobe.adapters.sensors.devices import DeviceRegistry, fault_event
from costprobe.adapters.sensors.messages import (
    COMMAND_BYTES_MAX,
    LINE_BYTES_MAX,
    Backoff,
    Message,
    SensorSettings,
    decode,
    encode,
    parse_reading,
)
from costprobe.core.clock import Clock, stopped_s
from costprobe.core.records import NS_PER_S, REMOVED, Device, Event, Reading, Severity

log = logging.getLogger(__name__)

STDERR_TAIL_BYTES: Final = 2000
READ_BYTES: Final = 65536


class ChildProcess:
    """A started child. The kernel kills it when the thread that started it ends.

    Args:
        command: Program and arguments.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # Its own session, so that Ctrl-C in the daemon's terminal reaches only the daemon.
        self._process = subprocess.Popen(  # noqa: S603 - the daemon's own configuration
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=child_environment(os.environ),
            start_new_session=True,
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise OSError("the child has no pipes")
        self._pipes = (stdin, stdout, stderr)
        os.set_blocking(stdin.fileno(), False)
        self._write_lock = threading.Lock()
        self._incomplete = b""
        self._stderr_tail = b""
        self.pid = self._process.pid
        self.stdout_fd = stdout.fileno()
        self.stderr_fd = stderr.fileno()

    def send(self, message: Message) -> bool:
        """Write a command without blocking; False if the child is gone or does not read."""
        line = encode(message)
        if len(line) > COMMAND_BYTES_MAX:
            return False
        with self._write_lock:
            try:
                return os.write(self._pipes[0].fileno(), line) == len(line)
            except (OSError, ValueError):  # ValueError: the pipe was closed
                return False

    def read_lines(self) -> list[bytes] | None:
        """Return the available lines of its output; None once it is closed.

        Raises:
            ValueError: It wrote a line that is too long.
        """
        data = os.read(self.stdout_fd, READ_BYTES)
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        if len(self._incomplete) > LINE_BYTES_MAX:
            raise ValueError("a line of the sensor process is too long")
        return lines if data else None

    def read_stderr(self) -> bool:
        """Read the tail of its stderr; return False once it is closed."""
        data = os.read(self.stderr_fd, READ_BYTES)
        self._stderr_tail = (self._stderr_tail + data)[-STDERR_TAIL_BYTES:]
        return bool(data)

    def kill(self) -> None:
        """Kill the child and its descendants."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def reap(self, timeout_s: float) -> int | None:
        """Wait for its end and return its exit status; None if it does not end.

        SIGKILL has no effect on a process that is blocked inside the driver until the call
        returns.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Close the daemon's ends of the pipes."""
        with self._write_lock:
            for pipe in self._pipes:
                pipe.close()

    def stderr_line(self) -> str:
        """Return the last line of its stderr; empty if there is none."""
        lines = self._stderr_tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


# A child without a message for its deadline plus this margin, in s, is killed; it sends a heartbeat
# every 10 s.
HEARTBEAT_MARGIN_S: Final = 12.0
# A wait is at most this long, in s, so that a stop of this process is noticed.
WAIT_MAX_S: Final = 5.0


def describe_end(status: int | None) -> str:
    """Describe an exit status as a clause; None for a child that could not be killed."""
    if status is None:
        return "hangs in the driver and cannot be killed"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


# -P: do not import from the folder that a command is run in.
CHILD_COMMAND: Final = (sys.executable, "-P", "-m", "costprobe.adapters.sensors.child.main")

REAP_WAIT_S: Final = 2.0
UNKILLABLE_MAX: Final = 16
RESTART_MAX_S: Final = 60.0
RESTART_RESET_S: Final = 300.0
# Children that hang within this time hang on the same devices.
HUNG_AGAIN_NS: Final = 600 * NS_PER_S
# The same fault is reported again after this time.
REPEAT_AFTER_NS: Final = 600 * NS_PER_S

# Receives readings that arrived together, each with its device.
ReadingConsumer = Callable[[Sequence[tuple[Reading, Device]]], None]


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

    Attributes:
        registry: The devices.
        last_fault: Title of the last fault that an operator can fix; empty if there was none.
        since_ns: CLOCK_MONOTONIC ns since which there has been a child, or attempts to start one.
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
        self.registry = DeviceRegistry(settings)
        self.last_fault = ""
        self.since_ns = clock.monotonic_ns()
        self._on_event = on_event
        self._consumers: tuple[ReadingConsumer, ...] = ()
        # Versions of the drivers, and the reason for each vendor whose driver cannot be used.
        self._versions: dict[str, str] = {}
        self._driver_faults: dict[str, str] = {}
        self._has_looked = threading.Event()
        # A child ended, and none has replaced it yet.
        self._is_down = False
        self._callback_errors = 0
        # When a child hung last, and when each fault was reported, in CLOCK_MONOTONIC ns.
        self._hung_ns: int | None = None
        self._reported_ns: dict[tuple[str, ...], int] = {}
        self._handlers: dict[str, Callable[[Message], None]] = {
            "heartbeat": lambda message: self.registry.set_ages(message["ages_s"]),
            "samples": lambda _: None,
            "selftest": self._take_selftest,
            "fault": self._take_fault,
            "drivers": self._take_drivers,
            "device": lambda message: self._add_device(message["device"]),
            "slices": self._keep_slices,
            "handshake": self._take_handshake,
            "exit": self._take_exit,
        }
        self._process: ChildProcess | None = None
        # The child wrote its handshake.
        self._is_known = False
        self._unkillable: list[ChildProcess] = []
        self._starts = 0
        self._malformed_lines = 0
        self._deadline_ns = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def deliver_to(self, *consumers: ReadingConsumer) -> None:
        """Set the consumers of the readings; readings without a consumer are discarded."""
        self._consumers = consumers

    def stream_to(self, consumer: Callable[[Message], None]) -> None:
        """Set what takes the messages with the samples of watched devices."""
        self._handlers["samples"] = consumer

    @property
    def every_s(self) -> float:
        """Time between two samples in s."""
        return self._settings.every_s

    def start(self) -> None:
        """Start the thread that starts the child."""
        self.since_ns = self._clock.monotonic_ns()
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Let the child write its incomplete intervals, and wait for its end.

        Args:
            timeout_s: Time in s after which it is killed.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._send({"cmd": "stop"})
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        process = self._process
        if self._thread.is_alive() and process is not None:
            process.kill()
            self._thread.join(2 * REAP_WAIT_S)

    def is_alive(self) -> bool:
        """Return whether the thread that reads the child is running, or was not started yet."""
        return self._thread.ident is None or self._thread.is_alive()

    def devices(self) -> tuple[Device, ...]:
        """Return every device seen since the start, quarantined ones included."""
        return self.registry.devices()

    def wait_for_devices(self, timeout_s: float) -> tuple[Device, ...]:
        """Return the devices after the first handshake of a child, or those known at the timeout in s."""
        self._has_looked.wait(timeout_s)
        return self.registry.devices()

    def has_looked(self) -> bool:
        """Return whether a child has reported its devices, if any."""
        return self._has_looked.is_set()

    def is_available(self, device: str) -> bool:
        """Whether a device is read: a child that knows its devices runs, and this one is not quarantined."""
        is_reading = self._process is not None and self._is_known and not self._stopping.is_set()
        return is_reading and self.registry.is_available(device)

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
        return self._is_known and self._send(
            {"cmd": "watch", "device": device, "until_ns": until_ns}
        )

    def mark(self, device: str) -> bool:
        """Request a reading of the energy counter, at an edge of a window; False if that fails."""
        return self._is_known and self._send({"cmd": "mark", "device": device})

    def status(self) -> dict[str, Any]:
        """Return the state of the sensors for `costprobe status`."""
        process = self._process
        state = "waiting"
        if self._stopping.is_set():
            state = "stopped"
        elif process is not None:
            state = "running" if self._is_known else "starting"
        return {
            "state": state,
            "pid": process.pid if process else None,
            "driver_version": self._versions.get("driver_version"),
            "nvml_version": self._versions.get("nvml_version"),
            "other_versions": {
                name: version
                for name, version in self._versions.items()
                if name not in {"driver_version", "nvml_version"}
            },
            "driver_faults": self._driver_faults,
            "child_restarts": self.restarts,
            "malformed_lines": self._malformed_lines,
            "callback_errors": self._callback_errors,
            "unkillable": sum(child.reap(0) is None for child in self._unkillable),
            "last_fault": self.last_fault,
            "devices": self.registry.status(self._clock.monotonic_ns()),
        }

    def _send(self, message: Message) -> bool:
        process = self._process
        return process is not None and process.send(message)

    def _run(self) -> None:
        """Start one child after the other until `stop`."""
        while not self._stopping.is_set():
            try:
                how, stderr_line = self._run_child()
            except Exception:
                log.exception("the sensor process could not be read")
                how, stderr_line = "could not be read, and was killed", ""
            if self._stopping.is_set():
                break
            self._is_down = True
            wait_s = self._restart.next_s(self._clock.monotonic_ns())
            failures = self._restart.failures
            # In a series of failures, the first, second, fourth, eighth ... is reported.
            if how and failures & (failures - 1) == 0:
                last_line = f" Last line of its stderr: {stderr_line}." if stderr_line else ""
                times = f" This is failure {failures} in a row." if failures > 1 else ""
                self._report(
                    "warning",
                    f"sensors: the sensor process {how}",
                    detail=f"It is restarted in {wait_s:.0f} s.{last_line}{times}"
                    " If this persists, run `costprobe doctor`.",
                )
            self._stopping.wait(wait_s)

    def _run_child(self) -> tuple[str, str]:
        """Run one child; return how it ended, empty if it wrote the reason, and its last line."""
        try:
            process = ChildProcess(self._command)
        except OSError as error:
            return f"cannot be started: {error}", ""
        self._starts += 1
        quarantined_s = self.registry.quarantined_s(self._clock.monotonic_ns())
        process.send({"settings": asdict(self._settings), "quarantined_s": quarantined_s})
        self._is_known, self._process = False, process
        if self._stopping.is_set():
            process.send({"cmd": "stop"})
        how = ""
        try:
            how = self._read(process)
        finally:
            self._process = None
            # A child that ends by itself has some time; one that hangs is killed at once.
            status = process.reap(REAP_WAIT_S if how in ("", "ended") else 0)
            if status is None:
                process.kill()
                status = process.reap(REAP_WAIT_S)
            process.close()
        if status is None:
            self._unkillable = [*self._unkillable, process][-UNKILLABLE_MAX:]
        if how == "ended" or status is None:
            how = describe_end(status)
        return how, process.stderr_line()

    def _read(self, process: ChildProcess) -> str:
        """Read a child until it ends or misses its deadline.

        It must write its handshake within its start-up time, and then a message at least each
        `deadline_s` and the margin.

        Returns:
            How it ended, as a clause; empty if it wrote the reason itself.
        """
        settings = self._settings
        first_s = max(settings.startup_s, settings.deadline_s) + self._margin_s
        self._deadline_ns = self._after_ns(first_s)
        has_reason = False
        with selectors.DefaultSelector() as selector:
            for fd in (process.stdout_fd, process.stderr_fd):
                selector.register(fd, selectors.EVENT_READ)
            while True:
                ready = self._wait(selector)
                if not ready and self._clock.monotonic_ns() >= self._deadline_ns:
                    if not self._is_known:
                        return "did not find the devices in time and was killed"
                    return f"sent no message for {self._patience_s:.0f} s and was killed"
                if process.stderr_fd in ready and not process.read_stderr():
                    selector.unregister(process.stderr_fd)
                if process.stdout_fd in ready:
                    lines = process.read_lines()
                    if lines is None:
                        return "" if has_reason else "ended"
                    has_reason |= "exit" in self._take(lines)

    @property
    def _patience_s(self) -> float:
        """Longest time between two messages of a child, in s."""
        return self._settings.deadline_s + self._margin_s

    def _after_ns(self, wait_s: float) -> int:
        """The CLOCK_MONOTONIC ns after a time in s from now."""
        return self._clock.monotonic_ns() + int(wait_s * NS_PER_S)

    def _wait(self, selector: selectors.BaseSelector) -> list[int]:
        """Return the readable descriptors; none at the deadline, or after a while.

        A wait that ends late means that this process was stopped, and the child perhaps with it: its
        time begins again.
        """
        began_ns = self._clock.monotonic_ns()
        wait_s = min(WAIT_MAX_S, max(0.0, (self._deadline_ns - began_ns) / NS_PER_S))
        events = selector.select(wait_s)
        if stopped_s((self._clock.monotonic_ns() - began_ns) / NS_PER_S, wait_s):
            self._deadline_ns = max(self._deadline_ns, self._after_ns(self._patience_s))
        return [key.fd for key, _ in events]

    def _take(self, lines: Sequence[bytes]) -> set[str]:
        """Handle lines of the child; return the types of their messages."""
        messages: list[Message] = []
        for line in lines:
            with suppress(ValueError):
                messages.append(decode(line))
        types = {str(message.get("type")) for message in messages}
        self._is_known |= "handshake" in types
        malformed = self.take(messages)
        self._malformed_lines += len(lines) - len(messages) + malformed
        if self._is_known and len(messages) > malformed:
            self._deadline_ns = self._after_ns(self._patience_s)
        return types

    def take(self, messages: Sequence[Message]) -> int:
        """Handle messages of a child that arrived together; return the number of malformed ones."""
        malformed = 0
        readings: list[tuple[Reading, Device]] = []
        for message in messages:
            try:
                if message["type"] != "reading":
                    self._handlers[message["type"]](message)
                    continue
                reading = parse_reading(message)
            except (AttributeError, KeyError, TypeError, ValueError):
                malformed += 1
                continue
            device = self.registry.get(reading.device)
            if device is not None:
                readings.append((reading, device))
        if readings:
            for consumer in self._consumers:
                self._call(consumer, readings)
        return malformed

    def _take_exit(self, message: Message) -> None:
        """Quarantine the device that hung first: others may only wait for its lock.

        If the next child hangs as well, all on which it hung are quarantined.
        """
        if message["reason"] != "hung":
            return
        now_ns = self._clock.monotonic_ns()
        hung = [str(name) for name in message["devices"]]
        is_again = self._hung_ns is not None and now_ns - self._hung_ns < HUNG_AGAIN_NS
        for name in hung if is_again else hung[:1]:
            self.registry.quarantine_hung(name, now_ns)
        self._hung_ns = now_ns

    def _take_handshake(self, message: Message) -> None:
        self._take_drivers(message)
        self._has_looked.set()
        if self._is_down:
            self._is_down = False
            self._report("info", "sensors: the sensor process is running again")

    def _take_drivers(self, message: Message) -> None:
        before = self._driver_faults
        self._driver_faults, self._versions = dict(message["faults"]), dict(message["versions"])
        for vendor in sorted(before.keys() - self._driver_faults.keys()):
            self._report("info", f"sensors: the {vendor} driver works again")

    def _take_selftest(self, message: Message) -> None:
        device, ratio = str(message["device"]), float(message["ratio"])
        suspect = bool(message["suspect"])
        if not self.registry.set_selftest(device, ratio, suspect=suspect):
            return
        detail = f"the energy counter counts {ratio * 100:.0f} % of the integrated power"
        if not suspect:
            self._report("info", f"{device}: the energy sensors agree again", detail=detail)
            return
        self._report(
            "warning",
            f"{device}: its energy is suspect",
            device,
            f"{detail}: one of the two is wrong, so every energy of this device is marked and"
            " its uncertainty grows by as much. Compare with a meter at the plug; a driver update may"
            " fix it.",
            "energy sensors disagree",
        )

    def _add_device(self, message: Message) -> None:
        is_back = self.registry.add(message)
        name = str(message["name"])
        if is_back:
            self._report("info", f"{name}: {message['model']} responds again", name)
        device = self.registry.get(name)
        if device is None or device.is_host:
            return
        for cpu in self.registry.drop_fallback():
            title = f"{cpu}: a GPU was found, and the CPUs are not measured any more"
            self._report("info", title, cpu, "cpu = true in [telemetry] measures both", REMOVED)

    def _keep_slices(self, message: Message) -> None:
        for name in self.registry.keep_slices(str(message["device"]), message["names"]):
            title = f"{name}: this MIG device was destroyed, and is not measured any more"
            self._report("info", title, name, cause=REMOVED)

    def _take_fault(self, message: Message) -> None:
        """Report a fault, unless the same was reported within ten minutes, as at every start of a child."""
        now_ns = self._clock.monotonic_ns()
        event = fault_event(message, self._clock.time_ns())
        # Energy that is modelled because the host has no RAPL cannot be fixed, and must not hide a
        # fault that can.
        if event.severity != "info":
            self.last_fault = event.title
        key = tuple(str(message[part]) for part in ("device", "call", "code", "reaction"))
        reported_ns = self._reported_ns.get(key)
        if reported_ns is None or now_ns - reported_ns >= REPEAT_AFTER_NS:
            self._reported_ns[key] = now_ns
            self._call(self._on_event, event)
        if message["reaction"] == "quarantine" and message["device"]:
            self.registry.quarantine(message["device"], float(message["retry_after_s"]), now_ns)

    def _report(
        self, severity: Severity, title: str, device: str = "", detail: str = "", cause: str = ""
    ) -> None:
        now_ns = self._clock.time_ns()
        event = Event("fault", severity, title, now_ns, detail, device, cause=cause)
        self._call(self._on_event, event)

    def _call(self, callback: Callable[[Any], None], argument: object) -> None:
        try:
            callback(argument)
        except Exception:
            self._callback_errors += 1
            log.exception("a consumer of the sensors failed")
