"""The sensor child's settings, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from agent.config import TelemetryConfig
from agent.config_service import ServiceConfig
from agent.telemetry.wire import SensorSettings


def sensor_settings(
    telemetry: TelemetryConfig, services: Sequence[ServiceConfig] = ()
) -> SensorSettings:
    """What the operator said of telemetry, as the sensor child is told.

    Args:
        telemetry: How the sensors are read.
        services: Where one names its processes, their time is asked for.
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
