"""Configuration keys that every HTTP client shares, each with its description and example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from costprobe.core.config.fields import Name

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
