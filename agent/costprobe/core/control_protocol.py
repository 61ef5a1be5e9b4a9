"""The control protocol of CLI and daemon: one JSON line each way over a Unix socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costprobe.core.bounded import bounded_object

SOCKET_NAME = "control.sock"
MAX_LINE_BYTES = 1 << 16
# A path in sockaddr_un ends with a NUL byte.
MAX_PATH_BYTES = 107


def control_path(store_path: Path, environ: Mapping[str, str]) -> Path:
    """Return the socket's path: in systemd's runtime directory, or else in the folder of the store.

    Args:
        store_path: The store.
        environ: The environment; RUNTIME_DIRECTORY is read.
    """
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return (Path(runtime) if runtime else store_path.parent) / SOCKET_NAME


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return a request or an answer as a line.

    Raises:
        ValueError: It is longer than MAX_LINE_BYTES, or contains NaN.
    """
    line = json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"more than {MAX_LINE_BYTES} bytes")
    return line


def decoded(line: bytes) -> dict[str, Any]:
    """Return a request or an answer from its line.

    Raises:
        ValueError: The line is not a JSON object, or is longer than MAX_LINE_BYTES.
    """
    return bounded_object(line, MAX_LINE_BYTES)
