"""The control protocol of CLI and daemon: one JSON line each way over a Unix socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costprobe.core.outside import bounded_object

SOCKET_NAME = "control.sock"
MAX_LINE_BYTES = 1 << 16
# The status of a host with many probes takes several 100 KB.
MAX_ANSWER_BYTES = 1 << 23
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


def encoded(document: Mapping[str, Any], max_bytes: int = MAX_LINE_BYTES) -> bytes:
    """Return a request or an answer as a line.

    Raises:
        ValueError: It is longer than max_bytes, or contains NaN.
    """
    line = json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > max_bytes:
        raise ValueError(f"more than {max_bytes} bytes")
    return line


def decoded(line: bytes, max_bytes: int = MAX_LINE_BYTES) -> dict[str, Any]:
    """Return a request or an answer from its line.

    Raises:
        ValueError: The line is not a JSON object, or is longer than max_bytes.
    """
    return bounded_object(line, max_bytes)
