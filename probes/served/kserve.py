"""Servers that speak the open inference protocol v2 over HTTP, as Triton and KServe do."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

from probes.digest import digest
from probes.served.http import Connection, Failure
from probes.served.outcome import Reply, asked, parsed

MAX_OFFERS = 10


class Server:
    """Requests of fixed tensors to one model.

    Args:
        request: With model, inputs, and version if it is to be a certain one.
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

    def send(self, connection: Connection) -> Reply:
        """Sends the tensors and checks those that come back.

        Raises:
            Failure: The answer holds no whole tensors.
        """
        content = bytearray()

        def take(data: bytes, _: int) -> bool:
            content.extend(data)
            return False

        exchange = connection.exchange("POST", f"{self._model}/infer", self._body, take)
        _check(parsed(bytes(content)))
        return Reply(exchange.start_ns, exchange.end_ns)

    def facts(self, connection: Connection) -> dict[str, str]:
        """What identifies the work, and what the server says of its model and version."""
        found = {"inputs": self._inputs, "version": self._version or "as the server chooses"}
        server = asked(connection, "GET", self._root)
        model = asked(connection, "GET", self._model)
        for answer, names in (
            (server, {"name": "server_name", "version": "server_version"}),
            (model, {"platform": "platform", "versions": "model_versions"}),
        ):
            if isinstance(answer, dict):
                said = {fact: answer.get(name) for name, fact in names.items()}
                found.update((k, connection.words(str(v))) for k, v in said.items() if v)
        return found

    def offers(self, connection: Connection) -> list[str]:
        """Names of the models in the server's repository, where it has that extension."""
        listed = asked(connection, "POST", f"{self._root}/repository/index")
        entries = listed[:MAX_OFFERS] if isinstance(listed, list) else []
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        return [connection.words(name) for name in names if isinstance(name, str)]


def _check(answer: object) -> None:
    """Raises a Failure unless the answer has tensors, each as long as its shape says."""
    outputs = answer.get("outputs") if isinstance(answer, dict) else None
    if not isinstance(outputs, list) or not outputs:
        raise Failure("bad_answer", "its answer has no outputs")
    for output in outputs:
        if not isinstance(output, dict) or not isinstance(output.get("name"), str):
            raise Failure("bad_answer", "an output of its answer has no name")
        shape, data = output.get("shape"), output.get("data")
        if not isinstance(shape, list) or not isinstance(data, list):
            raise Failure("bad_answer", "an output of its answer has no shape or no data")
        if _length(data) != _product(shape):
            raise Failure("bad_answer", "an output of its answer is not as long as its shape says")


def _product(shape: list[Any]) -> int:
    product = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise Failure("bad_answer", "an output of its answer has a shape that is none")
        product *= size
    return product


def _length(data: list[Any]) -> int:
    """Elements of a tensor, which the protocol lets be flat or nested; JSON's depth is bounded."""
    if not data or not isinstance(data[0], list):
        return len(data)  # at once: the server waits for its next request
    return sum(_length(x) if isinstance(x, list) else 1 for x in data)
