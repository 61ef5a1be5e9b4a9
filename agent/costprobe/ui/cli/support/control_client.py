"""Requests to the running daemon over its control socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import click

from costprobe.core.control_protocol import MAX_ANSWER_BYTES, control_path, decoded, encoded
from costprobe.core.printable import one_line
from costprobe.ui.cli.support.place import HasStore, bad_input

SYSTEM_SOCKET = Path("/run/costprobe/control.sock")
TIMEOUT_S = 5.0


class NoDaemonError(click.ClickException):
    """No daemon answers."""


def ask(settings: HasStore, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401 - JSON
    """Send a request and return the daemon's answer.

    Args:
        settings: The store; the socket is in its folder or in systemd's runtime directory.
        request: JSON object; `do` selects the action.
        timeout_s: Timeout of the answer.

    Raises:
        NoDaemonError: No daemon answers.
        click.ClickException: The daemon rejects the request; exit code 2.
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
            raise bad_input(one_line(str(answer["error"])))
        return answer["answer"]
    raise NoDaemonError(
        f"no daemon answers ({'; '.join(reasons)}); check that it is running: costprobe status"
    )


def _answer(place: Path, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(place))
        connection.sendall(encoded(request))
        line = bytearray()
        while not line.endswith(b"\n") and len(line) <= MAX_ANSWER_BYTES:
            part = connection.recv(1 << 16)
            if not part:
                break
            line += part
    return decoded(bytes(line), MAX_ANSWER_BYTES)
