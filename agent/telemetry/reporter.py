"""Hands the daemon what the sensor child said, and keeps the daemon's troubles from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from agent.clock import Clock
from agent.model import Event, Reading
from agent.telemetry import events
from agent.telemetry.wire import Message, parse_reading

log = logging.getLogger(__name__)


class Reporter:
    """Calls the daemon's two callbacks; one that fails is counted, and ends nothing.

    Args:
        on_readings: Takes the devices' aggregates, those together that came together.
        on_event: Takes faults and recoveries.
        clock: Gives events their time, and the CLOCK_MONOTONIC for "not again so soon".

    Attributes:
        callback_errors: How often a callback failed.
        last_fault: Title of the last fault that can be mended, told or not; empty where there was
            none.
    """

    def __init__(
        self,
        on_readings: Callable[[Sequence[Reading]], None],
        on_event: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        self.callback_errors = 0
        self._on_readings = on_readings
        self._readings: list[Reading] = []
        self._on_event = on_event
        self._clock = clock
        self._faults = events.FaultLog()

    @property
    def last_fault(self) -> str:
        """Title of the last fault that can be mended, told or not; empty where there was none."""
        return self._faults.last.title if self._faults.last else ""

    def reading(self, message: Message) -> None:
        """Takes a `reading` line, for `pass_on`.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        self._readings.append(parse_reading(message))

    def pass_on(self) -> None:
        """Passes on the readings since the last time, together: they are kept in one commit."""
        readings, self._readings = self._readings, []
        if readings:
            self._guard(lambda: self._on_readings(readings))

    def fault(self, message: Message) -> None:
        """Passes a `fault` line on as an event, unless the same was told lately.

        Raises:
            KeyError: The line lacks a key.
        """
        now_ns, time_ns = self._clock.monotonic_ns(), self._clock.time_ns()
        event = self._faults.take(message, now_ns, time_ns)
        if event is not None:
            self._guard(lambda: self._on_event(event))

    def ended(self, how: str, last_words: str, failures: int, wait_s: float) -> None:
        """Tells that the child ended: the first, second, fourth, eighth ... time of a series.

        Args:
            how: What happened to it, as a clause; empty where it said so itself.
            last_words: The end of what it said on stderr.
            failures: How often in a row.
            wait_s: When it is started again, in s.
        """
        if how and failures & (failures - 1) == 0:
            event = events.of_end(how, last_words, failures, wait_s, self._clock.time_ns())
            self._guard(lambda: self._on_event(event))

    def recovered(self, title: str, device: str = "") -> None:
        """Tells that a device, or the whole child, is back."""
        event = events.of_recovery(title, device, self._clock.time_ns())
        self._guard(lambda: self._on_event(event))

    def tested(self, device: str, ratio: float, *, suspect: bool) -> None:
        """Tells that a device's energy sensors contradict each other, or no longer do."""
        event = events.of_selftest(device, ratio, self._clock.time_ns(), suspect=suspect)
        self._guard(lambda: self._on_event(event))

    def _guard(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            self.callback_errors += 1
            log.exception("a consumer of telemetry failed")
