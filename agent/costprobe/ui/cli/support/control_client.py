"""Requests to the running daemon over its control socket."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from costprobe.core.outside import one_line
from costprobe.daemon.control_protocol import MAX_ANSWER_BYTES, control_path, decoded, encoded
from costprobe.ui.cli.support.place import NotRunningError, Settings, bad_input

SYSTEM_SOCKET = Path("/run/costprobe/control.sock")
TIMEOUT_S = 5.0
# A daemon that is busy with another request has just written its status.
STATUS_TIMEOUT_S = 1.0

# A state document, and the UTC ns of its last change.
State = tuple[Any, int]


def user_name() -> str:
    """Return the name of this user for an annotation or a silence; its number without an account."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError: since Python 3.13
        return f"uid {os.getuid()}"


class NoDaemonError(NotRunningError):
    """No daemon answers."""


def ask(settings: Settings, request: dict[str, Any], timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401 - JSON
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


def present_states(place: Settings, stored: Mapping[str, State], now_ns: int) -> dict[str, State]:
    """Return the state documents of the store, with status and alerts of a running daemon as of now.

    If the store cannot be written, its documents are old; the daemon returns the current ones.

    Args:
        place: The store.
        stored: The documents in it, and the UTC ns of their last change.
        now_ns: UTC ns.
    """
    states = dict(stored)
    status = current_status(place)
    if status is not None:
        states["status"] = (status, now_ns)
        request = {"do": "alerts", "store": str(place.store_path.resolve())}
        with suppress(click.ClickException):  # while it starts or stops
            states["alerts"] = (ask(place, request, STATUS_TIMEOUT_S), now_ns)
    return states


def current_status(place: Settings) -> dict[str, Any] | None:
    """Return the status from the control socket; None if no daemon of this store answers."""
    try:
        status: dict[str, Any] = ask(place, {"do": "status"}, STATUS_TIMEOUT_S)
    except click.ClickException:
        return None
    if Path(status["store"]["path"]).resolve() != place.store_path.resolve():
        return None
    return {**status, "age_s": 0.0, "running": True}


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
