"""The daemon's side of the sensor child's messages: readings, answers, faults, devices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from costprobe.adapters.sensors.protocol.messages import Message, SensorSettings, parse_reading
from costprobe.adapters.sensors.supervisor import events
from costprobe.adapters.sensors.supervisor.answers import PendingAnswers
from costprobe.adapters.sensors.supervisor.device_registry import DeviceRegistry
from costprobe.core.clock import Clock
from costprobe.core.records import Device, Event, Reading

log = logging.getLogger(__name__)

# Receives readings that arrived together, each with its device.
ReadingConsumer = Callable[[Sequence[tuple[Reading, Device]]], None]


class MessageHandler:
    """Handles the messages of successive children, in the thread that reads them.

    Args:
        settings: How long a device that hung is quarantined.
        on_event: Receives faults and recoveries.
        clock: CLOCK_MONOTONIC for intervals, UTC for events.

    Attributes:
        registry: The devices.
        faults: The faults reported so far.
        consumers: Receive the readings; readings without a consumer are discarded.
        answers: Hands the child's answers to the threads that wait for them.
        handshake: The last handshake; empty before the first.
        driver_faults: The reason for each vendor whose driver cannot be used.
        known: Set once a child has reported its devices.
        is_down: A child ended, and none has replaced it yet.
        callback_errors: Errors of consumers and of `on_event`, which are logged and otherwise ignored.
    """

    def __init__(
        self, settings: SensorSettings, on_event: Callable[[Event], None], clock: Clock
    ) -> None:
        self.registry = DeviceRegistry(settings)
        self.faults = events.FaultLog()
        self.consumers: tuple[ReadingConsumer, ...] = ()
        self.answers = PendingAnswers()
        self.handshake: Message = {}
        self.driver_faults: dict[str, str] = {}
        self.known = threading.Event()
        self.is_down = False
        self.callback_errors = 0
        self._on_event = on_event
        self._clock = clock
        self._handlers: dict[str, Callable[[Message], None]] = {
            "heartbeat": lambda message: self.registry.set_ages(message["ages_s"]),
            "energy": self.answers.take,
            "activity": self.answers.take,
            "selftest": self._take_selftest,
            "fault": self._take_fault,
            "drivers": lambda message: self._take_driver_faults(message["faults"]),
            "device": lambda message: self._add_device(message["device"]),
            "slices": lambda message: self._keep_slices(str(message["device"]), message["names"]),
            "handshake": self._take_handshake,
            "exit": self._take_exit,
        }

    def take(self, messages: Sequence[Message]) -> int:
        """Handle messages of the child that arrived together; return the number of malformed ones."""
        malformed = 0
        readings: list[tuple[Reading, Device]] = []
        for message in messages:
            try:
                if message["type"] != "reading":
                    self._act_on(message)
                    continue
                reading = parse_reading(message)
            except (AttributeError, KeyError, TypeError, ValueError):
                malformed += 1
                continue
            device = self.registry.get(reading.device)
            if device is not None:
                readings.append((reading, device))
        if readings:
            for consumer in self.consumers:
                self._call(consumer, readings)
        return malformed

    def _act_on(self, message: Message) -> None:
        """Handle one message.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: It does not follow the protocol.
        """
        handle = self._handlers.get(message["type"])
        if handle is None:
            raise ValueError("the protocol has no message of this type")
        handle(message)

    def _take_exit(self, message: Message) -> None:
        if message["reason"] == "hung" and message["device"]:
            now_ns = self._clock.monotonic_ns()
            self.registry.quarantine_hung(str(message["device"]), now_ns)

    def _take_handshake(self, message: Message) -> None:
        for device in message["devices"]:
            self._add_device(device)
        self.handshake = message
        self._take_driver_faults(message.get("driver_faults", {}))
        self.known.set()
        if self.is_down:
            self.is_down = False
            title = "sensors: the sensor process is running again"
            self.report(events.of_recovery(title, "", self._clock.time_ns()))

    def _take_driver_faults(self, faults: Message) -> None:
        before = self.driver_faults
        self.driver_faults = {str(vendor): str(fault) for vendor, fault in faults.items()}
        for vendor in sorted(before.keys() - self.driver_faults.keys()):
            title = f"sensors: the {vendor} driver works again"
            self.report(events.of_recovery(title, "", self._clock.time_ns()))

    def _take_selftest(self, message: Message) -> None:
        device, ratio = str(message["device"]), float(message["ratio"])
        suspect = bool(message["suspect"])
        if self.registry.set_selftest(device, ratio, suspect=suspect):
            now_ns = self._clock.time_ns()
            self.report(events.of_selftest(device, ratio, now_ns, suspect=suspect))

    def _add_device(self, message: Message) -> None:
        is_back = self.registry.add(message)
        name = str(message["name"])
        if is_back:
            title = f"{name}: {message['model']} responds again"
            self.report(events.of_recovery(title, name, self._clock.time_ns()))
        device = self.registry.get(name)
        if device is not None and not device.is_host:
            for cpu in self.registry.drop_fallback():
                self.report(events.of_replacement(cpu, self._clock.time_ns()))

    def _keep_slices(self, board: str, names: Sequence[str]) -> None:
        for name in self.registry.keep_slices(board, names):
            self.report(events.of_removal(name, self._clock.time_ns()))

    def _take_fault(self, message: Message) -> None:
        now_ns = self._clock.monotonic_ns()
        event = self.faults.event(message, now_ns, self._clock.time_ns())
        if event is not None:
            self.report(event)
        if message["reaction"] == "quarantine" and message["device"]:
            wait_s = float(message["retry_after_s"])
            self.registry.quarantine(message["device"], wait_s, now_ns)

    def report(self, event: Event) -> None:
        """Pass on an event."""
        self._call(self._on_event, event)

    def _call(self, callback: Callable[[Any], None], argument: object) -> None:
        try:
            callback(argument)
        except Exception:
            self.callback_errors += 1
            log.exception("a consumer of the sensors failed")
