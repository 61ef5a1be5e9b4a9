"""Configuration keys that every HTTP client shares, each with its description and example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Protocol

from pydantic import Field

from costprobe.core.config.fields import Label, Name, matching

TokenFile = Annotated[
    Path | None, Field(description="File with a bearer token.", examples=["/etc/costprobe/token"])
]
TokenCredential = Annotated[
    Name | None,
    Field(
        description="Name of the systemd credential with that token.", examples=["costprobe-token"]
    ),
]
CaFile = Annotated[
    Path | None,
    Field(
        description="CA certificates to verify an https server with, instead of the system's.",
        examples=["/etc/costprobe/ca.pem"],
    ),
]

_HEADER: Final = matching(r"[A-Za-z][A-Za-z0-9-]{0,63}", "the name of an HTTP header")
# Set by us, or by token or password.
_OWN_HEADERS: Final = frozenset(
    {
        *("authorization", "connection", "content-encoding", "content-length", "content-type"),
        *("host", "transfer-encoding", "user-agent"),
    }
)
Headers = Annotated[
    dict[Annotated[str, _HEADER], Label],
    Field(
        default_factory=dict,
        max_length=8,
        description="Further HTTP headers, without secrets.",
        examples=[{"X-Scope-OrgID": "ml"}],
    ),
]
KeyFile = Annotated[
    Path | None,
    Field(
        description="File with a key that is sent in the header `key_header`, beside any token or password.",
        examples=["/etc/costprobe/gateway.key"],
    ),
]
KeyCredential = Annotated[
    Name | None,
    Field(description="Name of the systemd credential with that key.", examples=["gateway-key"]),
]
KeyHeader = Annotated[
    Annotated[str, _HEADER],
    Field(description="Header of that key.", examples=["X-Api-Key"]),
]
KEY_HEADER: Final = "X-Api-Key"


class WithHeaders(Protocol):
    """A section with further headers."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers without secrets."""
        ...

    @property
    def key_file(self) -> Path | None:
        """File of the key."""
        ...

    @property
    def key_credential(self) -> str | None:
        """Credential of the key."""
        ...

    @property
    def key_header(self) -> str:
        """Header of the key."""
        ...


def check_headers(config: WithHeaders) -> None:
    """Check the further headers of a section.

    Raises:
        ValueError: Two places for the key, or a header that costprobe sets.
    """
    if config.key_file and config.key_credential:
        raise ValueError("give key_file or key_credential, not both")
    names = {name.lower(): f"headers.{name}" for name in config.headers}
    if place := names.get(config.key_header.lower()):
        raise ValueError(f"{place}: its value goes into key_file or key_credential")
    names[config.key_header.lower()] = "key_header"
    for name in sorted(_OWN_HEADERS & names.keys()):
        raise ValueError(
            f"{names[name]}: {name} is set by costprobe; a token or password has a file of its own"
        )
