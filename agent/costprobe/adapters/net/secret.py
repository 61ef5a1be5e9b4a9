"""Secrets of HTTP clients: in files or systemd credentials, read when needed, never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.system.secret_file import read_secret


def credentials_folder(environ: Mapping[str, str]) -> Path | None:
    """Where systemd stored this process's credentials; None without any.

    Args:
        environ: The process's environment.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return Path(folder) if folder else None


@dataclass(frozen=True, slots=True)
class Secret:
    """The location of a secret; the secret itself is never stored, because it may be rotated.

    Attributes:
        purpose: Its name in messages: "token", "password", "URL".
        file: File that contains it.
        credential: Name of a systemd credential that contains it.
        folder: Where systemd stored this process's credentials; None without any.
    """

    purpose: str
    file: Path | None = None
    credential: str | None = None
    folder: Path | None = None

    @property
    def is_given(self) -> bool:
        """Whether a secret is configured."""
        return self.file is not None or self.credential is not None

    @property
    def where(self) -> str:
        """Its location, for messages."""
        return f"credential {self.credential}" if self.credential is not None else f"{self.file}"

    def read(self) -> str:
        """Read the secret.

        Raises:
            Misconfigured: It cannot be read, or is not one line of printable text.
        """
        try:
            return read_secret(self._path(), self.purpose)
        except ValueError as error:
            raise Misconfigured(str(error)) from None

    def read_ascii(self) -> str:
        """Read a secret that is sent in a header as it is.

        Raises:
            Misconfigured: As `read`, or it has characters outside ASCII.
        """
        secret = self.read()
        if not secret.isascii():
            raise Misconfigured(
                f"{self._path()}: has characters that are not valid in an HTTP header"
            )
        return secret

    def problems(self) -> list[str]:
        """Return why it cannot be read; empty for a credential in a process without credentials."""
        if not self.is_given or (self.credential is not None and self.folder is None):
            return []
        try:
            self.read()
        except Misconfigured as error:
            return [error.reason]
        return []

    def _path(self) -> Path:
        if self.credential is not None:
            if self.folder is None:
                raise Misconfigured(
                    f"credential {self.credential}: this process has none from systemd;"
                    " add LoadCredential= to the unit"
                )
            return self.folder / self.credential
        if self.file is None:
            raise Misconfigured(f"no {self.purpose} is configured")
        return self.file
