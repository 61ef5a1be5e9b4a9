"""Errors of deliveries and requests, by the reaction: retry, drop or stop; and when to retry.

One table maps HTTP status codes to the errors that they raise, with the server's message. The
Retry-After header of a response is parsed. Exponential back-off has full jitter, so that a fleet
does not retry in step. A token bucket allows bursts up to its capacity, then a steady rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from random import Random

from costprobe.adapters.host.redaction import REDACTOR, outside_text
from costprobe.core.outside import OutsideError, bounded_json, bounded_object

MAX_RETRY_AFTER_S = 3600.0
# Limits 2**failures; every maximum in use is reached before.
_DOUBLINGS_MAX = 20
# Maximum jitter added to a wait that the server requested, in s.
_ASKED_SPREAD_S = 1.0
MAX_MESSAGE_CHARS = 400
ACCEPTED = range(200, 300)
_REDIRECT = range(300, 400)
_BAD_REQUEST = 400
_TOO_LARGE = 413
_REJECTED = {_BAD_REQUEST, 409, _TOO_LARGE, 422}
_BUSY = {408, 425, 429}
_UNAUTHORIZED = {401, 403}
_NOT_FOUND = {404, 410}
_PROXY_LOGIN = 407
_SERVER_ERROR = range(500, 600)


class DeliveryError(OutsideError):
    """A request failed.

    Attributes:
        reason: Problem and fix, in one line and without secrets.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(DeliveryError):  # noqa: N818 - named for what the caller has to do
    """The server is unreachable, slow or overloaded: send the same request again later.

    Attributes:
        after_s: Seconds that the server requested (Retry-After); None if it did not.
        is_internal: True for HTTP 500, which the content of the request may cause.
    """

    def __init__(
        self, reason: str, after_s: float | None = None, *, is_internal: bool = False
    ) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.is_internal = is_internal


class Rejected(DeliveryError):  # noqa: N818 - named for what the caller has to do
    """The server will never accept this body: split it, or drop it.

    Attributes:
        too_large: True if the body was rejected because of its size.
        doubtful: True if the response is not a JSON object: it may be that of a proxy or of another
            kind of server, which rejects everything.
        dropped: Number of rejected points by the server's own count; 0 if it gave none.
    """

    def __init__(
        self, reason: str, *, too_large: bool = False, doubtful: bool = False, dropped: int = 0
    ) -> None:
        super().__init__(reason)
        self.too_large = too_large
        self.doubtful = doubtful
        self.dropped = dropped


class Misconfigured(DeliveryError):  # noqa: N818 - named for what the caller has to do
    """URL, certificates or credentials are wrong: keep the data and wait for an operator.

    Attributes:
        unauthorized: True if the server rejected the credentials, which may have been rotated.
    """

    def __init__(self, reason: str, *, unauthorized: bool = False) -> None:
        super().__init__(reason)
        self.unauthorized = unauthorized


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A server's response.

    Attributes:
        status: HTTP status code.
        headers: By lower-case name.
        body: Content, at most as long as the client's limit.
        is_truncated: True if the server sent more.
        via: The proxy that it came through, for the end of a message; empty without one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_truncated: bool = False
    via: str = ""


@dataclass(frozen=True, slots=True)
class Hints:
    """What an operator should check, by kind of error.

    Attributes:
        unauthorized: After 401 and 403.
        not_found: After 404 and 410.
        unexpected: After any other status that is not in the table.
    """

    unauthorized: str = "check the token, password or key"
    not_found: str = "check url"
    unexpected: str = "check url"


def raise_for_status(
    response: HttpResponse,
    *,
    now_s: float,
    hints: Hints = Hints(),
    is_tls: bool = True,
    name: str = "",
) -> None:
    """Return if the server accepted the request (2xx); otherwise raise an error by its status.

    | status | error |
    | --- | --- |
    | 408, 425, 429, 5xx | RetryLater, with the server's Retry-After |
    | 400, 409, 413, 422 | Rejected |
    | 401, 403, 404, 407, 410, 3xx, any other | Misconfigured |

    Args:
        response: The response.
        now_s: UTC in s since 1970, against which a Retry-After date is read.
        hints: What an operator should check.
        is_tls: False for plain HTTP: a 400 that mentions HTTPS is then a wrong scheme.
        name: Name of the server in the message; empty if the caller adds it.

    Raises:
        RetryLater: The server is overloaded or broken.
        Rejected: It will never accept this body.
        Misconfigured: Only an operator can fix it.
    """
    status = response.status
    if status in ACCEPTED:
        return
    prefix = f"{name}: " if name else ""
    reason = f"{prefix}HTTP {status}: {server_message(response.body)}{response.via}"
    if status in _BUSY or status in _SERVER_ERROR:
        after_s = retry_after_s(response.headers.get("retry-after"), now_s)
        raise RetryLater(reason, after_s, is_internal=status == _SERVER_ERROR.start)
    if status == _BAD_REQUEST and not is_tls and b"https" in response.body.lower():
        raise Misconfigured(f"{reason}; does the server expect https?")
    if status in _REJECTED:
        raise Rejected(
            reason,
            too_large=status == _TOO_LARGE,
            doubtful=json_object(response.body) is None,
        )
    if status in _UNAUTHORIZED:
        raise Misconfigured(f"{reason}; {hints.unauthorized}", unauthorized=True)
    if status in _NOT_FOUND:
        raise Misconfigured(f"{reason}; {hints.not_found}")
    if status in _REDIRECT:
        raise Misconfigured(
            f"{prefix}HTTP {status}: redirects are not followed; set url to the target{response.via}"
        )
    if status == _PROXY_LOGIN:
        raise Misconfigured(f"{reason}; the proxy requires a user and password")
    raise Misconfigured(f"{reason}; {hints.unexpected}")


