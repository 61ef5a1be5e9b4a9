"""The sensor child's main thread: it writes the messages, and checks on the devices' threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final, NoReturn

from costprobe.adapters.sensors.child.driver_search import DriverSearch
from costprobe.adapters.sensors.child.hang_watch import HangWatch
from costprobe.adapters.sensors.child.message_writer import GATHER_S, MessageWriter
from costprobe.adapters.sensors.child.sensor import Sensor, SensorTable
from costprobe.adapters.sensors.child.worker_pool import WorkerPool
from costprobe.adapters.sensors.protocol.activity import UNKNOWN
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.adapters.sensors.protocol.messages import (
    LineSplitter,
    Message,
    Quarantined,
    SensorSettings,
    activity_message,
    energy_message,
    fault_message,
    parse_command,
)
from costprobe.adapters.sensors.protocol.sample import Absent
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# Messages between the threads, which do not leave the process.
INTERNAL: Final = frozenset({"stop", "restart", "slices", "gone", "flushed", "found", "relist"})
# How often the watchdog checks for hung driver calls, in s; sooner with a short deadline.
WATCH_EVERY_S: Final = 2.0
HEARTBEAT_EVERY_S: Final = 10.0
# Other messages are sent with a heartbeat if the last one is at least this old, in s.
HEARTBEAT_WITH_MESSAGES_S: Final = 5.0
FLUSH_WAIT_S: Final = 0.5
# A driver whose initialization hangs is loaded again by a new process after `startup_s`, and after
# this many times as long while other devices are read.
HUNG_DRIVER_STARTUPS: Final = 10


class SensorChild:
    """The process: one thread per device, and the main thread, which writes and is the watchdog.

    Args:
        sensors: The table of sensors.
        settings: Settings from the daemon.
        quarantined: Devices that must not be accessed at first.
        clock: The host's clocks.
        read_fd: File descriptor of the daemon's commands.
        write_fd: File descriptor of the pipe to the daemon.
    """

    def __init__(
        self,
        sensors: SensorTable,
        settings: SensorSettings,
        quarantined: Sequence[Quarantined],
        clock: Clock,
        read_fd: int,
        write_fd: int,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._read_fd = read_fd
        self._writer = MessageWriter(write_fd)
        self._pool = WorkerPool(settings, quarantined, clock, self._writer.put)
        self._workers = self._pool.workers
        self._watch_s = min(WATCH_EVERY_S, settings.deadline_s / 2)
        self._hang_watch = HangWatch(clock, self._watch_s + GATHER_S)
        self._search = DriverSearch(sensors, settings, clock, self._writer.put)
        self._driver_faults: dict[str, str] = {}
        # When the process ends to load another library, in CLOCK_MONOTONIC ns.
        self._restart_ns: int | None = None
        self._is_serving = False
        self._heartbeat_ns = 0

    def run(self) -> NoReturn:
        """Find the devices, write the handshake, and serve until the daemon ends it."""
        threading.Thread(target=self._read_commands, name="stdin", daemon=True).start()
        self._write_handshake(self._await_devices())
        self._is_serving = True
        while True:
            self._serve_once()

    def _await_devices(self) -> list[Message]:
        """Wait until each device was discovered, quarantined, or is reported as slow; return them."""
        devices: list[Message] = []
        until_ns = self._clock.monotonic_ns() + int(self._settings.report_s * NS_PER_S)
        while True:
            self._search_drivers()
            # Read before the messages: a settled device's message is among them.
            workers = list(self._workers.values())
            unsettled = [worker for worker in workers if not worker.settled]
            is_settled = self._search.is_settled() and not unsettled
            messages = self._writer.gather(0.0 if is_settled else 0.02)
            devices += [message["device"] for message in messages if message["type"] == "device"]
            self._pass_on([message for message in messages if message["type"] != "device"])
            self._exit_if_hung()
            # The last messages may have started workers, of a board's slices for example.
            if is_settled and len(workers) == len(self._workers):
                return devices
            if self._clock.monotonic_ns() >= until_ns:
                self._writer.write(*(self._slow(worker.sensor) for worker in unsettled))
                return devices

    def _slow(self, sensor: Sensor) -> Message:
        """The message of a device whose discovery takes long."""
        detail = (
            f"the discovery has not returned for {self._settings.report_s:g} s; without the"
            " driver's persistence mode each GPU is initialized first"
        )
        fault = SensorFault(sensor.call, "SLOW", Reaction.TRANSIENT, detail)
        return fault_message(sensor.name, fault)

    def _search_drivers(self) -> None:
        """Search for devices where that is due, and report which drivers fail."""
        self._search.step()
        self._report_drivers()

    def _report_drivers(self) -> None:
        faults = self._search.faults()
        if faults != self._driver_faults:
            self._driver_faults = faults
            self._writer.write({"type": "drivers", "faults": faults})

    def _write_handshake(self, devices: Sequence[Message]) -> None:
        self._writer.write(
            {
                "type": "handshake",
                "pid": os.getpid(),
                **self._search.versions,
                "driver_faults": self._driver_faults,
                "devices": devices,
            }
        )

    def _serve_once(self) -> None:
        """Pass on the messages of the devices, and check on them."""
        messages = self._writer.gather(self._watch_s)
        age_s = (self._clock.monotonic_ns() - self._heartbeat_ns) / NS_PER_S
        if age_s >= (HEARTBEAT_WITH_MESSAGES_S if messages else HEARTBEAT_EVERY_S):
            messages.append(self._heartbeat())
        self._pass_on(messages)
        self._exit_if_hung()
        self._search_drivers()
        if self._restart_ns is not None and self._clock.monotonic_ns() >= self._restart_ns:
            self._exit("library_mismatch", None)

    def _pass_on(self, messages: Sequence[Message]) -> None:
        """Write the messages that are for the daemon, then act on those that are for this thread."""
        self._writer.write(*(message for message in messages if self._is_for_the_daemon(message)))
        for message in messages:
            match message["type"]:
                case "stop":
                    self._exit("stop", None)
                case "restart":
                    self._restart(message["device"])
                case "found":
                    self._pool.start(message["sensors"])
                    if self._is_serving:
                        self._write_handshake([])
                case "relist":
                    self._pool.relist(message["device"])
                case "slices":
                    self._writer.write(
                        self._pool.keep_slices(message["device"], message["sensors"])
                    )
                case "gone":
                    self._pool.drop_slice(message["sensor"])

    def _is_for_the_daemon(self, message: Message) -> bool:
        """Whether a message leaves the process: not the late fault of a slice that was dropped."""
        device = message["device"] if message["type"] == "fault" else None
        is_stale = device is not None and device not in self._workers
        return message["type"] not in INTERNAL and not is_stale

    def _command(self, command: Message) -> None:
        """Pass a command to its device; reject it if the device cannot accept it."""
        if command["cmd"] == "stop":
            self._writer.put({"type": "stop"})
            return
        worker = self._workers.get(str(command["device"]))
        if worker is not None and worker.offer(command):
            return
        reason = "no such device" if worker is None else "too many requests at once"
        if command["cmd"] == "energy":
            self._writer.put(energy_message(int(command["id"]), Absent(reason)))
        elif command["cmd"] == "activity":
            self._writer.put(activity_message(int(command["id"]), UNKNOWN))

    def _heartbeat(self) -> Message:
        self._heartbeat_ns = now_ns = self._clock.monotonic_ns()
        ages_s = {
            name: round((now_ns - worker.sampled_ns) / NS_PER_S, 3)
            for name, worker in self._workers.items()
            if worker.opened and worker.sampled_ns is not None
        }
        return {
            "type": "heartbeat",
            "t_ns": now_ns,
            "ages_s": ages_s,
            "dropped": self._writer.dropped,
        }

    def _restart(self, device: str | None) -> None:
        """End the process, so that a new one loads the driver's library.

        Args:
            device: The device that failed; None where a whole driver cannot be used: the devices
                of other vendors are then read for a while first.
        """
        self._report_drivers()
        if device is not None or not self._has_devices():
            self._exit("library_mismatch", device)
        wait_ns = int(self._settings.quarantine_first_s * NS_PER_S)
        self._restart_ns = self._clock.monotonic_ns() + wait_ns

    def _has_devices(self) -> bool:
        return any(worker.opened for worker in self._workers.values())

    def _exit_if_hung(self) -> None:
        """End the process if a driver call exceeded its deadline: its thread cannot be ended."""
        if (hung := self._hang_watch.hung(self._workers.values())) is not None:
            device, fault = hung
            self._writer.write(fault_message(device, fault))
            self._exit("hung", device)
        now_ns = self._clock.monotonic_ns()
        hanging_ns = self._search.hanging_ns(now_ns)
        patience_s = self._settings.startup_s * (HUNG_DRIVER_STARTUPS if self._has_devices() else 1)
        stopped_ns = self._hang_watch.stopped_ns(now_ns - hanging_ns)
        if hanging_ns - stopped_ns > patience_s * NS_PER_S:
            self._exit("hung", None)

    def _exit(self, reason: str, device: str | None) -> NoReturn:
        """Write the incomplete intervals of the devices and the reason, and end the process."""
        until_ns = self._clock.monotonic_ns() + int(FLUSH_WAIT_S * NS_PER_S)
        flushing = {
            name
            for name, worker in self._workers.items()
            if worker.opened and worker.visit is None and worker.offer({"cmd": "flush"})
        }
        while flushing and (wait_s := (until_ns - self._clock.monotonic_ns()) / NS_PER_S) > 0:
            messages = self._writer.gather(wait_s)
            self._writer.write(
                *(message for message in messages if message["type"] not in INTERNAL)
            )
            flushing -= {message["device"] for message in messages if message["type"] == "flushed"}
        self._writer.write({"type": "exit", "reason": reason, "device": device})
        os._exit(0)

    def _read_commands(self) -> NoReturn:
        """Read the daemon's commands; a closed pipe means that the daemon ended."""
        lines = LineSplitter()
        while data := os.read(self._read_fd, 65536):
            for line in lines.feed(data):
                try:
                    command = parse_command(line)
                except ValueError:
                    self._writer.dropped += 1
                else:
                    self._command(command)
        os._exit(0)
