"""What every run against a server shares: the server, its client, and the identity of both."""

from __future__ import annotations

import time
from typing import Any

from costprobe_probes.served.explain import explain
from costprobe_probes.served.http import ServerConnection
from costprobe_probes.served.load import Outcomes
from costprobe_probes.served.outcome import ServerError
from costprobe_probes.served.registry import client_of
from costprobe_probes.served.target import parse_target
from costprobe_probes.wire import Wire

# Timeout of optional queries, in s.
QUERY_TIMEOUT_S = 2.0


class ServerRun:
    """A request of the daemon about a server.

    Args:
        wire: Pipe to the daemon.
        request: The request, as parsed JSON.
        min_window_s: Shortest window in seconds.

    Raises:
        ProbeConfigError: The request is invalid.
    """

    def __init__(self, wire: Wire, request: dict[str, Any], min_window_s: float) -> None:
        self._min_window_s = min_window_s
        self._started_s = time.monotonic()
        self._wire = wire
        self._request = request
        self._target = parse_target(request["url"], request["ca_file"], request["token_file"])
        self._client = client_of(request, self._target.path)

    def _check(self, outcomes: Outcomes) -> None:
        if outcomes.is_mostly_failed():
            raise self._explained(outcomes)
        if not outcomes.replies:
            raise ServerError(
                f"{self._target.name}: no response in time: set a longer sample_cap_s"
            )

    def _explained(self, outcomes: Outcomes) -> Exception:
        return explain(
            outcomes,
            target=self._target,
            client=self._client,
            connection=self._query_connection(),
        )

    def _connection(self) -> ServerConnection:
        return ServerConnection(self._target, self._request["timeout_s"])

    def _query_connection(self) -> ServerConnection:
        return ServerConnection(self._target, min(self._request["timeout_s"], QUERY_TIMEOUT_S))

    def _software(self) -> dict[str, str]:
        """Return the identity of the measurement: the server, its model and the workload."""
        request, connection = self._request, self._query_connection()
        try:
            facts = dict(self._client.facts(connection))
        finally:
            connection.close()
        if connection.server:
            facts["server"] = connection.server
        facts.update(kind=request["kind"], address=self._target.name, model=request["model"])
        return facts

    def _cache_hits(self) -> int | None:
        connection = self._query_connection()
        try:
            return self._client.cache_hits(connection)
        finally:
            connection.close()

    def _hits_since(self, before: int | None) -> int | None:
        now = None if before is None else self._cache_hits()
        return None if before is None or now is None else now - before
