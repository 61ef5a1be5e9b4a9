"""One table from HTTP answers to what they ask of us."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.model import NS_PER_S
from agent.notifying.address import Address
from agent.notifying.sender import Misconfigured, Refused, RetryLater
from agent.retry_after import retry_after_s

MAX_REASON_CHARS = 400
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
        asked = answer.headers.get("retry-after")
        raise RetryLater(reason, retry_after_s(asked, time_ns / NS_PER_S))
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
    # A terminal obeys what is not printable.
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_REASON_CHARS])
    return " ".join(shown.split())[:MAX_REASON_CHARS] or "no reason given"
