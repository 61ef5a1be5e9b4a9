"""The sensor child: the only process that loads a vendor's driver library.

The daemon runs it as `python -m costprobe.adapters.sensors.child.main`; see
`costprobe.adapters.sensors.messages` for its input and output. It exits when its input closes,
and with its parent.

The search for each vendor's devices has a thread of its own, because a driver may hang in its
initialization. The main thread checks the devices' threads for driver calls that hang, and does
not take a stopped process for a hanging call. Any thread may queue a message; one thread writes
the pipe.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, NoReturn

from costprobe.adapters.sensors.child.device_thread import DeviceWorker
from costprobe.adapters.sensors.child.kinds import SENSORS
from costprobe.adapters.sensors.child.sensor import NEVER_NS, Sensor, SensorContext, SensorTable
from costprobe.adapters.sensors.messages import (
    LINE_BYTES_MAX,
    Backoff,
    Emit,
    Message,
    Reaction,
    SensorFault,
    SensorSettings,
    decode,
    encode,
    fault_message,
)
from costprobe.core.clock import Clock, SystemClock, stopped_s
from costprobe.core.records import NS_PER_S

# First wait after a failure in s; it doubles up to `quarantine_first_s`.
RETRY_FIRST_S: Final = 2.0
RETRY_RESET_S: Final = 600.0


class DriverSearch:
    """Calls the factories of the vendors, in their order, until each has returned its devices.

    What is found is passed on as a message of type `found`. Each call has a thread: one that hangs is
    reported, and the vendors after it are searched meanwhile.

    Args:
        table: The table of sensors.
        settings: Deadlines and waits.
        clock: CLOCK_MONOTONIC.
        emit: Takes messages for the main thread; must not block.

    Attributes:
        versions: Versions of the drivers, by name.
        faults: The fault of each vendor whose devices are unknown.
    """

    def __init__(
        self, table: SensorTable, settings: SensorSettings, clock: Clock, emit: Emit
    ) -> None:
        self.versions: dict[str, str] = {}
        self.faults: dict[str, SensorFault] = {}
        self._table = table
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._found: list[Sensor] = []
        last_s = settings.quarantine_first_s
        self._backoffs = {
            name: Backoff(min(RETRY_FIRST_S, last_s), last_s, RETRY_RESET_S) for name in table
        }
        # CLOCK_MONOTONIC ns at which each vendor is searched again, and at which a call began.
        self._due_ns = dict.fromkeys(table, 0)
        self._began_ns: dict[str, int] = {}

    def step(self) -> bool:
        """Search the next vendor that is due, and report one that hangs; called by one thread, often.

        Returns:
            Whether every vendor was searched, failed, or was reported as hanging.
        """
        now_ns = self._clock.monotonic_ns()
        for name in self._table:
            began_ns = self._began_ns.get(name)
            if began_ns is None and now_ns >= self._due_ns[name]:
                self._began_ns[name] = now_ns
                threading.Thread(target=self._search, args=(name,), name=name, daemon=True).start()
                return False
            if began_ns is None or getattr(self.faults.get(name), "code", "") == "DEADLINE":
                continue
            waited_s = (now_ns - began_ns) / NS_PER_S
            if waited_s < self._settings.report_s:
                return False
            detail = f"it has not returned for {waited_s:.1f} s; `dmesg` may show why"
            call = f"initialization of the {name} driver"
            self._fail(name, SensorFault(call, "DEADLINE", Reaction.RESTART, detail))
        return True

    def needs_restart(self) -> bool:
        """Whether a driver cannot be used by this process: its call hangs, or its library is another."""
        return any(fault.reaction is Reaction.RESTART for fault in self.faults.values())

    def _search(self, name: str) -> None:
        reported: list[SensorFault] = []

        def report(device: str, fault: SensorFault) -> None:
            self._emit(fault_message(device or None, fault))
            reported.append(fault)

        context = SensorContext(
            self._settings,
            self._clock,
            report,
            tuple(self._found),
            self.versions,
            is_complete=not self.faults,
        )
        sensors: Sequence[Sensor] = ()
        wait_s = self._settings.quarantine_first_s
        try:
            sensors = list(self._table[name](context))
            self.faults = {other: why for other, why in self.faults.items() if other != name}
        except Exception as error:  # noqa: BLE001 - an error of one vendor must not end the search
            detail = f"{type(error).__name__}: {error}"
            unexpected = SensorFault(name, "FAILED", Reaction.TRANSIENT, detail)
            self._fail(name, error if isinstance(error, SensorFault) else unexpected)
            wait_s = self._backoffs[name].next_s(self._clock.monotonic_ns())
        # A driver may be loaded late, or again in an upgrade.
        is_done = bool(sensors) and not reported
        due_ns = self._clock.monotonic_ns() + int(wait_s * NS_PER_S)
        self._due_ns[name] = NEVER_NS if is_done else due_ns
        if sensors:
            self._found += sensors
            self._emit({"type": "found", "sensors": sensors})
        del self._began_ns[name]

    def _fail(self, name: str, fault: SensorFault) -> None:
        self.faults = {**self.faults, name: fault}
        self._emit(fault_message(None, fault))


class HangWatch:
    """The watchdog of the driver calls.

    Args:
        clock: CLOCK_MONOTONIC.
        every_s: Longest time between two checks in s, unless the process is stopped.
    """

    def __init__(self, clock: Clock, every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._checked_ns = clock.monotonic_ns()
        # The end of the last stop of the process, which stopped its calls, too.
        self._resumed_ns = 0

    def hung(self, workers: Iterable[DeviceWorker]) -> list[tuple[str, SensorFault]]:
        """Return the devices whose calls hang, the longest first, each with its fault."""
        now_ns = self._clock.monotonic_ns()
        if stopped_s((now_ns - self._checked_ns) / NS_PER_S, self._every_s):
            self._resumed_ns = now_ns
        self._checked_ns = now_ns
        visits = [(worker.visit, worker.sensor) for worker in workers]
        hung = sorted(
            (visit.began_ns, sensor.name, sensor.call)
            for visit, sensor in visits
            if visit is not None
            and now_ns - max(visit.began_ns, self._resumed_ns) > visit.allowed_ns
        )
        faults = []
        for began_ns, device, call in hung:
            waited_s = (now_ns - began_ns) / NS_PER_S
            detail = f"the call has not returned for {waited_s:.1f} s; `dmesg` may show why"
            # NVIDIA's driver writes its errors as Xid messages.
            is_nvidia = call.startswith(("nvml", "initialization of the nvidia"))
            detail += " (Xid messages)" if is_nvidia else ""
            faults.append((device, SensorFault(call, "DEADLINE", Reaction.RESTART, detail)))
        return faults


QUEUE_MAX: Final = 4096
# Devices are sampled at the same instants: messages within this time are sent in one write, so that
# the daemon wakes once and commits their rows in one transaction.
GATHER_S: Final = 0.05


class MessageWriter:
    """A bounded queue of messages, and the pipe to the daemon.

    Args:
        write_fd: File descriptor of the pipe.
    """

    def __init__(self, write_fd: int) -> None:
        self._write_fd = write_fd
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def put(self, message: Message) -> None:
        """Queue a message from any thread; drop it if the queue is full, never block."""
        if self._messages.qsize() < QUEUE_MAX:
            self._messages.put(message)

    def gather(self, timeout_s: float) -> list[Message]:
        """Wait for a message, and return it with those that follow within GATHER_S; none at the timeout."""
        try:
            gathered = [self._messages.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        time.sleep(GATHER_S)
        with suppress(queue.Empty):
            while True:
                gathered.append(self._messages.get_nowait())
        return gathered

    def write(self, *messages: dict[str, Any] | Message) -> None:
        """Write messages at once; end the process if the daemon is gone."""
        data = b"".join(encode(message) for message in messages)
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError:
            os._exit(0)


# Messages between the threads, which do not leave the process.
INTERNAL: Final = frozenset({"stop", "restart", "slices", "flushed", "found"})
# How often the watchdog checks for hung driver calls, in s; sooner with a short deadline, and until the
# devices are known.
WATCH_EVERY_S: Final = 2.0
STARTUP_WATCH_S: Final = 0.02
HEARTBEAT_EVERY_S: Final = 10.0
# Other messages are sent with a heartbeat if the last one is at least this old, in s.
HEARTBEAT_WITH_MESSAGES_S: Final = 5.0
FLUSH_WAIT_S: Final = 0.5
# A driver that cannot be used by this process is loaded by a new one after `quarantine_first_s`, and after
# this many times as long while other devices are read.
PATIENCE: Final = 10


class SensorChild:
    """The process: one thread per device, and the main thread, which writes and is the watchdog.

    Args:
        sensors: The table of sensors.
        settings: Settings from the daemon.
        quarantined_s: Devices that must not be accessed at first, and for how long, in s.
        clock: The host's clocks.
        commands: The daemon's commands, a line each.
        write_fd: File descriptor of the pipe to the daemon.
    """

    def __init__(
        self,
        sensors: SensorTable,
        settings: SensorSettings,
        quarantined_s: Mapping[str, float],
        clock: Clock,
        commands: BinaryIO,
        write_fd: int,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._commands = commands
        self._writer = MessageWriter(write_fd)
        self._retry_after_s = dict(quarantined_s)
        # Rows end at multiples of their length since 1970 UTC, as the daemon's jobs begin.
        rows_ns = int(settings.aggregate_s * NS_PER_S)
        self._grid_ns = clock.monotonic_ns() - clock.time_ns() % rows_ns
        self._workers: dict[str, DeviceWorker] = {}
        self._watch_s = min(WATCH_EVERY_S, settings.deadline_s / 2)
        self._hang_watch = HangWatch(clock, self._watch_s + GATHER_S)
        self._search = DriverSearch(sensors, settings, clock, self._writer.put)
        # What was reported of the drivers.
        self._drivers: Message = {"faults": {}, "versions": {}}
        # Since when a driver has needed another process, in CLOCK_MONOTONIC ns.
        self._unusable_ns: int | None = None
        # The handshake was written: each device was discovered or is reported as slow.
        self._is_known = False
        self._known_by_ns = 0
        self._heartbeat_ns = 0

    def run(self) -> NoReturn:
        """Find the devices, and serve until the daemon ends it."""
        threading.Thread(target=self._read_commands, name="stdin", daemon=True).start()
        while True:
            self._serve_once()

    def _serve_once(self) -> None:
        """Search drivers, pass on the messages of the devices, and check on them."""
        is_searched = self._search_drivers()
        # Read before the messages: those of a settled device are among them.
        workers = list(self._workers.values())
        unsettled = [worker for worker in workers if not worker.settled]
        messages = self._writer.gather(self._watch_s if self._is_known else STARTUP_WATCH_S)
        age_s = (self._clock.monotonic_ns() - self._heartbeat_ns) / NS_PER_S
        if age_s >= (HEARTBEAT_WITH_MESSAGES_S if messages else HEARTBEAT_EVERY_S):
            messages.append(self._heartbeat())
        self._pass_on(messages)
        self._exit_if_hung()
        self._exit_if_unusable()
        if self._is_known:
            return
        is_settled = not unsettled or self._clock.monotonic_ns() >= self._known_by_ns
        # The last messages may have started workers, of a board's slices for example.
        if is_searched and is_settled and len(workers) == len(self._workers):
            self._is_known = True
            slow = [self._slow(worker.sensor) for worker in unsettled]
            self._writer.write(*slow, {"type": "handshake", **self._drivers})

    def _slow(self, sensor: Sensor) -> Message:
        """The message of a device whose discovery takes long."""
        detail = (
            f"the discovery has not returned for {self._settings.report_s:g} s; without the"
            " driver's persistence mode each GPU is initialized first"
        )
        fault = SensorFault(sensor.call, "SLOW", Reaction.TRANSIENT, detail)
        return fault_message(sensor.name, fault)

    def _search_drivers(self) -> bool:
        """Search for devices where that is due, and report which drivers fail; True once all are known."""
        is_searched = self._search.step()
        faults = {name: str(fault) for name, fault in self._search.faults.items()}
        drivers = {"faults": faults, "versions": dict(self._search.versions)}
        if drivers != self._drivers:
            self._drivers = drivers
            self._writer.write({"type": "drivers", **drivers})
        return is_searched

    def _pass_on(self, messages: Sequence[Message]) -> None:
        """Write the messages that are for the daemon, then act on those that are for this thread."""
        self._writer.write(*(message for message in messages if self._is_for_the_daemon(message)))
        for message in messages:
            match message["type"]:
                case "stop":
                    self._exit("stop")
                case "restart":
                    self._exit("library_mismatch", message["device"])
                case "found":
                    self._start(message["sensors"])
                case "slices":
                    self._keep_slices(message["device"], message["sensors"])

    def _start(self, sensors: Sequence[Sensor]) -> None:
        """Start a worker for each device that has none, and end those that these replace."""
        if not all(sensor.is_fallback for sensor in sensors):
            self._end(name for name, worker in self._workers.items() if worker.sensor.is_fallback)
        for sensor in sensors:
            if sensor.name not in self._workers:
                worker = self._workers[sensor.name] = DeviceWorker(
                    sensor,
                    self._settings,
                    self._clock,
                    self._writer.put,
                    self._grid_ns,
                    self._retry_after_s.pop(sensor.name, None),
                )
                worker.start()
                report_ns = int(self._settings.report_s * NS_PER_S)
                self._known_by_ns = self._clock.monotonic_ns() + report_ns

    def _keep_slices(self, board: str, sensors: Sequence[Sensor]) -> None:
        """Have workers for exactly these slices of a board."""
        names = {sensor.name for sensor in sensors}
        self._end(name for name in self._workers.keys() - names if name.startswith(f"{board}."))
        self._start(sensors)
        self._writer.write({"type": "slices", "device": board, "names": sorted(names)})

    def _end(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._workers.pop(name).offer({"cmd": "end"})

    def _is_for_the_daemon(self, message: Message) -> bool:
        """Whether a message leaves the process: not the late fault of a slice that was dropped."""
        device = message["device"] if message["type"] == "fault" else None
        is_stale = device is not None and device not in self._workers
        return message["type"] not in INTERNAL and not is_stale

    def _heartbeat(self) -> Message:
        self._heartbeat_ns = now_ns = self._clock.monotonic_ns()
        ages_s = {
            name: round((now_ns - worker.sampled_ns) / NS_PER_S, 3)
            for name, worker in self._workers.items()
            if worker.opened and worker.sampled_ns is not None
        }
        return {"type": "heartbeat", "ages_s": ages_s}

    def _exit_if_hung(self) -> None:
        """End the process if a driver call exceeded its deadline: its thread cannot be ended."""
        if hung := self._hang_watch.hung(self._workers.values()):
            self._writer.write(*(fault_message(device, fault) for device, fault in hung))
            self._exit("hung", *(device for device, _ in hung))

    def _exit_if_unusable(self) -> None:
        """End the process, so that a new one loads a driver that this one cannot use."""
        if not self._search.needs_restart():
            self._unusable_ns = None
            return
        now_ns = self._clock.monotonic_ns()
        self._unusable_ns = self._unusable_ns or now_ns
        has_devices = any(worker.opened for worker in self._workers.values())
        patience_s = self._settings.quarantine_first_s * (PATIENCE if has_devices else 1)
        if now_ns - self._unusable_ns > patience_s * NS_PER_S:
            self._exit("library_mismatch")

    def _exit(self, reason: str, *devices: str) -> NoReturn:
        """Write the incomplete intervals of the devices and the reason, and end the process."""
        until_ns = self._clock.monotonic_ns() + int(FLUSH_WAIT_S * NS_PER_S)
        flushing = {
            name for name, worker in self._workers.items() if worker.opened and worker.visit is None
        }
        for name in flushing:
            self._workers[name].offer({"cmd": "flush"})
        while flushing and (wait_s := (until_ns - self._clock.monotonic_ns()) / NS_PER_S) > 0:
            messages = self._writer.gather(wait_s)
            self._writer.write(
                *(message for message in messages if message["type"] not in INTERNAL)
            )
            flushing -= {message["device"] for message in messages if message["type"] == "flushed"}
        self._writer.write({"type": "exit", "reason": reason, "devices": devices})
        os._exit(0)

    def _read_commands(self) -> NoReturn:
        """Read the daemon's commands; a closed pipe means that the daemon ended."""
        while line := self._commands.readline(LINE_BYTES_MAX):
            # A malformed line is ignored.
            with suppress(KeyError, ValueError):
                command = decode(line)
                if command["cmd"] == "stop":
                    self._writer.put({"type": "stop"})
                elif (worker := self._workers.get(command["device"])) is not None:
                    worker.offer(command)
        os._exit(0)


PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(sensors: SensorTable = SENSORS) -> NoReturn:
    """Read the settings and serve.

    Args:
        sensors: The table of sensors.
    """
    die_with_parent()
    # Output of a driver's library must not be mixed with messages.
    write_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    commands = sys.stdin.buffer
    line = commands.readline(LINE_BYTES_MAX)
    if not line:
        os._exit(0)
    first = decode(line)
    settings, quarantined_s = SensorSettings(**first["settings"]), first["quarantined_s"]
    SensorChild(sensors, settings, quarantined_s, SystemClock(), commands, write_fd).run()


if __name__ == "__main__":
    main()
