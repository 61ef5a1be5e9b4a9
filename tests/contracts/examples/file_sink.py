"""Line protocol appended to a file."""

import os
from pathlib import Path
from typing import Literal

from costprobe.adapters.http.errors import RetryLater
from costprobe.core.clock import Clock
from costprobe.delivery.contract import Sink, SinkConfig
from pydantic import Field


class FileSinkConfig(SinkConfig):
    """A file to which line protocol is appended."""

    api: Literal["file"] = Field(description="A file.", examples=["file"])
    path: Path = Field(description="The file.", examples=["/var/lib/costprobe/series.lp"])


class FileSink(Sink):
    """Appends to one file.

    Args:
        config: Its section of the configuration.
        clock: Not used.
    """

    def __init__(self, config: FileSinkConfig, clock: Clock) -> None:
        self._path = config.path

    def encode(self, points: bytes) -> bytes:
        """Return the points with a line end."""
        return points + b"\n"

    def post(self, body: bytes) -> None:
        """Append what `encode` returned."""
        try:
            with self._path.open("ab") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RetryLater(f"{self._path}: cannot be written ({error.strerror})") from error

    def check(self) -> str:
        """Open the file and write nothing."""
        self.post(b"")
        return f"{self._path} can be written"
