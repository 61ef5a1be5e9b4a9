"""Steps of the wall clock, and times in which the process did not run: detection, once per process."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from costprobe.core.clock import Clock, suspended_ns
from costprobe.core.records import NS_PER_S

logger = logging.getLogger(__name__)

LEAP_NS: Final = 30 * 86_400 * NS_PER_S
# Smaller differences are slewing and leap seconds.
TOLERANCE_NS: Final = 2 * NS_PER_S
# A main thread that wakes later than expected by this was stopped: no load of a host delays it so.
LATE_NS: Final = 5 * NS_PER_S
# Gaps that are kept until they are reported.
GAPS_MAX: Final = 100


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


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which this process did not run.

    Attributes:
        start_ns: UTC in ns after which it did not run.
        end_ns: UTC in ns at which it ran again.
        is_suspension: Whether the host was suspended; otherwise the process was stopped.
    """

    start_ns: int
    end_ns: int
    is_suspension: bool

    @property
    def length_s(self) -> float:
        """Its length in s."""
        return (self.end_ns - self.start_ns) / NS_PER_S


class ClockMonitor:
    """Detect steps of the wall clock, suspensions of the host, and stops of this process.

    A process has one. Code that depends on the wall clock calls `check` first; the first
    call after a step notifies every listener, and concurrent calls wait until that is done. A gap is
    a step for the listeners, too: no duration includes it.

    Args:
        clock: The host's clocks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = clock.time_ns() - clock.monotonic_ns()
        self._suspended_ns = suspended_ns(clock)
        self._checked_ns = clock.monotonic_ns()
        self._expected_ns: int | None = None
        self._listeners: list[Callable[[ClockStep], None]] = []
        self._gaps: deque[Gap] = deque(maxlen=GAPS_MAX)
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

    def expect(self, within_s: float) -> None:
        """Declare that the main thread will call `woke` within a time, unless the process is stopped."""
        with self._lock:
            self._checked_ns = self._clock.monotonic_ns()
            self._expected_ns = self._checked_ns + int(within_s * NS_PER_S)

    def woke(self) -> None:
        """End what `expect` began, after a check."""
        self.check()
        with self._lock:
            self._expected_ns = None

    def gaps(self) -> list[Gap]:
        """Return and remove the gaps that were detected, oldest first."""
        with self._lock:
            gaps = list(self._gaps)
            self._gaps.clear()
            return gaps

    def is_stepped(self) -> bool:
        """Return whether `check` is about to notify the listeners; takes no lock."""
        return self._missed() != (0, 0, 0)

    def check(self) -> None:
        """Notify the listeners if the wall clock was stepped, or the process did not run, since the last call."""
        with self._lock:
            now_ns = self._clock.time_ns()
            by_ns, asleep_ns, stopped_ns = self._missed()
            self._checked_ns = self._clock.monotonic_ns()
            if stopped_ns:
                self._expected_ns = None
                self._gaps.append(Gap(now_ns - stopped_ns, now_ns, is_suspension=False))
                logger.warning("this process did not run for %.0f s", stopped_ns / NS_PER_S)
                self._notify(ClockStep(min(stopped_ns, LEAP_NS), now_ns))
            self._offset_ns += by_ns
            self._suspended_ns += asleep_ns
            if asleep_ns:
                self._gaps.append(Gap(now_ns - asleep_ns, now_ns, is_suspension=True))
                logger.warning("the host was suspended for %.0f s", asleep_ns / NS_PER_S)
            if abs(by_ns - asleep_ns) > TOLERANCE_NS:
                stepped_s = (by_ns - asleep_ns) / NS_PER_S
                logger.warning("the wall clock was stepped by %+.1f s", stepped_s)
            if by_ns or asleep_ns:
                self._notify(ClockStep(by_ns, now_ns))

    def _missed(self) -> tuple[int, int, int]:
        """Return by how much the wall clock was stepped, the host suspended and this process stopped.

        In ns since the last check; 0 for what is too small.
        """
        now_ns, expected_ns = self._clock.monotonic_ns(), self._expected_ns
        by_ns = self._clock.time_ns() - now_ns - self._offset_ns
        asleep_ns = suspended_ns(self._clock) - self._suspended_ns
        is_late = expected_ns is not None and now_ns - expected_ns > LATE_NS
        return (
            by_ns if abs(by_ns) > TOLERANCE_NS else 0,
            asleep_ns if asleep_ns > TOLERANCE_NS else 0,
            now_ns - self._checked_ns if is_late else 0,
        )

    def _notify(self, step: ClockStep) -> None:
        for listener in self._listeners:
            listener(step)
