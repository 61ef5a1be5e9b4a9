"""Steps of the wall clock: detection, once per process, and the adjustment of stored instants."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

logger = logging.getLogger(__name__)

LEAP_NS: Final = 30 * 86_400 * NS_PER_S
# Smaller differences are slewing and leap seconds.
TOLERANCE_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A step of the wall clock.

    A stored instant that lies in the future after the step was read while the wall clock was ahead:
    it is shifted by the step. An instant in the past is kept, as the rows of that time are; the host
    may have been suspended. A forward step by more than LEAP_NS is no suspension: the wall clock is
    or was wrong, and every instant is shifted.

    Attributes:
        by_ns: Size of the step in ns; negative for back.
        now_ns: UTC in ns after the step.
    """

    by_ns: int
    now_ns: int

    def moves(self, time_ns: float) -> bool:
        """Return whether a stored instant, UTC in ns, is shifted by the step."""
        return time_ns > self.now_ns if self.by_ns < 0 else self.by_ns > LEAP_NS

    def of_ns(self, time_ns: int) -> int:
        """Return a stored instant, UTC in ns, adjusted for the step."""
        return time_ns + self.by_ns if self.moves(time_ns) else time_ns

    def of_document(self, document: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON document after the step: its instants stand under keys ending in `_at_ns`."""
        if isinstance(document, Mapping):
            return {
                key: self._of_instants(value) if key.endswith("_at_ns") else self.of_document(value)
                for key, value in document.items()
            }
        if isinstance(document, list | tuple):
            return [self.of_document(value) for value in document]
        return document

    def _of_instants(self, instants: Any) -> Any:  # noqa: ANN401 - an instant, or several
        """Move an instant, or all of a list or of a mapping; None stays."""
        if isinstance(instants, Mapping):
            return {key: self._of_instants(value) for key, value in instants.items()}
        if isinstance(instants, list | tuple):
            return [self._of_instants(value) for value in instants]
        return None if instants is None else self.of_ns(instants)

    def of_s(self, time_s: float) -> float:
        """Return a stored instant, UTC in s, adjusted for the step."""
        return time_s + self.by_ns / NS_PER_S if self.moves(time_s * NS_PER_S) else time_s


class ClockMonitor:
    """Detect steps of the wall clock by comparing it with CLOCK_MONOTONIC.

    A process has one. Code that depends on the wall clock calls `check` first; the first
    call after a step notifies every listener, and concurrent calls wait until that is done.

    Args:
        clock: The host's clocks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = clock.time_ns() - clock.monotonic_ns()
        self._listeners: list[Callable[[ClockStep], None]] = []
        self._lock = Lock()

    def subscribe(self, listener: Callable[[ClockStep], None]) -> None:
        """Call a listener at every step, on the thread that detects it."""
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[ClockStep], None]) -> None:
        """Stop calling a listener; one that is not subscribed is ignored."""
        with self._lock:
            self._listeners = [
                registered for registered in self._listeners if registered != listener
            ]

    def check(self) -> None:
        """Notify the listeners if the wall clock was stepped since the last call."""
        with self._lock:
            now_ns = self._clock.time_ns()
            offset_ns = now_ns - self._clock.monotonic_ns()
            by_ns = offset_ns - self._offset_ns
            if abs(by_ns) <= TOLERANCE_NS:
                return
            self._offset_ns = offset_ns
            logger.warning("the wall clock was stepped by %+.1f s", by_ns / NS_PER_S)
            for listener in self._listeners:
                listener(ClockStep(by_ns, now_ns))
