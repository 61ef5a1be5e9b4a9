"""The keys that all sinks share in the section [[sink]]."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from costprobe.adapters.net.settings import (
    KEY_HEADER,
    CaFile,
    Headers,
    KeyCredential,
    KeyFile,
    KeyHeader,
    check_headers,
)
from costprobe.core.config.fields import IS_BARE_URL, Duration, Name, Section, key, url_matching


class SinkConfig(Section):
    """One database to which the series are pushed."""

    name: Name = Field(
        "influxdb",
        description="Name of the sink in commands, faults and alerts.",
        examples=["influxdb"],
    )
    api: str = Field(
        description="Kind of sink.",
        examples=["v2"],
    )
    from_beginning: bool = Field(
        True, description="Whether a new sink receives the rows that are already stored."
    )
    batch_points: int = Field(
        5000,
        ge=1,
        le=50_000,
        description=(
            "Most points in a request; reduced after a failure until the server keeps up."
        ),
    )
    backlog: Literal["in_order", "important_first"] = Field(
        "in_order",
        description=(
            "What a backlog sends first: the oldest rows, or the newest rows that are "
            "neither `device` nor `agent`."
        ),
    )
    drain_points_per_s: int = Field(
        100_000,
        ge=10,
        le=10_000_000,
        description="Most points a second of a backlog sent alongside live data.",
    )
    max_backlog_points: int = Field(
        20_000_000,
        ge=1000,
        description=(
            "Most queued points; beyond it the oldest device rows are thinned to one a "
            "minute, then the oldest rows are dropped and counted."
        ),
    )
    flush_every_s: Duration = key(
        "flush_every", 10.0, description="Time between two requests while there is no backlog."
    )


class HttpSinkConfig(SinkConfig):
    """One database to which the series are pushed over HTTP."""

    # Without a query, which may contain a key that messages would show.
    url: Annotated[str, IS_BARE_URL] = Field(
        description="Address of the server, without user and query.",
        examples=["http://127.0.0.1:8086"],
    )
    headers: Headers = Field(default_factory=dict)
    key_file: KeyFile = None
    key_credential: KeyCredential = None
    key_header: KeyHeader = KEY_HEADER
    ca_file: CaFile = None
    proxy: (
        Annotated[
            str,
            url_matching(
                r"https?://[^/@\s]+/?", "an http:// or https:// URL without user and path"
            ),
        ]
        | None
    ) = Field(
        None,
        description="URL of an HTTP proxy; those of the environment are not used.",
        examples=["http://proxy.example.com:3128"],
    )
    timeout_s: Duration = key("timeout", 10.0, description="Timeout of each step of a request.")

    @model_validator(mode="after")
    def _headers_are_further_ones(self) -> HttpSinkConfig:
        check_headers(self)
        return self
