"""The devices of this host, from a short-lived sensor child."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from costprobe.adapters.sensors.supervisor import CHILD_COMMAND, SensorSupervisor
from costprobe.core.clock import SystemClock
from costprobe.core.records import Device, Event
from costprobe.devices.settings import TelemetryConfig

TIMEOUT_S = 15.0


@contextmanager
def short_lived_sensor(
    telemetry: TelemetryConfig,
    events: list[Event] | None = None,
    known_models: Sequence[str] = (),
) -> Iterator[SensorSupervisor]:
    """Start a sensor child, wait for its devices, and stop it at the end of the block.

    Args:
        telemetry: Which devices to look for.
        events: Receives the faults.
        known_models: Models of the boards that the store has of this host.
    """
    settings = replace(telemetry.sensor_settings(processes=False), known_models=known_models)
    found = list[Event]() if events is None else events
    sensor = SensorSupervisor(CHILD_COMMAND, settings, found.append, SystemClock())
    sensor.start()
    try:
        sensor.wait_for_devices(TIMEOUT_S)
        yield sensor
    finally:
        sensor.stop(1.0)


def discovered_devices(telemetry: TelemetryConfig | None = None) -> tuple[Device, ...]:
    """Return the devices of this host.

    Args:
        telemetry: Which devices to look for; by default those of demo mode.
    """
    with short_lived_sensor(telemetry or TelemetryConfig()) as sensor:
        return sensor.devices()
