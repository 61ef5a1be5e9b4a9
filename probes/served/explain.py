"""Why a load cannot go on, in words that say how to mend it."""

from __future__ import annotations

from probes.errors import ConfigError
from probes.served.http import Connection
from probes.served.load import Outcomes, counted
from probes.served.outcome import Failed, ServerError, ServerKind
from probes.served.target import Target

_CREDENTIALS = {"http_401", "http_403"}
# What a client error is that is none: the server asks to come again later.
_LATER = {"http_408", "http_425", "http_429"}
_HINTS = {
    "refused": "is the server up, and url right?",
    "unreachable": "is url right, and the network up?",
    "timeout": "set a longer timeout_s, or a smaller max_tokens or concurrency",
    "tls": "is ca_file the server's authority?",
    "no_tokens": "set another prompt",
}


def explained(
    outcomes: Outcomes, *, target: Target, kind: ServerKind, aside: Connection
) -> Exception:
    """An error that names the commonest failure and what to do about it.

    Args:
        outcomes: Of a load, with failures.
        target: The server.
        kind: How it is spoken to.
        aside: A connection to ask the server on.
    """
    common = next(iter(counted(outcomes.failed)))
    example = next(x for x in outcomes.failed if x.kind == common)
    sent = len(outcomes.failed) + len(outcomes.replies)
    told = f"{target.name}: {len(outcomes.failed)} of {sent} requests failed, mostly {common}"
    status = common[len("http_") :] if common.startswith("http_") else ""
    if common in _CREDENTIALS:
        had = "a valid token" if target.token is not None else "the server's token"
        return ConfigError(f"{told}: set token_path to a file that holds {had}")
    if common == "http_404":
        return ConfigError(f"{told}: {_unknown(kind, aside)}")
    if status.startswith("3"):
        return ConfigError(
            f"{told}: it redirects, which is not followed; set url to where it leads"
        )
    if status.startswith("4") and common not in _LATER:
        return ConfigError(f"{told}: {_said(example)}; {_unknown(kind, aside)}")
    if common == "tls":
        return ConfigError(f"{told}: {_said(example)}; {_HINTS[common]}")
    return ServerError(f"{told}: {_said(example)}; {_HINTS.get(common, 'see the server log')}")


def _said(failed: Failed) -> str:
    return failed.words or "it gave no reason"


def _unknown(kind: ServerKind, aside: Connection) -> str:
    try:
        offers = kind.offers(aside)
    finally:
        aside.close()
    if offers:
        return f"set model to one that it offers ({', '.join(offers)})"
    return "are url and model right? It lists no models"
