"""One GET of a metrics endpoint: within one deadline and one budget of bytes, never redirected."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.config_service import ServiceConfig
from agent.secret_file import read_secret
from agent.serving.errors import ScrapeError
from agent.serving.exposition import MAX_BYTES

_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^/:\[\]]+)(?::(\d{1,5}))?(/.*)")
_PORTS = {"http": 80, "https": 443}
_HEAD_BYTES = 256 * 1024
_READ_BYTES = 64 * 1024
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Access:
    """How a service's endpoints may be read.

    Attributes:
        timeout_s: Of a whole reading, from connecting to the end of the answer.
        token_file: File with a bearer token, read anew each time; None if none is asked for.
        token_credential: Name of a systemd credential with the same.
        credentials_folder: Where systemd put this process's credentials; None if it gave none.
        ca_file: Certificates to trust instead of the system's.
    """

    timeout_s: float
    token_file: Path | None = None
    token_credential: str | None = None
    credentials_folder: Path | None = None
    ca_file: Path | None = None

    def token(self) -> str | None:
        """The bearer token; None if none is configured.

        Raises:
            ScrapeError: It cannot be read; the text never holds it.
        """
        path = self.token_file
        if self.token_credential is not None:
            if self.credentials_folder is None:
                raise ScrapeError(
                    f"credential {self.token_credential}: systemd gave none to this process;"
                    " add LoadCredential= to the unit"
                )
            path = self.credentials_folder / self.token_credential
        if path is None:
            return None
        try:
            token = read_secret(path, "token")
        except ValueError as error:
            raise ScrapeError(str(error)) from None
        if not token.isascii():
            raise ScrapeError(f"{path}: holds no token: a header takes plain letters alone")
        return token


def access_of(service: ServiceConfig, environ: Mapping[str, str]) -> Access:
    """How a service's endpoints may be read, as configured.

    Args:
        service: The service.
        environ: The process's environment, in which systemd names its folder of credentials.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return Access(
        timeout_s=service.timeout_s,
        token_file=service.token_file,
        token_credential=service.token_credential,
        credentials_folder=Path(folder) if folder else None,
        ca_file=service.ca_file,
    )


class Fetcher:
    """Reads endpoints, a connection for each reading.

    Proxies of the environment are not used, and a redirect is not followed: a token would go
    where nobody meant it to go.

    Args:
        access: Credentials, certificates and time.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    def __call__(self, url: str) -> bytes:
        """What the endpoint answers.

        Raises:
            ScrapeError: Nothing that could be read, in one line and without a secret.
        """
        ends_s = time.monotonic() + self._access.timeout_s
        found = _URL.fullmatch(url)
        port = int(found[3] or _PORTS[found[1]]) if found else 0
        if found is None or not 0 < port <= _MAX_PORT:
            raise ScrapeError("its address is none; write http://host:port/metrics")
        scheme, host, _, target = found.groups()
        headers = self._headers(host if port == _PORTS[scheme] else f"{host}:{port}")
        context = self._context() if scheme == "https" else None
        bounds = _Bounds(ends_s, MAX_BYTES + _HEAD_BYTES)
        try:
            plain = _connected((host.strip("[]"), port), bounds)
            with plain, _wrapped(plain, context, host.strip("[]"), bounds) as channel:
                return _exchange(channel, bounds, target, headers)
        except ssl.SSLError as error:
            words = getattr(error, "verify_message", "") or error.reason or "no TLS is spoken there"
            raise ScrapeError(f"TLS: {words}; is ca_file the server's authority?") from None
        except TimeoutError:
            raise ScrapeError(f"no answer within {self._access.timeout_s:g} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The system's own words alone: a library's text may hold what was received.
            words = error.strerror if isinstance(error, OSError) else None
            name = type(error).__name__
            raise ScrapeError(f"{name}: {words}" if words else f"{name}: no whole answer") from None

    def _headers(self, host: str) -> dict[str, str]:
        headers = {
            "Host": host,
            "User-Agent": "infercost",
            "Accept": "text/plain;version=0.0.4",
            # A packed answer may unpack to a thousand times its size.
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        token = self._access.token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._access.ca_file)
        except OSError as error:
            is_read = isinstance(error, ssl.SSLError)
            words = "no certificates in it" if is_read else error.strerror
            raise ScrapeError(f"ca_file {self._access.ca_file}: cannot be used ({words})") from None


@dataclass(slots=True)
class _Bounds:
    """How long a reading may still take, and how much it may still read."""

    ends_s: float
    bytes_left: int

    def left_s(self) -> float:
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _Channel:
    """A socket as http.client uses one, with no call that waits beyond the deadline."""

    def __init__(self, channel: socket.socket, bounds: _Bounds) -> None:
        self._socket = channel
        self._bounds = bounds

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(self._bounds.left_s())
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._socket, self._bounds), _READ_BYTES)

    def close(self) -> None:
        """Leaves the closing to the one who opened it."""


class _BoundedReader(io.RawIOBase):
    """Reads of a socket, all of them within one deadline and one budget of bytes."""

    def __init__(self, channel: socket.socket, bounds: _Bounds) -> None:
        self._socket = channel
        self._bounds = bounds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # what BufferedReader gives
        if self._bounds.bytes_left <= 0:
            raise ScrapeError(f"its answer has more than {MAX_BYTES} bytes")
        self._socket.settimeout(self._bounds.left_s())
        count = self._socket.recv_into(buffer[: self._bounds.bytes_left])
        self._bounds.bytes_left -= count
        return count


def _connected(place: tuple[str, int], bounds: _Bounds) -> socket.socket:
    """A connection to the first of the host's addresses that takes one."""
    failure: OSError = TimeoutError()
    for family, kind, protocol, _, address in socket.getaddrinfo(*place, type=socket.SOCK_STREAM):
        channel = socket.socket(family, kind, protocol)
        try:
            channel.settimeout(bounds.left_s())
            channel.connect(address)
        except OSError as error:
            channel.close()
            failure = error
        else:
            return channel
    raise failure


def _wrapped(
    plain: socket.socket, context: ssl.SSLContext | None, host: str, bounds: _Bounds
) -> socket.socket:
    if context is None:
        return plain
    plain.settimeout(bounds.left_s())
    return context.wrap_socket(plain, server_hostname=host)


def _exchange(
    channel: socket.socket, bounds: _Bounds, target: str, headers: dict[str, str]
) -> bytes:
    connection = http.client.HTTPConnection(headers["Host"])
    # A socket of our own: the library's would know nothing of the deadline.
    connection.sock = _Channel(channel, bounds)
    connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    with connection.getresponse() as response:
        _judge(response)
        body = response.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise ScrapeError(f"its answer has more than {MAX_BYTES} bytes")
        if response.length:
            raise http.client.IncompleteRead(b"")
    return body


def _judge(response: http.client.HTTPResponse) -> None:
    status = response.status
    if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        raise ScrapeError(f"HTTP {status}: it wants a token, or another one; see token_file")
    if status // 100 == 3:  # noqa: PLR2004 - the class of redirects
        raise ScrapeError(f"HTTP {status}: it sends us elsewhere; write that address into url")
    if status == http.HTTPStatus.NOT_FOUND:
        raise ScrapeError("HTTP 404: no metrics there; are they switched on, is the path right?")
    if status != http.HTTPStatus.OK:
        raise ScrapeError(f"HTTP {status}")
    if (response.getheader("Content-Encoding") or "identity").strip().lower() != "identity":
        raise ScrapeError("its answer is packed, though we asked for a plain one")
