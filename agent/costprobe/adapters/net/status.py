"""The table of HTTP status codes and the errors that they raise, and the server's message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costprobe.adapters.net.errors import Misconfigured, Rejected, RetryLater
from costprobe.adapters.net.retry_after import retry_after_s
from costprobe.adapters.system.outside_text import outside_text
from costprobe.core.bounded import bounded_json, bounded_object

MAX_MESSAGE_CHARS = 400
ACCEPTED = range(200, 300)
_REDIRECT = range(300, 400)
_BAD_REQUEST = 400
_TOO_LARGE = 413
_REJECTED = {_BAD_REQUEST, 409, _TOO_LARGE, 422}
_BUSY = {408, 425, 429}
_UNAUTHORIZED = {401, 403}
_NOT_FOUND = {404, 410}
_SERVER_ERROR = range(500, 600)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A server's response.

    Attributes:
        status: HTTP status code.
        headers: By lower-case name.
        body: Content, at most as long as the client's limit.
        is_truncated: True if the server sent more.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_truncated: bool = False


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
    secrets: Sequence[str] = (),
    hints: Hints = Hints(),
    is_tls: bool = True,
    name: str = "",
) -> None:
    """Return if the server accepted the request (2xx); otherwise raise an error by its status.

    | status | error |
    | --- | --- |
    | 408, 425, 429, 5xx | RetryLater, with the server's Retry-After |
    | 400, 409, 413, 422 | Rejected |
    | 401, 403, 404, 410, 3xx, any other | Misconfigured |

    Args:
        response: The response.
        now_s: UTC in s since 1970, against which a Retry-After date is read.
        secrets: Secrets of the request, which no message may contain.
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
    reason = f"{prefix}HTTP {status}: {server_message(response.body, secrets)}"
    if status in _BUSY or status in _SERVER_ERROR:
        raise RetryLater(reason, retry_after_s(response.headers.get("retry-after"), now_s))
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
            f"{prefix}HTTP {status}: redirects are not followed; set url to the target"
        )
    raise Misconfigured(f"{reason}; {hints.unexpected}")


def server_message(body: bytes, secrets: Sequence[str] = ()) -> str:
    """Return the error message of a response, in one line of at most MAX_MESSAGE_CHARS.

    Args:
        body: A JSON object with `message` or `error`, a JSON string, or text.
        secrets: If the body contains one of them or of the redactor's, it is withheld.
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
    lowered = text.casefold()
    if any(secret.casefold() in lowered for secret in secrets):
        return "(the response contains a secret and is not shown)"
    return outside_text(text, MAX_MESSAGE_CHARS) or "no reason given"


def json_object(body: bytes) -> dict[str, object] | None:
    """Parse a body as a JSON object; return None if it is not one."""
    try:
        return bounded_object(body)
    except ValueError:
        return None
