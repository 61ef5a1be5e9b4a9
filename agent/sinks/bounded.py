"""Connections to databases that read no more, and wait no longer, than they were told.

urllib3's timeouts are of each wait: a server that drips may keep a request for hours, and one that
never ends its answer fills the memory. Here each step of an exchange (to connect, to send, to
receive the whole answer) ends within the request's timeout, and an answer is cut.
"""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from agent.sinks.settings import SinkSettings

MAX_ANSWER_BYTES: Final = 64 * 1024
# Connections that are kept, and so requests that a sink may be given at once.
AT_ONCE: Final = 2


def pool_of(settings: SinkSettings) -> urllib3.PoolManager:
    """Bounded connections to a sink's server, by its proxy and its authority; nothing is repeated."""
    options: dict[str, Any] = {
        "num_pools": 1,
        "maxsize": AT_ONCE,
        "cert_reqs": "CERT_REQUIRED",
        "ca_certs": str(settings.ca_file) if settings.ca_file else None,
        "timeout": urllib3.Timeout(total=settings.timeout_s),
        "retries": False,
    }
    if settings.proxy:
        return bounded(urllib3.ProxyManager(settings.proxy, **options))
    return bounded(urllib3.PoolManager(**options))


def bounded(pool: urllib3.PoolManager) -> urllib3.PoolManager:
    """The same pool, whose connections to come are bounded."""
    pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pool


class _Bounded(HTTPConnection):
    """A connection whose steps have a deadline, and whose answers a size."""

    _plain: socket.socket | None = None

    def _new_conn(self) -> socket.socket:
        self._plain = super()._new_conn()
        return self._plain

    def connect(self) -> None:
        """Connects and shakes hands."""
        with self._deadline():
            super().connect()

    def request(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as the library calls it
        """Sends a request; its answer is read by `getresponse`, whatever the caller asks for."""
        with self._deadline():
            super().request(*args, **{**options, "preload_content": False, "decode_content": False})

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override] # as urllib3 has it
        """The whole answer, or its beginning where it is too long."""
        with self._deadline():
            answer = super().getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
            # Only a connection that was read to its end serves on.
            if len(content) == MAX_ANSWER_BYTES and answer.read(1):
                self.close()
        return urllib3.HTTPResponse(
            body=io.BytesIO(content),
            headers=answer.headers,
            status=answer.status,
            version=answer.version,
            reason=answer.reason,
            preload_content=False,
            decode_content=False,
            enforce_content_length=False,
        )

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """Cuts the connection under whoever waits for it too long."""
        is_cut = threading.Event()

        def cut() -> None:
            is_cut.set()
            if self._plain is not None:
                with suppress(OSError):
                    socket.socket.shutdown(self._plain, socket.SHUT_RDWR)

        # Without a number it is the system's own, and there is nothing to keep to.
        left_s = self.timeout if isinstance(self.timeout, int | float) else threading.TIMEOUT_MAX
        timer = threading.Timer(left_s, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:
            if is_cut.is_set():
                # Without the cause: to the caller, it is as if nothing had come.
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
        if is_cut.is_set():
            # The library takes an end within the headers for the end of the headers.
            self.close()
            raise TimeoutError


class _BoundedTls(_Bounded, HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Bounded


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _BoundedTls
