"""Reload of the configuration file; an invalid file is rejected."""

from __future__ import annotations

from pathlib import Path

from costprobe.app.configuration import Config, load
from costprobe.core.config.load import ConfigError
from costprobe.core.records import Event


class ReloadError(Exception):
    """The configuration file cannot replace the configuration in force; the text gives the reason."""


def reloaded(path: Path, current: Config) -> Config:
    """Return the current configuration of the file.

    Args:
        path: The configuration file.
        current: The configuration in force.

    Raises:
        ReloadError: The file is not valid, or changes a key that needs a restart.
    """
    try:
        config = load(path)
    except ConfigError as error:
        raise ReloadError(str(error)) from error
    if config.store.path != current.store.path:
        raise ReloadError(f"{path}: store.path: needs a restart of the service")
    return config


def needs_new_sensor(before: Config, after: Config) -> bool:
    """Return whether the sensor child has to be restarted for another configuration."""
    return before.sensor_settings != after.sensor_settings


def refusal_event(reason: str, time_ns: int) -> Event:
    """Return the event of a rejected configuration.

    Args:
        reason: Reason of the rejection.
        time_ns: UTC in ns.
    """
    return Event(
        kind="fault",
        severity="warning",
        title="the new configuration was rejected; the old one stays in force",
        time_ns=time_ns,
        detail=reason,
        cause="configuration",
    )
