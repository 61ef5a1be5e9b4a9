"""The source of values that change over time: a file, a command or an HTTP endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from costprobe.core.config.fields import IS_URL, Duration, Section, key


class SourceConfig(Section):
    """A source of values that change over time."""

    file: Path | None = Field(
        None,
        description="CSV or JSON file of values over time; read again when it changes.",
        examples=["/var/lib/prices/spot.csv"],
    )
    command: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        max_length=32,
        description="Program and arguments that print the same to standard output.",
        examples=[["/usr/local/bin/spot-price"]],
    )
    url: Annotated[str, Field(max_length=500), IS_URL] | None = Field(
        None,
        description="HTTP endpoint that returns the same.",
        examples=["https://prices.example.com/spot"],
    )
    every_s: Duration = key("every", 300.0, description="Time between two reads.")
    stale_after_s: Duration = key(
        "stale_after", 7200.0, description="Age after which the last known value is stale."
    )

    @property
    def sources(self) -> int:
        """Number of sources (file, command, url) that are configured."""
        return sum(source is not None for source in (self.file, self.command, self.url))
