"""The control socket of CLI and daemon: one JSON request and one answer per connection.

The protocol is one JSON line each way over a Unix socket. Each request is validated before it is
passed to a part.
"""

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
from typing import Any, Protocol, TypeVar

from costprobe.alerts.watching import Watching
from costprobe.core.incident import Silence, silence_document
from costprobe.core.outside import one_line
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import LOAD_CURVE, make_point
from costprobe.daemon.control_protocol import (
    MAX_ANSWER_BYTES,
    MAX_LINE_BYTES,
    MAX_PATH_BYTES,
    decoded,
    encoded,
)
from costprobe.daemon.parts import Runtime
from costprobe.delivery.delivery import Notifying

logger = logging.getLogger(__name__)

CLIENT_S = 5.0
BACKLOG = 8
JOIN_S = 1.0
ROOT_UID = 0
# Requests that change nothing and are not logged.
QUERIES = frozenset({"status", "alerts"})
_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[Mapping[str, Any]], Any]


class ControlServer:
    """Answer one request per connection, one connection at a time.

    The socket has mode 0600, and the kernel's peer credentials must be those of the daemon's own
    user or root. A client that has not sent its whole request within CLIENT_S is disconnected.

    Args:
        path: Path of the socket; a stale socket is replaced.
        handlers: Handler of each request, by name, which returns a JSON value for the request. A
            ValueError is returned to the client as its error.
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


MAX_TEXT_CHARS = 500
MAX_PATTERNS = 20
MAX_ROWS = 64
# Measurements whose rows commands may add; all others are written by the daemon only.
KEPT = frozenset({"sweep", "cold_start", "calibration"})
# The only event among them: a change of a load curve.
KEPT_EVENT = {"kind": "drift", "metric": LOAD_CURVE}
# 2100-01-01, the last instant that dates of the command line can name.
LATEST_NS = 4_102_444_800 * NS_PER_S
_Parts = TypeVar("_Parts")
Answer = TypeVar("Answer")


class AlertingParts(Protocol):
    """The parts that silences, incidents and test alerts concern."""

    watching: Watching
    notifying: Notifying
    store_path: Path


def alerting_requests(alerting: Callable[[], AlertingParts | None]) -> dict[str, Handler]:
    """Return the handlers of requests about incidents, silences and notifiers, by name.

    Args:
        alerting: Returns the parts in force; None while the process starts or stops.
    """

    def watching() -> Watching:
        return _present(alerting()).watching

    def silence(request: Mapping[str, Any]) -> dict[str, Any]:
        added = silence_of(request)
        watching().add_silence(added)
        return silence_document(added)

    def unsilence(request: Mapping[str, Any]) -> dict[str, Any]:
        return silence_document(_of("silence", str(request.get("id")), watching().end_silence))

    def test(request: Mapping[str, Any]) -> dict[str, str]:
        notifying = _present(alerting()).notifying
        return dict(_of("notifier", _name(request, "notifier"), notifying.send_test))

    def alerts(request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the incidents; None to a client that asks for another store's."""
        parts = _present(alerting())
        return dict(parts.watching.alerts()) if _is_about(request, parts.store_path) else None

    return {
        "silence": silence,
        "unsilence": unsilence,
        "test": test,
        "alerts": alerts,
    }


def control_requests(
    running: Callable[[], Runtime | None], status: Callable[[], Mapping[str, Any]]
) -> dict[str, Handler]:
    """Return the handlers of all requests to a daemon, by name.

    Args:
        running: Returns the parts in force; None while the daemon starts or stops.
        status: Returns the status document, also while the store cannot be written.
    """

    def annotate(request: Mapping[str, Any]) -> dict[str, Any]:
        annotation = {key: value for key, value in request.items() if key != "do"}
        return _present(running()).annotations.add(annotation)

    def status_and_alerts(_: Mapping[str, Any]) -> dict[str, Any]:
        runtime = running()
        return {**status(), "alerts": runtime.watching.alerts()["alerts"] if runtime else []}

    def keep(request: Mapping[str, Any]) -> int:
        rows, parts = measured_rows(request), _present(running())
        if not _is_about(request, parts.store_path):
            return 0
        parts.ledger.append(rows)
        return len(rows)

    return {
        **alerting_requests(running),
        "annotate": annotate,
        "retry": lambda request: _of(
            "sink", _name(request, "sink"), _present(running()).delivery.retry
        ),
        "keep": keep,
        "status": status_and_alerts,
    }


def _of(kind: str, name: str | None, call: Callable[[Any], Answer]) -> Answer:
    """Return the answer of a call about a named object."""
    try:
        return call(name)
    except KeyError:
        raise ValueError(f"there is no {kind} {name}") from None


def _present(parts: _Parts | None) -> _Parts:
    if parts is None:
        raise ValueError("the daemon is starting or stopping; retry in a few seconds")
    return parts


def measured_rows(request: Mapping[str, Any]) -> list[Point]:
    """Return the rows in a request that a command measured; see KEPT.

    Raises:
        ValueError: There are none or too many, or one does not conform to the schema.
    """
    rows = request.get("rows")
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS:
        raise ValueError(f"a measurement has 1 to {MAX_ROWS} rows")
    try:
        return [_measured_row(row) for row in rows]
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a row of a measurement: {error}") from error


def silence_of(request: Mapping[str, Any]) -> Silence:
    """Return the silence of a request.

    Raises:
        ValueError: A part is missing, too long, or of the wrong type.
    """
    match = request.get("match")
    if not isinstance(match, dict) or not 0 < len(match) <= MAX_PATTERNS:
        raise ValueError(f"a silence matches 1 to {MAX_PATTERNS} labels")
    starts_ns, ends_ns = request.get("starts_ns"), request.get("ends_ns")
    if not (isinstance(starts_ns, int) and isinstance(ends_ns, int)):
        raise ValueError("a silence has a start and an end")  # noqa: TRY004 - a request is refused
    number, comment, author = (
        one_line(str(request.get(name, ""))) for name in ("id", "comment", "author")
    )
    patterns = {str(name): str(pattern) for name, pattern in match.items()}
    texts = [number, comment, author, *patterns, *patterns.values()]
    if max(map(len, texts)) > MAX_TEXT_CHARS:
        raise ValueError(f"a text of a silence has at most {MAX_TEXT_CHARS} characters")
    if not number or not comment.strip():
        raise ValueError("a silence has an id and a comment")
    if not 0 <= starts_ns <= ends_ns <= LATEST_NS:
        raise ValueError("a silence must end after its start, between 1970 and 2100")
    return Silence(number, patterns, starts_ns, ends_ns, comment, author)


def _measured_row(row: Mapping[str, Any]) -> Point:
    measurement = str(row["measurement"])
    tags = {str(name): str(value)[:MAX_TEXT_CHARS] for name, value in row["tags"].items()}
    is_change = measurement == "event" and KEPT_EVENT.items() <= tags.items()
    if measurement not in KEPT and not is_change:
        raise ValueError(f"rows of {measurement} are written by the daemon only")
    time_ns = int(row["time_ns"])
    if not 0 <= time_ns <= LATEST_NS:
        raise ValueError("a row is of a time between 1970 and 2100")
    return make_point(measurement, tags, row["fields"], time_ns)


def _is_about(request: Mapping[str, Any], store: Path) -> bool:
    """Return whether a request is for this store: a client may reach the daemon of another one."""
    return str(request.get("store")) == str(store.resolve())


def _name(request: Mapping[str, Any], key: str) -> str | None:
    value = request.get(key)
    return None if value is None else str(value)
