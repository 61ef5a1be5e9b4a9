"""InfluxDB 2.x and 3.x, and compatible databases: line protocol to /api/v2/write."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from costprobe.adapters.net.errors import DeliveryError, Misconfigured
from costprobe.adapters.net.secret import Secret, credentials_folder
from costprobe.adapters.sinks.influx_client import InfluxClient
from costprobe.adapters.sinks.influx_write import compress, is_compressed
from costprobe.adapters.sinks.settings import HttpSinkConfig
from costprobe.adapters.sinks.sink import Sink
from costprobe.adapters.system.outside_text import outside_text
from costprobe.core.clock import Clock
from costprobe.core.config.fields import Name

_VERSION_CHARS_MAX = 40


class InfluxV2Config(HttpSinkConfig):
    """A bucket of InfluxDB 2.x, a database of 3.x, or VictoriaMetrics."""

    api: Literal["v2"] = Field(
        description='"v2" for InfluxDB 2.x, 3.x and VictoriaMetrics; "v1" for InfluxDB 1.x.',
        examples=["v2"],
    )
    org: str = Field("", description="Organization.", examples=["ml"])
    bucket: str = Field(description="Bucket, or database of 3.x.", examples=["costprobe"])
    token_file: Path | None = Field(
        None,
        description="File with a token that may write.",
        examples=["/etc/costprobe/influxdb.token"],
    )
    token_credential: Name | None = Field(
        None,
        description="Name of the systemd credential with that token.",
        examples=["influxdb-token"],
    )

    @model_validator(mode="after")
    def _one_place_for_the_token(self) -> InfluxV2Config:
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        return self


class InfluxV2(Sink):
    """Writes to one bucket, through influxdb-client's write API.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
    """

    def __init__(self, config: InfluxV2Config, clock: Clock) -> None:
        self._config = config
        self._is_compressed = is_compressed(config)
        self._token = Secret(
            "token", config.token_file, config.token_credential, credentials_folder(os.environ)
        )
        self._client = InfluxClient(config, config.org, clock)

    def encode(self, points: bytes) -> bytes:
        """Return the body of a request for points in line protocol."""
        return compress(points) if self._is_compressed else points

    def post(self, body: bytes) -> None:
        """Write what `encode` returned; raises as `Sink.post` does."""
        self._client.use_token(self._token.read_ascii() if self._token.is_given else "")
        self._client.write(self._config.bucket, body, is_compressed=self._is_compressed)

    def check(self) -> str:
        """Write a comment, which the server checks for its token and bucket like any other line."""
        # InfluxDB 2 rejects an empty body.
        try:
            self.post(self.encode(b"# costprobe doctor"))
        except Misconfigured as error:
            # InfluxDB 1.6 has no such API: the message includes its version.
            raise Misconfigured(
                error.reason + self._claimed_version(), unauthorized=error.unauthorized
            ) from None
        return f"bucket {self._config.bucket} accepts writes{self._claimed_version()}"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _claimed_version(self) -> str:
        version = None
        # The problem is reported by the result of the write.
        with suppress(DeliveryError):
            version = self._client.version()
        shown = outside_text(version or "", _VERSION_CHARS_MAX)
        return f" (the server reports InfluxDB {shown})" if shown else ""
