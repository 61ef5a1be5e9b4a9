"""The dashboard server: listening address and graceful shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from costprobe.adapters.http.server import ConnectionSlots, HttpLimits

LIMITS: Final = HttpLimits(
    total=128,
    per_address=32,
    reserve=16,
    request_s=10.0,
    response_s=60.0,
)


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn in a slot; uvicorn itself has no deadline for a request.

    Args:
        slots: Slots of the server.
        args: uvicorn's own.
    """

    def __init__(self, slots: ConnectionSlots, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **options)
        self._slots = slots

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Occupy a slot, or close the connection without an answer."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        is_accepted, displaced = self._slots.admit(self, address, self.loop.time())
        for other in (displaced, None if is_accepted else self):
            if isinstance(other, BoundedProtocol):
                other.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the slot."""
        self._slots.release(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received data; a request with its whole body has more time for its response."""
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._slots.has_request(self, self.loop.time())

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._slots.awaits_request(self, self.loop.time())
        super().on_response_complete()

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()


KEEP_ALIVE_S = 5
GRACE_S = 3
_BACKLOG = 64
_LISTEN = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^:\[\]]*)):(?P<port>[0-9]{1,5})"
)
_PORT_MAX = 65535
# uvicorn ticks ten times a second.
_TICKS_A_LOOK = 5


class ListenError(ValueError):
    """The server cannot listen on the address; the text has reason and fix."""


class ListenAddress(NamedTuple):
    """The address to listen on.

    Attributes:
        host: An IP address.
        port: A TCP port; 0 for any free port.
    """

    host: str
    port: int

    @property
    def url(self) -> str:
        """URL for a browser on this host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def parse_listen(text: str, *, allow_remote: bool) -> ListenAddress:
    """Parse the address of `--listen`: "127.0.0.1:9470", "[::1]:9470", "localhost:9470".

    Raises:
        ListenError: It is malformed, or reachable from other hosts without permission.
    """
    match = _LISTEN.fullmatch(text)
    if match is None or int(match["port"]) > _PORT_MAX:
        raise ListenError(f'{text!r} is not an address and port; write "127.0.0.1:9470"')
    name = match["ipv6"] or match["name"]
    host = "127.0.0.1" if name == "localhost" else name
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ListenError(
            f'{name!r} is not an IP address; write the address of the interface, or "localhost"'
        ) from None
    if not address.is_loopback and not allow_remote:
        raise ListenError(
            f"{host} can be reached from other hosts, and the page has no password; give"
            " --allow-remote if that is wanted, or reach the loopback address through ssh -L"
        )
    return ListenAddress(str(address), int(match["port"]))


def bound(address: ListenAddress) -> tuple[socket.socket, ListenAddress]:
    """Open a listening socket; return it and the address with its actual port.

    Raises:
        ListenError: The address is in use or not an address of this host.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ListenError(
            f"{address.host}:{address.port}: {error.strerror}; choose another with --listen"
        ) from error
    return listening, ListenAddress(address.host, listening.getsockname()[1])


class DashboardServer(uvicorn.Server):
    """Uvicorn that closes late connections.

    Args:
        config: Its configuration.
        slots: The open connections.
    """

    def __init__(self, config: uvicorn.Config, slots: ConnectionSlots) -> None:
        super().__init__(config)
        self._slots = slots

    async def on_tick(self, counter: int) -> bool:
        """Close connections past their deadline; return whether to stop."""
        if counter % _TICKS_A_LOOK == 0:
            for late in self._slots.take_late(asyncio.get_running_loop().time()):
                if isinstance(late, BoundedProtocol):
                    late.abort()
        return await super().on_tick(counter)


def serve(
    app: ASGIApp,
    listening: socket.socket,
    on_server: Callable[[DashboardServer], None] = lambda _: None,
    limits: HttpLimits = LIMITS,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `should_exit` of the server is set.

    Args:
        app: The application.
        listening: A listening socket; it is closed at the end.
        on_server: Called with the server before it starts.
        limits: Limits of its connections.
    """
    slots = ConnectionSlots(limits)
    protocol: Any = partial(BoundedProtocol, slots)
    server = DashboardServer(
        uvicorn.Config(
            app,
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            http=protocol,
            ws="none",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        ),
        slots,
    )
    on_server(server)
    if threading.current_thread() is threading.main_thread():
        # Uvicorn raises the signal again after the shutdown.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    with listening:
        server.run(sockets=[listening])
