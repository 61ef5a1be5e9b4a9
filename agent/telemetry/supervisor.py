"""The daemon's hold on the sensor child: starts it, listens, and kills it when it hangs."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from agent.clock import Clock
from agent.model import Device, Energy, Event, Reading
from agent.telemetry.activity import UNKNOWN, Activity
from agent.telemetry.backoff import Backoff
from agent.telemetry.conversation import Conversation, how_it_ended
from agent.telemetry.energy import Absent
from agent.telemetry.process import ChildProcess
from agent.telemetry.questions import Questions
from agent.telemetry.reporter import Reporter
from agent.telemetry.roster import Roster
from agent.telemetry.wire import (
    Message,
    SensorSettings,
    parse_activity,
    parse_energy,
    settings_message,
)

# -P: the folder that a command is run in is nothing to import from.
CHILD_COMMAND: Final = (sys.executable, "-P", "-m", "agent.telemetry.child")

REAP_WAIT_S: Final = 2.0
ABANDONED_MAX: Final = 16
RESTART_MAX_S: Final = 60.0
RESTART_RESET_S: Final = 300.0
OWN_PIDS_MAX: Final = 256

log = logging.getLogger(__name__)


class SensorSupervisor:
    """Keeps one sensor child running and speaks with it.

    One thread starts the child, reads it and watches its deadline; any thread may ask. The
    callbacks run in that one thread, in the order of the child's lines.

    Args:
        command: How to start the child; CHILD_COMMAND in production.
        settings: What to read, and how often.
        on_readings: Takes the devices' aggregates, those together that came together.
        on_event: Takes faults and recoveries.
        clock: CLOCK_MONOTONIC for deadlines, UTC for events.
        restart_first_s: Wait before the first restart in s; it doubles up to a minute.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: SensorSettings,
        on_readings: Callable[[Sequence[Reading]], None],
        on_event: Callable[[Event], None],
        clock: Clock,
        restart_first_s: float = 1.0,
    ) -> None:
        self._command = tuple(command)
        self._settings = settings
        self._clock = clock
        self._restart = Backoff(restart_first_s, RESTART_MAX_S, RESTART_RESET_S)
        self._roster = Roster(settings)
        self._questions = Questions()
        self._conversation: Conversation | None = None
        self._abandoned: list[ChildProcess] = []
        self._hello: Message = {}
        self._reporter = Reporter(on_readings, on_event, clock)
        self._down = False
        self._starts = 0
        self._rubbish_lines = 0
        self._stopping = threading.Event()
        self._known = threading.Event()
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def start(self) -> None:
        """Starts the thread that starts the child."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Lets the child hand over what it has, ends it, and waits for that.

        Args:
            timeout_s: After so long, in s, it is killed.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.write(self._wake_write_fd, b"x")
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        conversation = self._conversation
        if self._thread.is_alive() and conversation is not None:
            conversation.process.kill()
            self._thread.join(2 * REAP_WAIT_S)
        if not self._thread.is_alive():
            os.close(self._wake_read_fd)
            os.close(self._wake_write_fd)

    def is_alive(self) -> bool:
        """Whether the thread that follows the child runs, or has yet to be started."""
        return self._thread.ident is None or self._thread.is_alive()

    def devices(self) -> tuple[Device, ...]:
        """Every device that was seen since the start, also one that is set aside now."""
        return self._roster.devices()

    def wait_for_devices(self, timeout_s: float) -> tuple[Device, ...]:
        """The devices, once a child has said hello; what is known after the timeout in s."""
        self._known.wait(timeout_s)
        return self._roster.devices()

    def has_looked(self) -> bool:
        """Whether a child has said which devices there are, if any."""
        return self._known.is_set()

    def is_available(self, device: str) -> bool:
        """Whether a device is known and not set aside."""
        return self._roster.is_available(device)

    @property
    def restarts(self) -> int:
        """How often a child was started after the first."""
        return max(0, self._starts - 1)

    def watch(self, device: str, until_ns: int) -> bool:
        """Has every metric read at every sample; False where that cannot be.

        Args:
            device: Name of the device.
            until_ns: CLOCK_MONOTONIC ns; one that has passed ends it.
        """
        return self._send({"cmd": "watch", "device": device, "until_ns": until_ns})

    def mark(self, device: str) -> bool:
        """Has the energy counter read now, at an edge of a window; False where that cannot be."""
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
        """Energy of a device between two instants, or why there is none.

        Args:
            device: Name of the device.
            start_ns: CLOCK_MONOTONIC ns at which the region began.
            end_ns: CLOCK_MONOTONIC ns at which it ended.
            steady_start_ns: From when on the load was the region's.
            steady_end_ns: Until when it was.
            timeout_s: How long to wait in s; polled devices answer after the next sample.
        """
        question = {
            "cmd": "energy",
            "device": device,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "steady_start_ns": steady_start_ns,
            "steady_end_ns": steady_end_ns,
        }
        answer = self._ask(question, timeout_s)
        return Absent(answer) if isinstance(answer, str) else parse_energy(answer)

    def activity(
        self,
        device: str,
        start_ns: int,
        end_ns: int,
        own_pids: Collection[int],
        timeout_s: float = 5.0,
    ) -> Activity:
        """A device's conditions in a window: who else used it, what held it back, how it ran.

        Args:
            device: Name of the device.
            start_ns: CLOCK_MONOTONIC ns at which the window began.
            end_ns: CLOCK_MONOTONIC ns at which it ended.
            own_pids: Processes that belong to the measurement, at most 256.
            timeout_s: How long to wait in s; the answer comes with the first sample after it.
        """
        question = {
            "cmd": "activity",
            "device": device,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "own_pids": sorted(own_pids)[:OWN_PIDS_MAX],
        }
        answer = self._ask(question, timeout_s)
        return UNKNOWN if isinstance(answer, str) else parse_activity(answer)

    def status(self) -> dict[str, Any]:
        """What the sensors are doing, for `infercost status`."""
        conversation = self._conversation
        state = "waiting"
        if self._stopping.is_set():
            state = "stopped"
        elif conversation is not None:
            state = "running" if conversation.said_hello.is_set() else "starting"
        rubbish_now = conversation.rubbish_lines if conversation else 0
        return {
            "state": state,
            "pid": conversation.process.pid if conversation else None,
            "driver_version": self._hello.get("driver_version"),
            "nvml_version": self._hello.get("nvml_version"),
            "restarts": self.restarts,
            "rubbish_lines": self._rubbish_lines + rubbish_now,
            "callback_errors": self._reporter.callback_errors,
            "unkillable": len(self._abandoned),
            "last_fault": self._reporter.last_fault,
            "devices": self._roster.status(self._clock.monotonic_ns()),
        }

    def _send(self, message: Message) -> bool:
        conversation = self._conversation
        if conversation is None or not conversation.said_hello.is_set():
            return False
        return conversation.process.send(message)

    def _ask(self, question: Message, timeout_s: float) -> Message | str:
        return self._questions.ask(lambda id_: self._send({**question, "id": id_}), timeout_s)

    def _run(self) -> None:
        """Starts one child after the other until told to stop."""
        while not self._stopping.is_set():
            try:
                how, last_words = self._live_once()
            except Exception:
                log.exception("the sensor process could not be followed")
                how, last_words = "could not be followed, and was killed", ""
            self._questions.fail_all("the sensor process ended")
            if self._stopping.is_set():
                break
            self._down = True
            wait_s = self._restart.next_s(self._clock.monotonic_ns())
            self._reporter.ended(how, last_words, self._restart.failures, wait_s)
            self._stopping.wait(wait_s)

    def _live_once(self) -> tuple[str, str]:
        """One child's life: how it ended (empty where it said so itself), and its last words."""
        self._abandoned = [child for child in self._abandoned if child.reap(0) is None]
        try:
            process = ChildProcess(self._command)
        except OSError as error:
            return f"cannot be started: {error}", ""
        self._starts += 1
        conversation = Conversation(
            process,
            self._settings,
            self._clock,
            self._hear,
            self._wake_read_fd,
            on_pause=self._reporter.pass_on,
        )
        quarantined = self._roster.quarantined(self._clock.monotonic_ns())
        process.send(settings_message(self._settings, quarantined))
        self._conversation = conversation
        how = "was given up"
        try:
            how = conversation.run()
        finally:
            self._conversation = None
            self._rubbish_lines += conversation.rubbish_lines + process.overlong_lines
            status = process.end(REAP_WAIT_S if how in ("", "ended") else 0, REAP_WAIT_S)
            process.close()
        if status is None:
            self._abandoned = [*self._abandoned, process][-ABANDONED_MAX:]
        if how == "ended" or status is None:
            how = how_it_ended(status)
        return how, process.last_words()

    def _hear(self, message: Message) -> None:
        """Acts on a message of the child.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: It is not as the wire says.
        """
        match message["type"]:
            case "beat":
                self._roster.beat(message["ages_s"])
            case "reading":
                self._reporter.reading(message)
            case "energy" | "activity":
                self._questions.answer(message)
            case "selftest":
                self._tested(message)
            case "fault":
                self._fault(message)
            case "device":
                self._appeared(message["device"])
            case "hello":
                self._greet(message)
            case "bye":
                if message["reason"] == "hung":
                    self._roster.hung(str(message["device"]), self._clock.monotonic_ns())
            case _:
                raise ValueError("a message of a type that the wire does not know")

    def _greet(self, message: Message) -> None:
        for device in message["devices"]:
            self._appeared(device)
        self._hello = message
        self._known.set()
        if self._down:
            self._down = False
            self._reporter.recovered("sensors: the sensor process runs again")

    def _tested(self, message: Message) -> None:
        name, ratio = str(message["device"]), float(message["ratio"])
        if self._roster.tested(name, ratio, suspect=bool(message["suspect"])):
            self._reporter.tested(name, ratio, suspect=bool(message["suspect"]))

    def _appeared(self, message: Message) -> None:
        if self._roster.appeared(message):
            name = str(message["name"])
            self._reporter.recovered(f"{name}: {message['model']} answers again", name)

    def _fault(self, message: Message) -> None:
        self._reporter.fault(message)
        if message["reaction"] == "quarantine" and message["device"]:
            wait_s, now_ns = float(message["retry_after_s"]), self._clock.monotonic_ns()
            self._roster.set_aside(message["device"], wait_s, now_ns)
