"""InfluxDB 1.x: line protocol to /write."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from pydantic import Field, model_validator

from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.net.secret import Secret, credentials_folder
from costprobe.adapters.net.status import raise_for_status
from costprobe.adapters.sinks.influx_write import (
    HINTS,
    check_acknowledged,
    compress,
    http_client,
    is_compressed,
)
from costprobe.adapters.sinks.settings import HttpSinkConfig
from costprobe.adapters.sinks.sink import Sink
from costprobe.core.clock import Clock
from costprobe.core.config.fields import Name
from costprobe.core.records import NS_PER_S

_NO_SUCH_POLICY = b"retention policy not found"


class InfluxV1Config(HttpSinkConfig):
    """A database of InfluxDB 1.x."""

    api: Literal["v1"] = Field(description="InfluxDB 1.x.", examples=["v1"])
    database: str = Field(description="Database.", examples=["costprobe"])
    retention_policy: str | None = Field(
        None,
        description="Retention policy; by default that of the database.",
        examples=["autogen"],
    )
    user: str | None = Field(None, description="User.", examples=["costprobe"])
    password_file: Path | None = Field(
        None,
        description="File with the user's password.",
        examples=["/etc/costprobe/influxdb.password"],
    )
    password_credential: Name | None = Field(
        None,
        description="Name of the systemd credential with that password.",
        examples=["influxdb-password"],
    )

    @model_validator(mode="after")
    def _password_belongs_to_a_user(self) -> InfluxV1Config:
        if self.password_file and self.password_credential:
            raise ValueError("give password_file or password_credential, not both")
        if (self.password_file or self.password_credential) and self.user is None:
            raise ValueError("password_file and password_credential need a user; add user")
        return self


class InfluxV1(Sink):
    """Writes to one database.

    Args:
        config: Its section of the configuration.
        clock: For a Retry-After date.
    """

    def __init__(self, config: InfluxV1Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._password = Secret(
            "password",
            config.password_file,
            config.password_credential,
            credentials_folder(os.environ),
        )
        query = {"db": config.database, "precision": "ns"}
        if config.retention_policy:
            query["rp"] = config.retention_policy
        self._url = f"{config.url.rstrip('/')}/write?{urlencode(query)}"
        self._is_compressed = is_compressed(config)
        self._http = http_client(config)

    def encode(self, points: bytes) -> bytes:
        """Return the body of a request for points in line protocol."""
        return compress(points) if self._is_compressed else points

    def post(self, body: bytes) -> None:
        """Write what `encode` returned; raises as `Sink.post` does."""
        self._write(body)

    def check(self) -> str:
        """Write nothing, which the server checks for credentials, database and retention policy."""
        version = self._write(self.encode(b"")).get("x-influxdb-version")
        # VictoriaMetrics sends this header, too: it does not prove that the server is InfluxDB.
        server = f" (the server reports InfluxDB {version})" if version else ""
        return f"database {self._config.database} accepts writes{server}"

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _write(self, body: bytes) -> Mapping[str, str]:
        headers, secrets = self._credentials()
        headers["Content-Type"] = "text/plain; charset=utf-8"
        if self._is_compressed:
            headers["Content-Encoding"] = "gzip"
        destination = Destination.parse(self._url)
        response = self._http.request("POST", destination, headers, body)
        if _NO_SUCH_POLICY in response.body:
            # InfluxDB responds with 500, but a retry cannot succeed.
            policy = self._config.retention_policy
            raise Misconfigured(
                f"HTTP {response.status}: no retention policy {policy}; create it, or remove"
                " retention_policy"
            )
        raise_for_status(
            response,
            now_s=self._clock.time_ns() / NS_PER_S,
            secrets=secrets,
            hints=HINTS,
            is_tls=destination.is_tls,
        )
        check_acknowledged(response)
        return response.headers

    def _credentials(self) -> tuple[dict[str, str], list[str]]:
        """Return the header, and its secrets."""
        config = self._config
        if config.user is None:
            return {}, []
        password = self._password.read() if self._password.is_given else ""
        # In UTF-8 (RFC 7617), as InfluxDB expects.
        pair = base64.b64encode(f"{config.user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}, [password, pair] if password else []
