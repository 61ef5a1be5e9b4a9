"""Asking the running daemon over its control socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import click

from agent.cli.place import HasStore, bad_input
from agent.control_wire import MAX_LINE_BYTES, control_path, decoded, encoded

SYSTEM_SOCKET = Path("/run/infercost/control.sock")
TIMEOUT_S = 5.0


class NoDaemonError(click.ClickException):
    """No daemon answers."""


def ask(settings: HasStore, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401 - JSON
    """The daemon's answer to a request.

    Args:
        settings: Say where the store, and so the socket, is.
        request: Its `do` names what is asked for.
        timeout_s: How long the daemon may take.

    Raises:
        NoDaemonError: No daemon answers.
        click.ClickException: With exit code 2 where it refuses.
    """
    places = dict.fromkeys([control_path(settings.store_path, os.environ), SYSTEM_SOCKET])
    reasons = []
    for place in places:
        try:
            answer = _answer(place, request, timeout_s)
        except (OSError, ValueError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
            continue
        if "error" in answer:
            raise bad_input(str(answer["error"]))
        return answer["answer"]
    raise NoDaemonError(
        f"no daemon answers ({'; '.join(reasons)}); is it running? look with: infercost status"
    )


def _answer(place: Path, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(timeout_s)
        asking.connect(str(place))
        asking.sendall(encoded(request))
        line = b""
        while not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
            part = asking.recv(4096)
            if not part:
                break
            line += part
    return decoded(line)
