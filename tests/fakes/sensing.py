"""Settings of a sensor child."""

from dataclasses import replace

from costprobe.devices.settings import TelemetryConfig


def sensor_settings(**changed):
    """The settings of a host without a configuration file, with changes."""
    return replace(TelemetryConfig().sensor_settings(processes=False), **changed)