def server_message(body: bytes) -> str:
    """Return the error message of a response, in one line of at most MAX_MESSAGE_CHARS.

    Args:
        body: A JSON object with `message` or `error`, a JSON string, or text.
    """
    text = body.decode(errors="replace")
    try:
        document = bounded_json(text)
    except ValueError:
        document = None
    if isinstance(document, str):
        text = document
    elif isinstance(document, dict):
        text = str(document.get("message") or document.get("error") or text)
    if REDACTOR.finds(text):
        # A server that repeats a part of the request may hide another.
        return "(the response contains a secret and is not shown)"
    return outside_text(text, MAX_MESSAGE_CHARS) or "no reason given"


def json_object(body: bytes) -> dict[str, object] | None:
    """Parse a body as a JSON object; return None if it is not one."""
    try:
        return bounded_object(body)
    except ValueError:
        return None


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Parse a Retry-After header: seconds, or a date (RFC 9110, 10.2.3).

    Args:
        value: The header; None if there was none.
        now_s: UTC in s since 1970.

    Returns:
        Seconds to wait, at most MAX_RETRY_AFTER_S; None if the header is malformed or in the past.
    """
    if value is None:
        return None
    try:
        after_s = float(value)
    except ValueError:
        import email.utils  # noqa: PLC0415 - a large package, for a form that servers rarely use

        try:
            date = email.utils.parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        after_s = aware.timestamp() - now_s
    # NaN compares as false, so it counts as malformed.
    return min(after_s, MAX_RETRY_AFTER_S) if after_s >= 0 else None


class RetryBackoff:
    """Computes the wait after each of a series of failures.

    The upper limit doubles with each failure, and the wait is uniform between `least_s` and it: "full
    jitter" (Brooker, "Exponential Backoff And Jitter", AWS 2015).

    Args:
        first_s: Upper limit after the first failure in s.
        max_s: Maximum of the upper limit in s.
        rng: Random source of the waits.
        least_s: Shortest wait in s.

    Attributes:
        failures: Failures since the last success.
    """

    def __init__(self, first_s: float, max_s: float, rng: Random, least_s: float = 0.1) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._least_s = least_s
        self._rng = rng
        self.failures = 0

    def failed(self, after_s: float | None = None) -> float:
        """Count a failure; return the seconds to wait before the next attempt.

        Args:
            after_s: Wait that the server requested (Retry-After), at most MAX_RETRY_AFTER_S: the wait
                is never shorter, and spread over another second.
        """
        self.failures += 1
        doublings = min(self.failures - 1, _DOUBLINGS_MAX)
        ceiling_s = min(self._max_s, self._first_s * 2.0**doublings)
        wait_s = self._rng.uniform(self._least_s, ceiling_s)
        if after_s is None:
            return wait_s
        return max(wait_s, min(after_s, MAX_RETRY_AFTER_S) + min(wait_s, _ASKED_SPREAD_S))

    def succeeded(self) -> None:
        """Reset the back-off after a success."""
        self.failures = 0


class TokenBucket:
    """Tokens that refill at a steady rate; the bucket starts full.

    Args:
        per_s: Tokens added per second.
        capacity: Most tokens it holds.
        now_s: Monotonic seconds.
    """

    def __init__(self, per_s: float, capacity: float, now_s: float) -> None:
        self._per_s = per_s
        self._capacity = capacity
        self._tokens = capacity
        self._filled_s = now_s

    def wait_s(self, now_s: float, tokens: float = 0.0) -> float:
        """Return the seconds until the bucket holds `tokens`; 0.0 if it does now.

        Args:
            now_s: Monotonic seconds.
            tokens: Number of tokens; with 0, the wait ends when the bucket is no longer overdrawn.
        """
        self._tokens = min(self._capacity, self._tokens + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return max(0.0, (tokens - self._tokens) / self._per_s)

    def take(self, tokens: float = 1.0) -> None:
        """Remove tokens; more than there are overdraws the bucket."""
        self._tokens -= tokens
