"""Client of the Open Inference Protocol v2 over HTTP (Triton, KServe)."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

from costprobe_probes.digest import digest
from costprobe_probes.served.http import Failure, ServerConnection
from costprobe_probes.served.outcome import Reply, Request, parse_json, query

MAX_MODEL_NAMES = 10


class KserveClient:
    """Send fixed tensors to one model.

    Args:
        request: Request with model, inputs, and version if it is fixed.
        base_path: Path of the URL, with or without the protocol's /v2.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._root = base_path if base_path.endswith("/v2") else base_path + "/v2"
        self._model = f"{self._root}/models/{urllib.parse.quote(request['model'], safe='')}"
        self._version = str(request.get("version") or "")
        if self._version:
            self._model += f"/versions/{urllib.parse.quote(self._version, safe='')}"
        self._inputs = digest(json.dumps(request["inputs"], sort_keys=True).encode())
        self._body = json.dumps({"inputs": request["inputs"]}).encode()

    def next_request(self) -> Request:
        """Return the same request each time: it sends the tensors and validates those of the response."""
        return self._send

    def _send(self, connection: ServerConnection) -> Reply:
        content = bytearray()

        def collect(data: bytes, _: int) -> bool:
            content.extend(data)
            return False

        exchange = connection.exchange("POST", f"{self._model}/infer", self._body, collect)
        _check(parse_json(bytes(content)))
        return Reply(exchange.start_ns, exchange.end_ns)

    def prepare(self, connection: ServerConnection) -> None:
        """Do nothing: each request has the same tensors."""

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""
        facts = {"inputs": self._inputs, "version": self._version or "server default"}
        server = query(connection, "GET", self._root)
        model = query(connection, "GET", self._model)
        for answer, names in (
            (server, {"name": "server_name", "version": "server_version"}),
            (model, {"platform": "platform", "versions": "model_versions"}),
        ):
            if isinstance(answer, dict):
                values = {fact: answer.get(name) for name, fact in names.items()}
                facts.update((k, connection.excerpt(str(v))) for k, v in values.items() if v)
        return facts

    def cache_hits(self, connection: ServerConnection) -> int | None:
        """Return the hits of Triton's response cache, from its statistics extension."""
        answer = query(connection, "GET", f"{self._model}/stats")
        entries = answer.get("model_stats") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            return None
        counts = [_cache_hits(entry) for entry in entries]
        known_counts = [count for count in counts if count is not None]
        return sum(known_counts) if known_counts else None

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models in the server's repository, if it supports that extension."""
        listed = query(connection, "POST", f"{self._root}/repository/index")
        entries = listed[:MAX_MODEL_NAMES] if isinstance(listed, list) else []
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        return [connection.excerpt(name) for name in names if isinstance(name, str)]


def _cache_hits(entry: object) -> int | None:
    """Return the cache hits in the statistics of one version of a model."""
    for name in ("inference_stats", "cache_hit", "count"):
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry if type(entry) is int else None


def _check(answer: object) -> None:
    """Raise Failure unless the response has tensors whose lengths match their shapes."""
    outputs = answer.get("outputs") if isinstance(answer, dict) else None
    if not isinstance(outputs, list) or not outputs:
        raise Failure("bad_answer", "the response has no outputs")
    for output in outputs:
        if not isinstance(output, dict) or not isinstance(output.get("name"), str):
            raise Failure("bad_answer", "an output of the response has no name")
        shape, data = output.get("shape"), output.get("data")
        if not isinstance(shape, list) or not isinstance(data, list):
            raise Failure("bad_answer", "an output of the response has no shape or no data")
        if _length(data) != _product(shape):
            raise Failure("bad_answer", "the length of an output does not match its shape")


def _product(shape: list[Any]) -> int:
    product = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise Failure("bad_answer", "an output of the response has an invalid shape")
        product *= size
    return product


def _length(data: list[Any]) -> int:
    """Count the elements of a flat or nested tensor; the depth of JSON is bounded."""
    if not data or not isinstance(data[0], list):
        return len(data)  # fast path: the server waits for its next request
    return sum(_length(x) if isinstance(x, list) else 1 for x in data)
