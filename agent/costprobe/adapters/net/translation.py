"""Translation of the errors of urllib3, http.client, ssl and the system to DeliveryErrors."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Sequence

import urllib3

from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import DeliveryError, Misconfigured, RetryLater
from costprobe.adapters.net.limits import ExchangeLimits, ResponseTooLargeError

_OURS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)
_WRAPPERS = (urllib3.exceptions.ProtocolError, urllib3.exceptions.ProxyError)
_TIMEOUTS = (TimeoutError, urllib3.exceptions.TimeoutError)
# The server closed the connection: it may be restarting.
_TLS_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def translated(
    error: Exception, destination: Destination, limits: ExchangeLimits
) -> DeliveryError | None:
    """Return the DeliveryError of a failed request; None for an error that is not of a request.

    The reason contains the message of the system, never that of a library, which may contain parts
    of the request or the response.

    Args:
        error: The raised error.
        destination: Destination of the request.
        limits: Its limits.
    """
    if isinstance(error, ResponseTooLargeError):
        most_bytes = limits.max_header_bytes
        return RetryLater(
            destination.message(f"the response has a header of more than {most_bytes} bytes")
        )
    if isinstance(error, DeliveryError):
        return error
    if not isinstance(error, _OURS):
        return None
    return _of_request(list(_causes(error)), destination, limits)


def _of_request(
    causes: Sequence[BaseException], destination: Destination, limits: ExchangeLimits
) -> DeliveryError:
    if any(isinstance(cause, _TIMEOUTS) for cause in causes):
        limit_s = limits.total_s or limits.step_s
        return RetryLater(destination.message(f"no response within {limit_s:g} s"))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None and not isinstance(tls, _TLS_ENDED):
        words = getattr(tls, "verify_message", "") or tls.reason or "the server does not use TLS"
        host = urllib3.util.parse_url(destination.url).host or destination.name
        shown = words.replace(host, "the host")
        return Misconfigured(
            destination.message(f"TLS: {shown}; is ca_file the server's authority?")
        )
    if any(isinstance(cause, urllib3.exceptions.LocationValueError) for cause in causes):
        return Misconfigured(destination.message("not a valid http or https URL"))
    system = next((c for c in causes if isinstance(c, OSError) and c.strerror), None)
    if isinstance(system, OSError):
        return RetryLater(destination.message(f"{type(system).__name__}: {system.strerror}"))
    name = type(next((c for c in causes if not isinstance(c, _WRAPPERS)), causes[0])).__name__
    return RetryLater(destination.message(f"{name}: no complete response"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it wraps; urllib3 stores the original among its arguments."""
    yield error
    for argument in error.args:
        if isinstance(argument, BaseException):
            yield from _causes(argument)
