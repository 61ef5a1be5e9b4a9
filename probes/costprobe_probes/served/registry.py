"""The kinds of server: a new kind is a module in this folder and a line in SERVERS."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from costprobe_probes.errors import ProbeConfigError

if TYPE_CHECKING:  # the daemon, which reads the table, does not need the clients' HTTP
    from costprobe_probes.served.outcome import ServerClient

# Probe kind -> module and class that implements ServerClient, imported on first use.
SERVERS: Mapping[str, tuple[str, str]] = {
    "kserve": ("costprobe_probes.served.kserve", "KserveClient"),
    "openai": ("costprobe_probes.served.openai", "OpenAiClient"),
}


def client_of(request: dict[str, Any], base_path: str) -> ServerClient:
    """Construct the client of a request's kind of server.

    Args:
        request: The request, as parsed JSON.
        base_path: Path of the server's URL.

    Raises:
        ProbeConfigError: No such kind, or the request is not valid for it.
    """
    kind = request["kind"]
    if kind not in SERVERS:
        raise ProbeConfigError(
            f"no server kind {kind!r}; known kinds: {', '.join(sorted(SERVERS))}"
        )
    module, name = SERVERS[kind]
    client: ServerClient = getattr(importlib.import_module(module), name)(request, base_path)
    return client
