"""One table from a database's HTTP answers to what they ask of us."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from agent.retry_after import retry_after_s
from agent.sinks.errors import Misconfigured, Rejected, RetryLater

MAX_REASON_CHARS = 400
_TAKEN = 204
_OK = range(200, 300)
_REDIRECT = range(300, 400)
_REFUSED_LINES = {400, 422}
_TOO_LARGE = 413
_BUSY = {408, 425, 429}
_UNAUTHORIZED = {401, 403}
_NOT_FOUND = 404
_SERVER = range(500, 600)


def judge(
    status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str] = ()
) -> None:
    """Returns if the lines were taken, else raises what to do.

    Args:
        status: HTTP status.
        headers: Of the answer, names in any case.
        body: Of the answer.
        secrets: What the request held and no message may.

    Raises:
        RetryLater: The server is busy or broken.
        Rejected: It refuses something in the lines, or how many they are.
        Misconfigured: Anything that only an operator can mend.
    """
    if status == _TAKEN or (status in _OK and not body.strip()):
        return
    reason = f"HTTP {status}: {reason_of(body, secrets)}"
    if status in _OK:
        # Every InfluxDB answers a write with 204; a page that greets is someone else's.
        raise Misconfigured(f"{reason}; that is no database's answer: check url")
    if status in _BUSY or status in _SERVER:
        named = {name.lower(): value for name, value in headers.items()}
        raise RetryLater(reason, retry_after_s(named.get("retry-after"), time.time()))
    if status in _REFUSED_LINES:
        raise Rejected(reason, doubtful=_document(body) is None)
    if status == _TOO_LARGE:
        raise Rejected(reason, too_large=True)
    if status in _UNAUTHORIZED:
        raise Misconfigured(f"{reason}; check the token or password", unauthorized=True)
    if status == _NOT_FOUND:
        raise Misconfigured(
            f"{reason}; check url, api, org, and that the bucket or database is there"
        )
    if status in _REDIRECT:
        raise Misconfigured(f"HTTP {status}: redirects are not followed; set url to the target")
    raise Misconfigured(f"{reason}; check url and api")


def reason_of(body: bytes, secrets: Sequence[str] = ()) -> str:
    """The server's own words, shortened; withheld if they hold a secret.

    They are the message of its JSON, or the text.
    """
    text = body.decode(errors="replace").strip()
    document = _document(body)
    if document is not None:
        text = str(document.get("message") or document.get("error") or text)
    folded = text.casefold()
    if any(secret.casefold() in folded for secret in secrets):
        return "(the answer holds a secret and is not shown)"
    # A terminal obeys what is not printable.
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_REASON_CHARS])
    return " ".join(shown.split())[:MAX_REASON_CHARS] or "no reason given"


def _document(body: bytes) -> dict[str, object] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def words_of(error: Exception) -> str:
    """What went wrong on the way to a server, shortened; the library's names none of our secrets."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_REASON_CHARS]
