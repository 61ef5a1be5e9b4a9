"""A sink's settings; secrets stay in their files until a request needs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.sinks.errors import Misconfigured

MAX_SECRET_BYTES = 16 * 1024


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
            with path.open("rb") as file:
                secret = file.read(MAX_SECRET_BYTES).decode().strip()
        except OSError as error:
            raise Misconfigured(f"{path}: cannot be read ({error.strerror})") from error
        except UnicodeDecodeError:
            # Without the cause: its text would hold what was in the file.
            raise Misconfigured(f"{path}: holds no token: it is no plain text") from None
        if not secret:
            raise Misconfigured(f"{path}: is empty; write the token or password into it")
        if not secret.isprintable():
            # A header must not hold it, and the library that says so would say it aloud.
            raise Misconfigured(f"{path}: holds more than one line, or no plain text")
        return secret
