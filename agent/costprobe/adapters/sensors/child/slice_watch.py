"""The slices of one board, such as MIG instances: reported when they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.protocol.messages import Message
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# A board may be repartitioned at any time.
SLICES_EVERY_NS: Final = 60 * NS_PER_S


class SliceWatch:
    """Finds the slices of a board, and reports them to the main thread, which keeps their workers.

    Args:
        sensor: Reads the board.
        clock: CLOCK_MONOTONIC.
        emit: Takes messages for the main thread.
    """

    def __init__(self, sensor: Sensor, clock: Clock, emit: Callable[[Message], None]) -> None:
        self._sensor = sensor
        self._clock = clock
        self._emit = emit
        self._found_ns = 0
        self._names: frozenset[str] | None = None

    def is_due(self, now_ns: int) -> bool:
        """Return whether the slices were found long ago.

        Args:
            now_ns: CLOCK_MONOTONIC ns.
        """
        return now_ns - self._found_ns >= SLICES_EVERY_NS

    def forget(self) -> None:
        """Report the slices after the next `find`, even if they are the same."""
        self._names = None

    def find(self) -> None:
        """Find the slices, and report them if they changed; a slice has none.

        Raises:
            SensorFault: The driver failed.
        """
        self._found_ns = self._clock.monotonic_ns()
        if self._sensor.parent or (slices := self._sensor.slices()) is None:
            return
        names = frozenset(sensor.name for sensor in slices)
        if names != self._names:
            self._names = names
            self._emit({"type": "slices", "device": self._sensor.name, "sensors": slices})
