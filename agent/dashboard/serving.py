"""The page's server: an address, its refusals, and an end within seconds."""

from __future__ import annotations

import ipaddress
import re
import signal
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

import uvicorn

from agent.dashboard.app import Dashboard
from agent.dashboard.live import LISTENERS_MAX, Live

CONNECTIONS_MAX = 4 * LISTENERS_MAX
KEEP_ALIVE_S = 5
GRACE_S = 3
_BACKLOG = 64
_LISTEN = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^:\[\]]*)):(?P<port>[0-9]{1,5})"
)
_PORT_MAX = 65535


class ListenError(ValueError):
    """The address cannot be listened on; the text says why and what to do."""


class Address(NamedTuple):
    """Where to listen.

    Attributes:
        host: An IP address.
        port: A TCP port; 0 for any that is free.
    """

    host: str
    port: int

    @property
    def url(self) -> str:
        """Where a browser on this host finds it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def parse_listen(text: str, *, allow_remote: bool) -> Address:
    """The address in `--listen`: "127.0.0.1:9470", "[::1]:9470", "localhost:9470".

    Raises:
        ListenError: It is none, or others than this host could reach it and may not.
    """
    match = _LISTEN.fullmatch(text)
    if match is None or int(match["port"]) > _PORT_MAX:
        raise ListenError(f'{text!r} is no address and port; write "127.0.0.1:9470"')
    name = match["ipv6"] or match["name"]
    host = "127.0.0.1" if name == "localhost" else name
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ListenError(
            f'{name!r} is no IP address; write the address of the interface, or "localhost"'
        ) from None
    if not address.is_loopback and not allow_remote:
        raise ListenError(
            f"{host} can be reached from other hosts, and the page asks for no password; give"
            " --allow-remote if that is wanted, or reach the loopback address through ssh -L"
        )
    return Address(str(address), int(match["port"]))


def bound(address: Address) -> tuple[socket.socket, Address]:
    """A listening socket, and the address with the port that it got.

    Raises:
        ListenError: The address is taken, or is none of this host's.
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
    return listening, Address(address.host, listening.getsockname()[1])


class Server(uvicorn.Server):
    """Uvicorn that ends the live streams before it waits for what is still being answered."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends every connection, at the latest after GRACE_S."""
        self._live.close()
        await super().shutdown(sockets)


def serve(
    made: Dashboard,
    listening: socket.socket,
    on_server: Callable[[Server], None] = lambda _: None,
) -> None:
    """Answers until SIGTERM or SIGINT, or until the server's `should_exit` is set.

    Args:
        made: The application.
        listening: A listening socket; it is closed at the end.
        on_server: Is given the server before it starts.
    """
    server = Server(
        uvicorn.Config(
            made.app,
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            ws="none",
            lifespan="off",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        ),
        made.live,
    )
    on_server(server)
    if threading.current_thread() is threading.main_thread():
        # Uvicorn raises the signal again once it has ended: that end was the wanted one.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    with listening:
        server.run(sockets=[listening])
