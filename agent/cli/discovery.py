"""The devices of this host, asked of a sensor child that lives for the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent.clock import SystemClock
from agent.config import TelemetryConfig
from agent.daemon.sensing import sensor_settings
from agent.model import Device, Event, Reading
from agent.telemetry.supervisor import CHILD_COMMAND, SensorSupervisor

TIMEOUT_S = 15.0


def ignore_readings(readings: Sequence[Reading]) -> None:
    """For a caller that wants the devices and not their telemetry."""
    del readings


def ignore_event(event: Event) -> None:
    """For a caller that sees in the answer itself what went wrong."""
    del event


@contextmanager
def short_lived_sensor(telemetry: TelemetryConfig) -> Iterator[SensorSupervisor]:
    """A sensor child that has found its devices, stopped at the end of the block."""
    sensor = SensorSupervisor(
        CHILD_COMMAND, sensor_settings(telemetry), ignore_readings, ignore_event, SystemClock()
    )
    sensor.start()
    try:
        sensor.wait_for_devices(TIMEOUT_S)
        yield sensor
    finally:
        sensor.stop(1.0)


def discovered_devices(telemetry: TelemetryConfig | None = None) -> tuple[Device, ...]:
    """The devices of this host.

    Args:
        telemetry: Which of them are looked for; by default as without a configuration.
    """
    with short_lived_sensor(telemetry or TelemetryConfig()) as sensor:
        return sensor.devices()
