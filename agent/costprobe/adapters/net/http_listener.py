"""The listening socket of the daemon's pages: bounded connections, each with deadlines."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from costprobe.adapters.net.connection_slots import ConnectionSlots, SlotLimits

logger = logging.getLogger(__name__)


class HttpListener(ThreadingHTTPServer):
    """Serve each connection in a thread, within slots, and close those that take too long.

    Args:
        address: IP address and port to bind.
        handler: Handles the requests of a connection; calls `begin_response` for each.
        limits: Limits of the connections.

    Attributes:
        broken: Connections closed without a complete response: too slow, or above the limit.
    """

    daemon_threads = True
    block_on_close = False
    # With the default of 5 a burst of connections waits for the kernel's next attempt, a second.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: Callable[..., BaseHTTPRequestHandler],
        limits: SlotLimits,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._slots = ConnectionSlots(limits)
        self._reserved: set[Any] = set()
        self._lock = Lock()
        self.broken = 0
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Handle a connection in a thread, if it gets a slot."""
        with self._lock:
            admission = self._slots.admit(request, str(client_address[0]), time.monotonic())
            if admission.is_reserved:
                self._reserved.add(request)
        if admission.displaced is not None:
            self._close_late([admission.displaced])
        if not admission.is_accepted:
            self._count_broken()
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base has it
        """Handle a connection, and release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._slots.release(request)
                self._reserved.discard(request)

    def begin_response(self, request: Any) -> bool:  # noqa: ANN401 - as above
        """Record that a request is complete; return whether its connection uses the reserve."""
        with self._lock:
            self._slots.has_request(request, time.monotonic())
            return request in self._reserved

    def service_actions(self) -> None:
        """Close connections past their deadline: a socket timeout would only cover each read."""
        with self._lock:
            late = self._slots.take_late(time.monotonic())
        self._close_late(late)

    def _close_late(self, late: Iterable[Any]) -> None:
        """End connections; their threads then end, too."""
        for request in late:
            self._count_broken()
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as the base has it
        """Log errors, except those of a client that disconnected."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("an HTTP request failed", exc_info=error)

    def _count_broken(self) -> None:
        with self._lock:
            self.broken += 1
