"""The HTTP client of every adapter: limits on time and size, no redirects, no secrets in errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from costprobe import __version__
from costprobe.adapters.http.access import Destination, ExchangeLimits
from costprobe.adapters.http.errors import DeliveryError, HttpResponse, Misconfigured

if TYPE_CHECKING:
    # Loaded by the first request: most configurations send none.
    import ssl

    import urllib3

    from costprobe.adapters.http.connections import Exchange


class HttpClient:
    """Sends HTTP requests; thread-safe.

    A request is sent once, redirects are not followed, proxies of the environment are not used,
    and responses are neither requested nor decoded in compressed form.

    Args:
        limits: Limits of each exchange.
        ca_file: Certificates to trust; None for the system's. Read at the first request over TLS,
            and again after one that failed for its certificate.
        proxy: URL of an HTTP proxy, with the user and password that it requires; None for a
            direct connection.
        keep: Number of connections that are kept for further requests; with 0 each request opens one.
        further_headers: Returns headers of every request; raises Misconfigured.
    """

    def __init__(
        self,
        limits: ExchangeLimits,
        *,
        ca_file: Path | None = None,
        proxy: str | None = None,
        keep: int = 0,
        further_headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._limits = limits
        self._ca_file = ca_file
        self._proxy = proxy
        self._keep = keep
        self._further_headers = further_headers
        # Without its user.
        self._via = f" (through the proxy {proxy.rpartition('@')[2]})" if proxy else ""
        self._lock = Lock()
        self._pools: dict[tuple[bool, str | None], urllib3.PoolManager] = {}
        self._exchange: Exchange | None = None

    def request(
        self,
        method: str,
        destination: Destination,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpResponse:
        """Send a request; return the response with any status.

        Args:
            method: "GET", "POST" and so on.
            destination: The server and path.
            headers: Headers in addition to Host, Content-Length and User-Agent.
            body: Content.

        Raises:
            RetryLater: No complete response within the limits.
            Misconfigured: The URL is not valid, TLS cannot be established with these certificates, or
                a key cannot be read.
        """
        all_headers = {"User-Agent": f"costprobe/{__version__}", **self._further_headers()}
        all_headers.update(headers or {})
        if not self._keep:
            all_headers["Connection"] = "close"
        try:
            pool, exchange = self._pool(destination)
            exchange.begin()
            response = pool.request(
                method,
                destination.url,
                body=body,
                headers=all_headers,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            response.release_conn()
        except Exception as error:
            failure = self._translated(error, destination)
            if failure is None:
                raise
            # Without the cause: a library's text may contain what was sent or received.
            raise failure from None
        exchange.answered(is_ok=True)
        lower_headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(
            response.status, lower_headers, exchange.body, exchange.is_truncated, self._via
        )

    def check_certificates(self) -> None:
        """Load `ca_file`, if there is one.

        Raises:
            Misconfigured: It cannot be used.
        """
        if self._ca_file is not None:
            self._context()

    def close(self) -> None:
        """Close idle connections; the next request opens another. May be called twice."""
        with self._lock:
            for pool in self._pools.values():
                pool.clear()
            self._pools.clear()

    def _pool(self, destination: Destination) -> tuple[urllib3.PoolManager, Exchange]:
        import urllib3  # noqa: PLC0415 - the first request loads it

        from costprobe.adapters.http.connections import Exchange, limit  # noqa: PLC0415 - loads urllib3

        is_tls = destination.is_tls or (self._proxy or "").startswith("https")
        key = is_tls, destination.socket_path
        with self._lock:
            exchange = self._exchange = self._exchange or Exchange(self._limits, {})
            if key not in self._pools:
                options: dict[str, Any] = {
                    "num_pools": 1,
                    "maxsize": max(1, self._keep),
                    "timeout": None,
                }
                if is_tls:
                    options["ssl_context"] = self._context()
                if self._proxy:
                    user = urllib3.util.parse_url(self._proxy).auth
                    proxy_headers = (
                        urllib3.make_headers(proxy_basic_auth=unquote(user)) if user else None
                    )
                    options["proxy_headers"] = proxy_headers
                    pool: urllib3.PoolManager = urllib3.ProxyManager(self._proxy, **options)
                else:
                    pool = urllib3.PoolManager(**options)
                self._pools[key] = limit(
                    pool,
                    exchange=exchange,
                    is_kept=self._keep > 0,
                    socket_path=destination.socket_path,
                )
            return self._pools[key], exchange

    def _context(self) -> ssl.SSLContext:
        import ssl  # noqa: PLC0415 - the first request over TLS loads it

        from costprobe.adapters.http.connections import tls_context  # noqa: PLC0415 - loads ssl

        try:
            return tls_context(self._ca_file)
        except OSError as error:
            is_read = isinstance(error, ssl.SSLError)
            words = "no certificates in it" if is_read else error.strerror
            raise Misconfigured(f"ca_file {self._ca_file}: cannot be used ({words})") from error

    def _translated(self, error: Exception, destination: Destination) -> DeliveryError | None:
        from costprobe.adapters.http.connections import translated  # noqa: PLC0415 - loads urllib3

        failure = translated(error, destination, self._limits, self._via)
        if self._exchange is not None:
            self._exchange.answered(is_ok=False)
        if isinstance(failure, Misconfigured):
            # The file of certificates may have been replaced: the next request reads it again.
            self.close()
        return failure
