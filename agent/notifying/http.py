"""One POST to an address: on a connection of its own, within its time, never redirected."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent.notifying.address import PORTS, Address
from agent.notifying.answers import Answer, judge
from agent.notifying.sender import Misconfigured, RetryLater

MAX_ANSWER_BYTES = 64 * 1024


class Poster:
    """Posts to addresses, a connection for each.

    Args:
        ca_file: Certificates to trust instead of the system's.
        timeout_s: Of a whole exchange, from the connection to the end of the answer.
    """

    def __init__(self, ca_file: Path | None, timeout_s: float) -> None:
        self._ca_file = ca_file
        self._timeout_s = timeout_s
        self._context: ssl.SSLContext | None = None

    def post(
        self,
        address: Address,
        headers: Mapping[str, str],
        body: bytes,
        time_ns: int,
        secrets: Sequence[str] = (),
    ) -> Answer:
        """Posts and returns what a server said that took it.

        Args:
            address: Where to.
            headers: Beside Host and Content-Length.
            body: Content.
            time_ns: UTC in ns of now.
            secrets: What the headers hold and no message may.

        Raises:
            RetryLater: The server is away, slow or busy, or did not answer to the end.
            Refused: It will never take this body.
            Misconfigured: Address, certificates or credentials are wrong.
        """
        ends_s = time.monotonic() + self._timeout_s
        try:
            plain = self._connected(address, ends_s)
        except OSError as error:
            raise self._retry(address, error, ends_s) from None
        with self._wrapped(plain, address) as channel:
            is_cut = threading.Event()
            left_s = max(0.0, ends_s - time.monotonic())
            timer = threading.Timer(left_s, _cut, (channel, is_cut))
            timer.daemon = True
            timer.start()
            try:
                self._shake_hands(channel, address)
                answer = _exchange(channel, address, headers, body)
                if is_cut.is_set():
                    # The library takes an end within the headers for the end of the headers.
                    raise TimeoutError
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Without the cause: a library's text may hold what was sent or received.
                raise self._retry(address, error, ends_s) from None
            finally:
                timer.cancel()
        judge(answer, address, time_ns, (*secrets, *address.secrets))
        return answer

    def problems(self) -> list[str]:
        """What hinders the use of the certificates."""
        try:
            self._trust()
        except Misconfigured as error:
            return [error.reason]
        return []

    def _retry(self, address: Address, error: Exception, ends_s: float) -> RetryLater:
        if isinstance(error, TimeoutError) or time.monotonic() >= ends_s:
            return RetryLater(f"{address.name}: no answer within {self._timeout_s:g} s")
        # The system's own words, never a library's.
        words = error.strerror if isinstance(error, OSError) else None
        told = f"{type(error).__name__}: {words}" if words else type(error).__name__
        return RetryLater(f"{address.name}: {told}")

    def _connected(self, address: Address, ends_s: float) -> socket.socket:
        """A connection to the first of the host's addresses that takes one."""
        failure: OSError = TimeoutError("timed out")
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found:
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                break
            channel = socket.socket(family, kind, protocol)
            channel.settimeout(left_s)
            try:
                channel.connect(place)
            except OSError as error:
                channel.close()
                failure = error
            else:
                channel.settimeout(self._timeout_s)
                return channel
        raise failure

    def _wrapped(self, plain: socket.socket, address: Address) -> socket.socket:
        if not address.is_tls:
            return plain
        try:
            return self._trust().wrap_socket(
                plain, server_hostname=address.host, do_handshake_on_connect=False
            )
        except Misconfigured:
            plain.close()
            raise
        except (OSError, ValueError) as error:
            plain.close()
            raise RetryLater(f"{address.name}: {type(error).__name__}") from None

    def _shake_hands(self, channel: socket.socket, address: Address) -> None:
        if not isinstance(channel, ssl.SSLSocket):
            return
        try:
            channel.do_handshake()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise
        except ssl.SSLError as error:
            # The authority's file may have been replaced: the next attempt reads it anew.
            self._context = None
            words = getattr(error, "verify_message", "") or error.reason or "no TLS is spoken there"
            hidden = words.replace(address.host, "the host")
            raise Misconfigured(
                f"{address.name}: TLS: {hidden}; is ca_file the server's authority?"
            ) from None

    def _trust(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._ca_file)
            except OSError as error:
                words = error.strerror or "no certificates in it"
                raise Misconfigured(f"ca_file {self._ca_file}: cannot be used ({words})") from error
        return self._context


def _exchange(
    channel: socket.socket, address: Address, headers: Mapping[str, str], body: bytes
) -> Answer:
    connection = http.client.HTTPConnection(address.host, address.port)
    # A socket of our own: the library would look for an address without regard to the time left.
    connection.sock = channel
    host = f"[{address.host}]" if ":" in address.host else address.host
    if address.port != PORTS["https" if address.is_tls else "http"]:
        host = f"{host}:{address.port}"
    own = {"Host": host, "Connection": "close", **headers}
    # A server that refuses may close before it has read all; its answer is there all the same.
    with suppress(BrokenPipeError):
        connection.request("POST", address.target, body, own)
    with connection.getresponse() as response:
        content = response.read(MAX_ANSWER_BYTES)
        if len(content) < MAX_ANSWER_BYTES and response.length:
            raise http.client.IncompleteRead(b"")
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, content)


def _cut(channel: socket.socket, is_cut: threading.Event) -> None:
    """Ends a connection under whoever waits for it, below TLS, which two threads may not use."""
    is_cut.set()
    with suppress(OSError):
        socket.socket.shutdown(channel, socket.SHUT_RDWR)
