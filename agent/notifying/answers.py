"""One table from HTTP answers to what they ask of us."""

from __future__ import annotations

import email.utils
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import NamedTuple

from agent.model import NS_PER_S
from agent.notifying.address import Address
from agent.notifying.sender import Misconfigured, Refused, RetryLater

MAX_REASON_CHARS = 400
MAX_RETRY_AFTER_S = 3600.0
_TAKEN = range(200, 300)
_REDIRECT = range(300, 400)
_BAD_REQUEST = 400
_REFUSED = {_BAD_REQUEST, 409, 413, 422}
_BUSY = {408, 425, 429}
_UNAUTHORIZED = {401, 403}
_GONE = {404, 410}
_SERVER = range(500, 600)


class Answer(NamedTuple):
    """What a server said; header names in lower case, the body perhaps cut."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def judge(answer: Answer, address: Address, time_ns: int, secrets: Sequence[str]) -> None:
    """Returns if an answer says that the message was taken, else raises what to do.

    Raises:
        RetryLater: The server is busy or broken.
        Refused: It will never take this message.
        Misconfigured: Anything that only an operator can mend.
    """
    status = answer.status
    if status in _TAKEN:
        return
    words = reason_of(answer.body, secrets)
    reason = f"{address.name}: HTTP {status}: {words}"
    if status in _BUSY or status in _SERVER:
        raise RetryLater(reason, retry_after_s(answer.headers.get("retry-after"), time_ns))
    if status == _BAD_REQUEST and not address.is_tls and b"https" in answer.body.lower():
        raise Misconfigured(f"{reason}; is the address one of https?")
    if status in _REFUSED:
        raise Refused(reason)
    if status in _UNAUTHORIZED:
        raise Misconfigured(f"{reason}; check the token, password or key")
    if status in _GONE:
        raise Misconfigured(f"{reason}; check the address: nothing takes messages there")
    if status in _REDIRECT:
        raise Misconfigured(
            f"{address.name}: HTTP {status}: redirects are not followed; give the target's address"
        )
    raise Misconfigured(f"{reason}; check the address")


def reason_of(body: bytes, secrets: Sequence[str]) -> str:
    """The server's own words, shortened; withheld if they hold anything of a secret."""
    text = body.decode(errors="replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, str):
        text = document
    elif isinstance(document, dict):
        text = str(document.get("message") or document.get("error") or text)
    folded = text.casefold()
    if any(secret.casefold() in folded for secret in secrets):
        return "(the answer holds a secret and is not shown)"
    return " ".join(text[: 4 * MAX_REASON_CHARS].split())[:MAX_REASON_CHARS] or "no reason given"


def retry_after_s(value: str | None, time_ns: int) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3).

    Args:
        value: The header; None if there was none.
        time_ns: UTC in ns of now.
    """
    if value is None:
        return None
    try:
        after_s = float(value)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        after_s = aware.timestamp() - time_ns / NS_PER_S
    if math.isnan(after_s) or after_s < 0:
        return None
    return min(after_s, MAX_RETRY_AFTER_S)
