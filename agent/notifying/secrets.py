"""Secrets of notifiers: in files or systemd credentials, read when needed, shown nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.notifying.sender import Misconfigured
from agent.secret_file import read_secret


@dataclass(frozen=True, slots=True)
class Secret:
    """Where one secret is; the secret itself is never kept.

    Attributes:
        what: What it is, for people: "token", "password", "address".
        file: File that holds it.
        credential: Name of a systemd credential that holds it.
        folder: Where systemd put this process's credentials; None where it gave none.
    """

    what: str
    file: Path | None = None
    credential: str | None = None
    folder: Path | None = None

    @property
    def is_given(self) -> bool:
        """True if the configuration names one."""
        return self.file is not None or self.credential is not None

    @property
    def where(self) -> str:
        """The place of it, for messages."""
        return f"credential {self.credential}" if self.credential is not None else f"{self.file}"

    def read(self) -> str:
        """The secret, read anew: it may have been rotated.

        Raises:
            Misconfigured: It cannot be read, or no header could hold it.
        """
        try:
            return read_secret(self._path(), self.what)
        except ValueError as error:
            raise Misconfigured(str(error)) from None

    def read_ascii(self) -> str:
        """The same, for what is sent in a header as it is.

        Raises:
            Misconfigured: As `read`, or it has characters that no header can carry.
        """
        secret = self.read()
        if not secret.isascii():
            raise Misconfigured(f"{self._path()}: has characters that no HTTP header can carry")
        return secret

    def problems(self) -> list[str]:
        """What hinders reading it; of a credential that only the service gets, nothing is known."""
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
                    f"credential {self.credential}: systemd gave none to this process;"
                    " add LoadCredential= to the unit"
                )
            return self.folder / self.credential
        if self.file is None:
            raise Misconfigured(f"no {self.what} is configured")
        return self.file
