"""Configuration of alerting and of maintenance windows: [alerting] and [[maintenance]].

Patterns select series, incidents and notifiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar

from pydantic import Field

from costprobe.core.config.fields import (
    IS_BARE_URL,
    ClockTime,
    Duration,
    Match,
    Name,
    Section,
    Zone,
    key,
)
from costprobe.core.periods import WEEKDAYS, Weekday
from costprobe.core.records import Severity

SEVERITIES: Mapping[Severity, int] = {"info": 0, "warning": 1, "critical": 2}


def matches(patterns: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether every pattern matches its label; * and ? are wildcards, a missing label is empty."""
    return all(fnmatchcase(labels.get(name, ""), pattern) for name, pattern in patterns.items())


class AlertingConfig(Section):
    """Settings that all rules share."""

    removed: ClassVar = {
        "flapping_changes": "an incident that changes its state six times within an hour is flapping",
        "flapping_window": "an incident that changes its state six times within an hour is flapping",
    }

    defaults: bool = Field(True, description="Whether the built-in rules apply.")
    public_url: Annotated[str, IS_BARE_URL] | None = Field(
        None,
        description="URL at which people open the dashboard; alerts link to the page at their time.",
        examples=["http://gpu-01.example.com:9470"],
    )
    evaluate_every_s: Duration = key(
        "evaluate_every", 10.0, description="Time between two evaluations of all rules."
    )


class MaintenanceConfig(Section):
    """A weekly window in which matching incidents send no notifications.

    A window whose end is at or before its start ends on the next day.
    """

    name: Name = Field(description="Name of the window.", examples=["nightly"])
    match: Match = Field(
        default_factory=dict,
        description="Incidents that the window applies to: a pattern for each label.",
        examples=[{"host": "gpu-*"}],
    )
    days: tuple[Weekday, ...] = Field(
        WEEKDAYS,
        min_length=1,
        description="Days on which the window starts.",
        examples=[["mon", "tue", "wed", "thu", "fri"]],
    )
    start: ClockTime = Field(description="Start, in `timezone`.", examples=["02:00"])
    end: ClockTime = Field(description="End, in `timezone`.", examples=["04:00"])
    timezone: Zone = Field(
        "UTC",
        description="IANA name of the time zone of `start` and `end`.",
        examples=["Europe/Berlin"],
    )
