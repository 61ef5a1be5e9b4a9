"""The workers of the devices that exist: a board's slices come and go while the child runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from costprobe.adapters.sensors.child.sensor import Sensor
from costprobe.adapters.sensors.child.worker import DeviceWorker, Emit
from costprobe.adapters.sensors.protocol.messages import Message, Quarantined, SensorSettings
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S


class WorkerPool:
    """One worker for each device; one thread changes it, and others read it.

    Args:
        settings: What the daemon asks for.
        quarantined: Devices not to access at first.
        clock: The host's clocks.
        emit: Takes the messages of the workers.

    Attributes:
        workers: The workers by the names of their devices.
    """

    def __init__(
        self,
        settings: SensorSettings,
        quarantined: Sequence[Quarantined],
        clock: Clock,
        emit: Emit,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._retry_after_s = {entry.device: entry.retry_after_s for entry in quarantined}
        # Rows end at multiples of their length since 1970 UTC, as the daemon's jobs begin.
        rows_ns = int(settings.aggregate_s * NS_PER_S)
        self._grid_ns = clock.monotonic_ns() - clock.time_ns() % rows_ns
        self._workers: dict[str, DeviceWorker] = {}
        self.workers: Mapping[str, DeviceWorker] = MappingProxyType(self._workers)
        # Names of the slices of each board.
        self._slices: dict[str, set[str]] = {}

    def start(self, sensors: Sequence[Sensor]) -> None:
        """Start a worker for each device that has none, and end those that these replace."""
        if not all(sensor.is_fallback for sensor in sensors):
            for name, worker in [*self._workers.items()]:
                if worker.sensor.is_fallback:
                    del self._workers[name]
                    worker.offer({"cmd": "end"})
        for sensor in sensors:
            if sensor.name not in self._workers:
                worker = DeviceWorker(
                    sensor,
                    self._settings,
                    self._clock,
                    self._emit,
                    self._grid_ns,
                    self._retry_after_s.pop(sensor.name, None),
                )
                self._workers[sensor.name] = worker
                worker.start()

    def keep_slices(self, board: str, sensors: Sequence[Sensor]) -> Message:
        """Have workers for exactly these slices of a board; return the message that names them."""
        names = {sensor.name for sensor in sensors}
        for name in self._slices.get(board, set()) - names:
            if (worker := self._workers.pop(name, None)) is not None:
                worker.offer({"cmd": "end"})
        self._slices[board] = names
        self.start(sensors)
        return {"type": "slices", "device": board, "names": sorted(names)}

    def drop_slice(self, sensor: Sensor) -> None:
        """Drop the worker of a destroyed slice; its board reports whether another took its place."""
        worker = self._workers.get(sensor.name)
        if worker is not None and worker.sensor is sensor:
            del self._workers[sensor.name]
            self.relist(sensor.parent)

    def relist(self, board: str) -> None:
        """Have a board report its slices now."""
        if (worker := self._workers.get(board)) is not None:
            worker.offer({"cmd": "slices"})
