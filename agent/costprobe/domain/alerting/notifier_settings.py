"""The configuration that all notifiers share."""

from __future__ import annotations

from pydantic import Field

from costprobe.core.config.fields import Duration, Level, Match, Name, Section, key


class NotifierConfig(Section):
    """Options of all notifiers: which alerts they receive, how often, and for how long."""

    name: Name = Field(
        description="Name of the notifier in rules and commands.", examples=["pager"]
    )
    kind: str = Field(
        description="Kind of notifier; each kind narrows it to its own name.", examples=["webhook"]
    )
    match: Match = Field(
        default_factory=dict,
        description="Incidents that it receives: a pattern for each label.",
        examples=[{"severity": "critical"}],
    )
    min_severity: Level = Field("info", description="Lowest severity that it receives.")
    send_resolved: bool = Field(
        True, description="Whether it is notified when an incident is resolved."
    )
    repeat_s: Duration | None = key(
        "repeat",
        None,
        description="Interval at which a firing incident is sent again; by default never.",
        examples=["4h"],
    )
    timeout_s: Duration = key("timeout", 10.0, description="Timeout of one attempt.")
    rate_per_minute: int = Field(
        30,
        ge=1,
        le=6000,
        description="Most messages a minute on average; as many may be sent at once.",
    )
    keep_s: Duration = key(
        "keep",
        86400.0,
        description="How long a message is retried before it is dropped and counted.",
    )
