"""The sensor child of the configuration in force, and the devices that the daemon measures."""

from __future__ import annotations

import logging
from collections.abc import Callable

from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.protocol.messages import SensorSettings
from costprobe.adapters.sensors.supervisor.supervisor import CHILD_COMMAND, SensorSupervisor
from costprobe.adapters.system.signal_event import SignalFlag
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Device, Event

logger = logging.getLogger(__name__)

DEVICES_TIMEOUT_S = 8.0
DEVICES_POLL_S = 0.2
# Shortest time between two rebuilds for changed devices; it doubles while they keep changing.
REBUILD_FIRST_S = 5.0
REBUILD_MAX_S = 300.0
SENSOR_STOP_S = 1.0


class DeviceWatch:
    """Starts the sensor child, and follows the devices that it finds.

    Args:
        settings: The settings of the sensor child.
        on_event: Receives its faults and recoveries.
        clock: The host's clocks.
        stop: Set when the daemon stops.

    Attributes:
        sensor: The sensor child's supervisor.
        devices: The devices that are measured; empty before `start`.
    """

    def __init__(
        self,
        settings: SensorSettings,
        on_event: Callable[[Event], None],
        clock: Clock,
        stop: SignalFlag,
    ) -> None:
        self._on_event = on_event
        self._clock = clock
        self._stop = stop
        self.sensor = self._new_sensor(settings)
        self.devices: tuple[Device, ...] = ()
        self._rebuilds = Backoff(REBUILD_FIRST_S, REBUILD_MAX_S, reset_after_s=REBUILD_MAX_S)
        self._rebuild_ns = 0

    def start(self) -> None:
        """Start the sensor child, and wait for its devices."""
        self.sensor.start()
        self.devices = self._found()

    def replace(self, settings: SensorSettings) -> None:
        """Replace the sensor child by one with other settings."""
        self.stop()
        self.sensor = self._new_sensor(settings)
        self.start()

    def stop(self) -> None:
        """Stop the sensor child."""
        self.sensor.stop(SENSOR_STOP_S)

    def changed(self) -> bool:
        """Return whether other devices are measured from now on; less often while they keep changing.

        A change ends running probes, and MIG devices may be created and destroyed every second.
        """
        devices, now_ns = self.sensor.devices(), self._clock.monotonic_ns()
        if devices == self.devices or now_ns < self._rebuild_ns:
            return False
        logger.info("the devices changed: %s", ", ".join(device.name for device in devices))
        self._rebuild_ns = now_ns + int(self._rebuilds.next_s(now_ns) * NS_PER_S)
        self.devices = devices
        return True

    def _found(self) -> tuple[Device, ...]:
        """Wait for the sensor child's discovery, and return the devices known by then."""
        ends_ns = self._clock.monotonic_ns() + int(DEVICES_TIMEOUT_S * NS_PER_S)
        while self._clock.monotonic_ns() < ends_ns and not self._stop.is_set():
            devices = self.sensor.wait_for_devices(DEVICES_POLL_S)
            if self.sensor.has_looked():
                return devices
        return self.sensor.devices()

    def _new_sensor(self, settings: SensorSettings) -> SensorSupervisor:
        return SensorSupervisor(CHILD_COMMAND, settings, self._on_event, self._clock)
