"""A sink's settings; secrets stay in their files until a request needs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.secret_file import read_secret
from agent.sinks.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How to reach one database.

    Attributes:
        api: "v1" for InfluxDB 1.x's /write, "v2" for /api/v2/write.
        url: Scheme, host, port and perhaps a path; never credentials.
        org: Organization (v2).
        bucket: Bucket (v2).
        database: Database (v1).
        retention_policy: Retention policy (v1); None for the database's default.
        user: User (v1); None if the server asks for none.
        secret_file: File with the token (v2) or the password (v1).
        secret_credential: Name of a systemd credential with the same.
        ca_file: Certificates to trust instead of the system's.
        timeout_s: Longest request in seconds.
        proxy: URL of an HTTP proxy; None for none, also where the environment names one.
    """

    api: Literal["v1", "v2"]
    url: str
    org: str = ""
    bucket: str | None = None
    database: str | None = None
    retention_policy: str | None = None
    user: str | None = None
    secret_file: Path | None = None
    secret_credential: str | None = None
    ca_file: Path | None = None
    timeout_s: float = 10.0
    proxy: str | None = None

    def secret(self) -> str | None:
        """The token or password, read anew; None if none is configured.

        Raises:
            Misconfigured: It cannot be read; the text never holds it.
        """
        path = self.secret_file
        if self.secret_credential is not None:
            folder = os.environ.get("CREDENTIALS_DIRECTORY")
            if folder is None:
                raise Misconfigured(
                    f"credential {self.secret_credential}: systemd gave none to this process;"
                    " add LoadCredential= to the unit"
                )
            path = Path(folder) / self.secret_credential
        if path is None:
            return None
        try:
            return read_secret(path, "token or password")
        except ValueError as error:
            raise Misconfigured(str(error)) from None
