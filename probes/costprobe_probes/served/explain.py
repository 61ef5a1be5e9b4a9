"""Error messages for a failed load, each with its fix."""

from __future__ import annotations

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.served.http import ServerConnection
from costprobe_probes.served.load import Outcomes, count_by_kind
from costprobe_probes.served.outcome import Failed, ServerClient, ServerError
from costprobe_probes.served.target import ServerTarget

_CREDENTIALS = {"http_401", "http_403"}
# Statuses of the 4xx class that ask the client to retry later.
_LATER = {"http_408", "http_425", "http_429"}
_HINTS = {
    "refused": "check that the server is running, and url",
    "unreachable": "check url and the network",
    "timeout": "set a longer timeout_s, or a smaller max_tokens or concurrency",
    "tls": "check that ca_file contains the server's certificate authority",
    "no_tokens": "set another prompt",
}


def explain(
    outcomes: Outcomes, *, target: ServerTarget, client: ServerClient, connection: ServerConnection
) -> Exception:
    """Return an error that names the most frequent failure and its fix.

    Args:
        outcomes: Outcomes of a load, with at least one failure.
        target: The server.
        client: Client of the server.
        connection: A connection for queries.
    """
    common = next(iter(count_by_kind(outcomes.failed)))
    example = next(x for x in outcomes.failed if x.kind == common)
    sent = len(outcomes.failed) + len(outcomes.replies)
    summary = f"{target.name}: {len(outcomes.failed)} of {sent} requests failed, mostly {common}"
    status = common[len("http_") :] if common.startswith("http_") else ""
    if common in _CREDENTIALS:
        credential = "a valid token" if target.token is not None else "the server's token"
        return ProbeConfigError(f"{summary}: set token_file to a file that holds {credential}")
    if common == "http_404":
        return ProbeConfigError(f"{summary}: {_unknown_model(client, connection)}")
    if status.startswith("3"):
        return ProbeConfigError(
            f"{summary}: it redirects, and redirects are not followed; set url to the target"
        )
    if status.startswith("4") and common not in _LATER:
        return ProbeConfigError(
            f"{summary}: {_reason(example)}; {_unknown_model(client, connection)}"
        )
    if common == "tls":
        return ProbeConfigError(f"{summary}: {_reason(example)}; {_HINTS[common]}")
    return ServerError(f"{summary}: {_reason(example)}; {_HINTS.get(common, 'see the server log')}")


def _reason(failed: Failed) -> str:
    return failed.message or "no reason given"


def _unknown_model(client: ServerClient, connection: ServerConnection) -> str:
    try:
        offers = client.model_names(connection)
    finally:
        connection.close()
    if offers:
        return f"set model to one of its models ({', '.join(offers)})"
    return "check url and model; it lists no models"
