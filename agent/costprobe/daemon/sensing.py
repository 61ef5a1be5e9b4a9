"""The sensor child's settings, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from costprobe.adapters.sensors.protocol.messages import SensorSettings
from costprobe.adapters.sensors.settings import TelemetryConfig
from costprobe.adapters.serving.settings import ServiceConfig


def sensor_settings(
    telemetry: TelemetryConfig, services: Sequence[ServiceConfig] = ()
) -> SensorSettings:
    """The sensor child's settings.

    Args:
        telemetry: How the sensors are read.
        services: If one names its processes, the time of processes is read.
    """
    return SensorSettings(
        sample_every_s=telemetry.every_s,
        aggregate_every_s=telemetry.aggregate_s,
        deadline_s=telemetry.deadline_s,
        gpus=telemetry.gpus,
        cpu=telemetry.cpu,
        cpu_idle_w=telemetry.cpu_idle_w,
        cpu_max_w=telemetry.cpu_max_w,
        processes=any(service.processes for service in services),
    )
