"""The sensor child: the only process that loads a vendor's driver library.

Run by the daemon as `python -m agent.telemetry.child`; see `agent.telemetry.wire` for what it
reads and writes. It exits when its input closes, and with its parent.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
from typing import Final, NoReturn

from agent.clock import Clock, SystemClock
from agent.model import NS_PER_S
from agent.telemetry.activity import UNKNOWN
from agent.telemetry.alarm import Alarm
from agent.telemetry.crew import Crew
from agent.telemetry.energy import Absent
from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.gpu import GpuSensor, part_name
from agent.telemetry.nvml import NO_DRIVER, DriverInfo, Library
from agent.telemetry.outlet import Outlet
from agent.telemetry.sample import Sensor
from agent.telemetry.wire import (
    LineSplitter,
    Message,
    Quarantined,
    SensorSettings,
    activity_message,
    decode,
    energy_message,
    fault_message,
    gpu_index,
    parse_command,
    parse_settings,
)
from agent.telemetry.worker import DeviceWorker

# When no round began for so long this thread looks whether the last one hangs; where a call may take
# less than twice that, sooner. At one sample a second it never has to.
LOOK_AFTER_S: Final = 1.25
# It tells the daemon that it lives when the last time is so long ago; with rows that leave, from half
# of that on.
BEAT_EVERY_NS: Final = 21 * NS_PER_S // 2
FLUSH_WAIT_NS: Final = NS_PER_S // 2
PR_SET_PDEATHSIG: Final = 1


class SensorChild:
    """Owns the process: a crew that visits the devices, and this thread, which alone writes.

    Args:
        settings: What the daemon asks for.
        quarantined: GPUs to leave alone at first.
        clock: CLOCK_MONOTONIC.
        read_fd: File descriptor of the daemon's commands.
        write_fd: File descriptor of the daemon's ear.
    """

    def __init__(
        self,
        settings: SensorSettings,
        quarantined: tuple[Quarantined, ...],
        clock: Clock,
        read_fd: int,
        write_fd: int,
    ) -> None:
        self._settings = settings
        self._retry_after_s = {f"gpu{entry.index}": entry.retry_after_s for entry in quarantined}
        self._clock = clock
        self._read_fd = read_fd
        self._outlet = Outlet(clock, write_fd)
        self._emit = self._outlet.emit
        look_after_s = min(LOOK_AFTER_S, settings.deadline_s / 2)
        self._look_ns = int(look_after_s * NS_PER_S)
        # Rows end at multiples of their length since 1970 UTC, as the daemon's jobs begin.
        rows_ns = int(settings.aggregate_every_s * NS_PER_S)
        self._base_ns = clock.monotonic_ns() - clock.time_ns() % rows_ns
        alarm = Alarm(look_after_s, self._look_now)
        self._crew = Crew(clock, self._outlet.ring, alarm.put_off, alarm.spare_this_thread)
        self._library = Library()
        self._workers: dict[str, DeviceWorker] = {}
        self._look_again_ns: int | None = None
        self._beat_ns = 0
        self._next_look_ns = 0

    def run(self) -> NoReturn:
        """Finds the devices, says hello, and serves until told to stop."""
        threading.Thread(target=self._listen, name="stdin", daemon=True).start()
        driver = self._open_library()
        self._start([*self._gpu_sensors(driver), *self._cpu_sensors(driver)])
        devices = self._settle()
        self._write(hello_message(driver, devices))
        self._serve()

    def _open_library(self) -> DriverInfo | None:
        """NVML's word about itself; None where there are no GPUs, said where that is a fault."""
        self._look_again_ns = None
        if not self._settings.gpus:
            return None
        try:
            return self._library.open()
        except SensorFault as fault:
            if fault.code not in NO_DRIVER:
                self._write(fault_message(None, fault))
                if fault.reaction is Reaction.RESTART:
                    self._leave("library_mismatch", None)
            # The driver may be on its way: it is loaded late at boot, and anew in an upgrade.
            wait_ns = int(self._settings.quarantine_first_s * NS_PER_S)
            self._look_again_ns = self._clock.monotonic_ns() + wait_ns
            return None

    def _gpu_sensors(self, driver: DriverInfo | None) -> list[Sensor]:
        sensors: list[Sensor] = []
        for index in range(driver.gpu_count if driver else 0):
            tell = functools.partial(self._tell, f"gpu{index}")
            sensors.append(GpuSensor(index, self._library, self._clock, tell))
        return sensors

    def _cpu_sensors(self, driver: DriverInfo | None) -> list[Sensor]:
        settings = self._settings
        no_gpu = driver is None or driver.gpu_count == 0
        if not (no_gpu if settings.cpu == "auto" else settings.cpu):
            return []
        # A host with GPUs has no use for these, and would carry 0.7 MB of them.
        from pathlib import Path  # noqa: PLC0415 - see above

        from agent.telemetry.cpu import CpuSensor  # noqa: PLC0415 - see above

        root, tell = Path(settings.sysfs_root), functools.partial(self._tell, "cpu")
        return [CpuSensor(root, self._clock, tell, settings.cpu_idle_w, settings.cpu_max_w)]

    def _tell(self, device: str, fault: SensorFault) -> None:
        self._emit(fault_message(device, fault))

    def _start(self, sensors: list[Sensor]) -> None:
        """Has each device looked after; all are sampled together, so that all wake the host once."""
        for sensor in sensors:
            retry_after_s = self._retry_after_s.get(sensor.name)
            worker = DeviceWorker(
                sensor, self._settings, self._clock, self._emit, self._base_ns, retry_after_s
            )
            self._workers[sensor.name] = worker
            self._crew.add(worker)

    def _settle(self) -> list[Message]:
        """Waits until each device was opened, set aside, or found to hang; gives those opened."""
        devices: list[Message] = []
        pending = True
        while pending:
            # Asked for before the outbox is emptied: what a settled device said is in it.
            pending = not all(worker.settled for worker in self._workers.values())
            self._crew.relieve()
            self._leave_if_hung()
            while (
                message := self._outlet.next(self._clock.monotonic_ns() + NS_PER_S // 50)
            ) is not None:
                if message["type"] == "device":
                    devices.append(message["device"])
                else:
                    self._handle(message)
        return devices

    def _serve(self) -> NoReturn:
        while True:
            now_ns = self._clock.monotonic_ns()
            if now_ns >= self._next_look_ns:
                self._crew.relieve()
                self._leave_if_hung()
                self._look_again(now_ns)
                self._beat(now_ns, BEAT_EVERY_NS)
                self._next_look_ns = self._when_to_look(now_ns)
            if self._outlet.has_unsent:
                if self._beat(now_ns, BEAT_EVERY_NS // 2):
                    self._next_look_ns = self._when_to_look(now_ns)
                self._outlet.send()
            # What was said together goes out together, so that it wakes the daemon once.
            message = self._outlet.next(self._next_look_ns)
            while message is not None:
                self._handle(message)
                message = self._outlet.next(0)

    def _when_to_look(self, now_ns: int) -> int:
        """When this thread has to look, if the alarm does not ring before, in CLOCK_MONOTONIC ns."""
        if not self._crew.rests:
            # Nobody puts the alarm off for who is with a device by itself, perhaps for long.
            return now_ns + self._look_ns
        beat_ns = now_ns + BEAT_EVERY_NS
        return beat_ns if self._look_again_ns is None else min(beat_ns, self._look_again_ns)

    def _look_now(self) -> None:
        self._emit({"type": "look"})
        self._outlet.ring()

    def _handle(self, message: Message) -> None:
        match message["type"]:
            case "command":
                self._command(message["command"])
            case "restart":
                self._leave("library_mismatch", message["device"])
            case "part":
                self._start_part(str(message["device"]), int(message["number"]))
            case "look":
                # A round that stays away without being with a device has missed its time.
                self._crew.rouse()
                self._next_look_ns = 0
            case "flushed":
                pass
            case _:
                self._outlet.add(message)

    def _start_part(self, board: str, number: int) -> None:
        """Has a MIG device that was found looked after, once."""
        index, name = gpu_index(board), part_name(board, number)
        if index is not None and name not in self._workers:
            tell = functools.partial(self._tell, name)
            self._start([GpuSensor(index, self._library, self._clock, tell, number)])

    def _command(self, command: Message) -> None:
        """Passes a command of the daemon on to its device, or answers for one that is not there."""
        if command["cmd"] == "stop":
            self._leave("stop", None)
        device = str(command["device"])
        if self._crew.offer(device, command):
            return
        is_known = device in self._workers
        reason = "too many questions at once" if is_known else "no such device"
        if command["cmd"] == "energy":
            self._write(energy_message(int(command["id"]), Absent(reason)))
        elif command["cmd"] == "activity":
            self._write(activity_message(int(command["id"]), UNKNOWN))

    def _beat(self, now_ns: int, after_ns: int) -> bool:
        """Has a beat leave with the next `send`, if the last is so long ago; whether it is."""
        if now_ns - self._beat_ns < after_ns:
            return False
        self._beat_ns = now_ns
        ages_s = {
            name: round((now_ns - worker.sampled_ns) / NS_PER_S, 3)
            for name, worker in self._workers.items()
            if worker.opened and worker.sampled_ns is not None
        }
        beat = {"type": "beat", "t_ns": now_ns, "ages_s": ages_s, "dropped": self._outlet.dropped}
        self._outlet.add(beat)
        return True

    def _look_again(self, now_ns: int) -> None:
        """A driver that was not there at the start may be there now."""
        if self._look_again_ns is not None and now_ns >= self._look_again_ns:
            driver = self._open_library()
            if driver is not None:
                self._write(hello_message(driver, []))
                self._start(self._gpu_sensors(driver))

    def _leave_if_hung(self) -> None:
        """Ends the process when a driver call passed its deadline: nothing less frees the thread."""
        now_ns = self._clock.monotonic_ns()
        workers = [(w.busy_since_ns, w.overdue_ns, w) for w in self._workers.values()]
        hung = [(since, w) for since, until, w in workers if since and until and now_ns > until]
        if not hung:
            return
        # The one that has waited longest: others may hang only because it holds a lock.
        since_ns, worker = min(hung, key=lambda entry: entry[0])
        seconds = (now_ns - since_ns) / NS_PER_S
        detail = (
            f"the call has not returned for {seconds:.1f} s; `dmesg` may say why (Xid messages)"
        )
        fault = SensorFault(worker.sensor.call, "DEADLINE", Reaction.RESTART, detail)
        self._write(fault_message(worker.sensor.name, fault))
        self._leave("hung", worker.sensor.name)

    def _leave(self, reason: str, device: str | None) -> NoReturn:
        """Writes what the other devices have of their interval, says bye, and exits at once."""
        self._crew.relieve(0)
        until_ns = self._clock.monotonic_ns() + FLUSH_WAIT_NS
        flushing = {
            name
            for name, worker in self._workers.items()
            if worker.opened
            and worker.busy_since_ns is None
            and self._crew.offer(name, {"cmd": "flush"})
        }
        while flushing and (message := self._outlet.next(until_ns)) is not None:
            if message["type"] == "flushed":
                flushing.discard(message["device"])
            elif message["type"] not in ("command", "part", "restart", "look"):
                self._write(message)
        self._write({"type": "bye", "reason": reason, "device": device})
        os._exit(0)

    def _write(self, message: Message) -> None:
        self._outlet.add(message)
        self._outlet.send()

    def _listen(self) -> None:
        """Reads the daemon's commands; a closed pipe means that it died."""
        Alarm.spare_this_thread()
        lines = LineSplitter()
        while data := os.read(self._read_fd, 65536):
            for line in lines.feed(data):
                try:
                    command = parse_command(line)
                except ValueError:
                    self._outlet.dropped += 1
                else:
                    self._emit({"type": "command", "command": command})
            self._outlet.ring()
        os._exit(0)


def hello_message(driver: DriverInfo | None, devices: list[Message]) -> Message:
    """The child's first line, and again where a driver is found later."""
    return {
        "type": "hello",
        "pid": os.getpid(),
        "driver_version": driver.driver_version if driver else None,
        "nvml_version": driver.nvml_version if driver else None,
        "devices": devices,
    }


def die_with_parent() -> None:
    """Asks the kernel to kill this process when the thread that started it ends (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> NoReturn:
    """Reads the settings and serves."""
    die_with_parent()
    # What a driver's library prints must not end up between the lines of the wire.
    write_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The first line is read byte by byte, to leave what follows it to the listener.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)
        line += byte
    settings, quarantined = parse_settings(decode(line))
    SensorChild(settings, quarantined, SystemClock(), 0, write_fd).run()


if __name__ == "__main__":
    main()
