"""The control socket: one JSON request and one answer per connection to a Unix socket."""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from costprobe.core.control_protocol import (
    MAX_ANSWER_BYTES,
    MAX_LINE_BYTES,
    MAX_PATH_BYTES,
    decoded,
    encoded,
)

logger = logging.getLogger(__name__)

CLIENT_S = 5.0
BACKLOG = 8
JOIN_S = 1.0
ROOT_UID = 0
# Requests that change nothing and are not logged.
QUERIES = frozenset({"status", "silences", "alerts"})
_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[Mapping[str, Any]], Any]


class ControlServer:
    """Answer one request per connection, one connection at a time.

    The socket has mode 0600, and the kernel's peer credentials must be those of the daemon's own
    user or root. A client that has not sent its whole request within CLIENT_S is disconnected.

    Args:
        path: Path of the socket; a stale socket is replaced.
        handlers: Handler of each request, by name, which returns a JSON value for the request. A
            KeyError or ValueError is returned to the client as its error.
        stop: Ends the thread.
        client_s: Timeout in seconds for a client to send its request.
    """

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        stop: Flag,
        client_s: float = CLIENT_S,
    ) -> None:
        self.path = path
        self._client_s = client_s
        self._handlers = dict(handlers)
        self._stop = stop
        self._socket: socket.socket | None = None
        self._fault: str | None = None
        self._thread = Thread(target=self._run, name="control", daemon=True)

    def is_alive(self) -> bool:
        """Return False if the server was started and its thread has ended."""
        return self._thread.ident is None or self._thread.is_alive()

    def open(self) -> None:
        """Start; a failure is logged: without a socket only silences and tests are unavailable."""
        try:
            self.start()
        except OSError as error:
            self._fault = str(error)
            logger.warning("no control socket: %s", error)

    def status(self) -> dict[str, str | None]:
        """Return the path of the socket, and why there is none."""
        return {"path": str(self.path), "fault": self._fault}

    def start(self) -> None:
        """Create the socket and answer requests in a thread.

        Raises:
            OSError: The socket cannot be created, or another daemon serves it.
        """
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            raise OSError(f"{self.path} is too long for a socket: {MAX_PATH_BYTES} bytes at most")
        if _is_served(self.path):
            raise OSError(f"{self.path} is served by another daemon")
        self.path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listening.bind(str(self.path))
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        self._socket = listening
        self._thread.start()

    def close(self) -> None:
        """Stop answering and remove the socket; may be called twice, and without a start."""
        if self._socket is None:
            return
        self._stop.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for a client
        self._thread.join(JOIN_S)
        self._socket.close()
        self._socket = None
        self.path.unlink(missing_ok=True)

    def _run(self) -> None:
        listening = self._socket
        while listening is not None and not self._stop.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.sendall(self._answer(client))

    def _answer(self, client: socket.socket) -> bytes:
        # Always read: closing with unread bytes would reset the connection before our response.
        line = _line_of(client, self._client_s)
        if _uid_of(client) not in (os.geteuid(), ROOT_UID):
            return encoded({"error": "only the daemon's own user and root may send requests"})
        try:
            request = decoded(line)
            handler = self._handlers[str(request.get("do"))]
        except (KeyError, ValueError):
            return encoded(
                {"error": "unknown request; check that client and daemon have the same version"}
            )
        try:
            answer = encoded({"answer": handler(request)}, MAX_ANSWER_BYTES)
        except KeyError as error:
            return encoded({"error": f"there is no {error.args[0] if error.args else 'such item'}"})
        except ValueError as error:
            return encoded({"error": str(error)})
        except Exception:
            logger.exception("control request %s failed", request.get("do"))
            return encoded({"error": "the request failed in the daemon; see its log"})
        level = logging.DEBUG if request["do"] in QUERIES else logging.INFO
        logger.log(level, "control request %s by uid %d", request["do"], _uid_of(client))
        return answer


def _line_of(client: socket.socket, client_s: float) -> bytes:
    """Return a client's request line.

    Raises:
        TimeoutError: It was not complete within client_s.
    """
    line, ends_s = b"", time.monotonic() + client_s
    while not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
        # A timeout per read would let a client that sends a byte now and then block all others.
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        client.settimeout(left_s)
        part = client.recv(4096)
        if not part:
            break
        line += part
    client.settimeout(client_s)
    return line


def _uid_of(client: socket.socket) -> int:
    """Return the client's user id from the kernel."""
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(peer)[1])


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CLIENT_S)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
