"""Where figures that move come from: a file, a command or an HTTP endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from agent.config_fields import IS_URL, Duration, Section, key


class SourceConfig(Section):
    """A source of figures over time.

    Attributes:
        file: CSV or JSON of figures over time; read again when it changes.
        command: Program and arguments that write the same to standard output.
        url: An HTTP endpoint that answers with the same.
        every_s: Time between two looks in seconds.
        stale_after_s: Age in seconds beyond which the last known figure is stale.
    """

    file: Path | None = None
    command: tuple[str, ...] | None = Field(None, min_length=1, max_length=32)
    url: Annotated[str, Field(max_length=500), IS_URL] | None = None
    every_s: Duration = key("every", 300.0)
    stale_after_s: Duration = key("stale_after", 7200.0)

    @property
    def sources(self) -> int:
        """How many sources are named."""
        return sum(source is not None for source in (self.file, self.command, self.url))
