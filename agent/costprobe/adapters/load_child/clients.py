"""Clients of inference servers, one for each protocol."""

from __future__ import annotations

import json
import math
import urllib.parse
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from costprobe_probes.wire import ProbeConfigError, digest

from costprobe.adapters.load_child.connection import (
    MAX_ANSWER_BYTES,
    Failure,
    Reply,
    ServerConnection,
    excerpt,
    parse_json,
    parse_target,
)
from costprobe.adapters.load_child.prompts import Prompt, Prompts
from costprobe.core.outside import read_regular

MAX_EVENT_BYTES: Final = 1024 * 1024
MAX_TOKENS: Final = 10_000_000
MAX_MODEL_NAMES: Final = 10
# Paths of the OpenAI API.
PATHS: Final = {"chat": "/chat/completions", "completions": "/completions"}
# Keys of generated text in a chunk; reasoning is generated text too.
_TEXTS: Final = {
    "chat": ("content", "reasoning_content", "reasoning", "refusal"),
    "completions": ("text",),
}
# Keys of tool calls in a chunk of a chat; an answer may consist of nothing else.
_TOOLS: Final = ("tool_calls", "function_call")
_IDENTITY: Final = ("root", "owned_by", "max_model_len")


# Sends one inference and reads its response; raises Failure if there is no valid one.
Request = Callable[[ServerConnection], Reply]


class ServerClient(ABC):
    """A client of one kind of server, constructed from a request and the path of its URL."""

    @abstractmethod
    def next_request(self) -> Request:
        """Return the next inference, ready to be sent."""

    @abstractmethod
    def facts(self, connection: ServerConnection) -> Mapping[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""

    def prepare(self, connection: ServerConnection) -> None:  # noqa: B027 - most clients need nothing
        """Send what a load curve needs to know before its first request.

        Raises:
            Failure: There is no valid response.
        """

    def cache_hits(self, connection: ServerConnection) -> int | None:  # noqa: ARG002 - the contract's
        """Return the requests that the server's response cache has answered; None if unknown."""
        return None

    def model_names(self, connection: ServerConnection) -> list[str]:  # noqa: ARG002 - as above
        """Return the models of the server; empty if it does not list them."""
        return []


class EventStream:
    """Split a stream into events: lines of data, each a JSON document of a server with this API."""

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, content: bytes) -> list[bytes]:
        """Add received bytes; return the data of the lines that they complete.

        Raises:
            Failure: A line is too long.
        """
        *complete, incomplete = content.split(b"\n")
        lines = []
        for end in complete:
            lines.append(bytes(self._line + end))
            self._line.clear()
        self._line += incomplete
        if len(self._line) > MAX_EVENT_BYTES:
            raise Failure("too_large", f"an event has more than {MAX_EVENT_BYTES} bytes")
        data = (line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:"))
        return [each for each in data if each]


class OpenAiClient(ServerClient):
    """Send prompts to one model.

    Args:
        request: With api, model, prompt, vary_prompt, max_tokens and seed, and `load` of a load curve.
        base_path: Path of the URL, with or without the API's /v1.

    Raises:
        ProbeConfigError: The file of prompts cannot be used.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._api, self._model = request["api"], request["model"]
        self._prompts = Prompts(request)
        self._root = base_path.removesuffix("/v1")
        self._path = self._root + "/v1" + PATHS[self._api]
        self._seed = request["seed"]

    def next_request(self) -> Request:
        """Return the request of the next prompt, which reads the stream of tokens."""
        return partial(self._answer, self._body(self._prompts.next()))

    def prepare(self, connection: ServerConnection) -> None:
        """Learn how the server counts tokens, with two requests, if prompts have given lengths.

        Raises:
            Failure: There is no valid response.
        """
        self._prompts.calibrate(
            lambda prompt: self._answer(self._body(prompt), connection).tokens_in
        )

    def _answer(self, body: bytes, connection: ServerConnection) -> Reply:
        stream = _TokenStream(self._api)
        return stream.reply(connection.exchange("POST", self._path, body, stream.consume))

    def _body(self, prompt: Prompt) -> bytes:
        is_chat = self._api == "chat"
        messages = {"messages": [{"role": "user", "content": prompt.text}]}
        body = {
            "model": self._model,
            **(messages if is_chat else {"prompt": prompt.text}),
            "max_tokens": prompt.max_tokens,
            # An extension of vLLM, SGLang and others.
            **({"ignore_eos": True} if prompt.ignores_end else {}),
            "temperature": 0,
            "seed": self._seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(body).encode()

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""
        facts = {"api": self._api, **self._prompts.facts()}
        for entry in _listed_models(connection, self._root):
            if entry["id"] == self._model:
                identity = {name: entry.get(name) for name in _IDENTITY}
                facts.update((k, excerpt(str(v))) for k, v in identity.items() if v)
        version = connection.query("GET", f"{self._root}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            facts["server_version"] = excerpt(version["version"])
        return facts

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models that the server lists."""
        entries = _listed_models(connection, self._root)[:MAX_MODEL_NAMES]
        return [excerpt(entry["id"]) for entry in entries]


def _listed_models(connection: ServerConnection, root: str) -> list[dict[str, Any]]:
    answer = connection.query("GET", f"{root}/v1/models")
    listed = answer.get("data") if isinstance(answer, dict) else None
    entries = listed if isinstance(listed, list) else []
    return [x for x in entries if isinstance(x, dict) and isinstance(x.get("id"), str)]


def models_of(url: str, timeout_s: float) -> list[str]:
    """Return the models that a server with the OpenAI API lists; none if it does not answer.

    Raises:
        ValueError: The URL is malformed.
    """
    try:
        target = parse_target(url, None, None)
    except ProbeConfigError as error:
        raise ValueError(str(error)) from None
    with closing(ServerConnection(target, timeout_s)) as connection:
        return [
            entry["id"] for entry in _listed_models(connection, target.path.removesuffix("/v1"))
        ]


class _TokenStream:
    """Parse the events of a response and record when generated text arrived."""

    def __init__(self, api: str) -> None:
        self._is_chat = api == "chat"
        self._texts, self._tools = _TEXTS[api], _TOOLS if self._is_chat else ()
        self._arrivals_ns = array("q")
        self._events = EventStream()
        self._counts: tuple[int | None, int | None, int | None] = (None, None, None)
        self._is_finished = False

    def consume(self, data: bytes, now_ns: int) -> bool:
        for event in self._events.feed(data):
            if event == b"[DONE]":
                self._is_finished = True
                return True
            self._chunk(parse_json(event), now_ns)
        return False

    def reply(self, exchange: Reply) -> Reply:
        if not self._is_finished:
            raise Failure("truncated", "the stream of tokens was truncated")
        if not self._arrivals_ns:
            raise Failure("no_tokens", "the model generated nothing for this prompt")
        return Reply(exchange.start_ns, exchange.end_ns, self._arrivals_ns, *self._counts)

    def _chunk(self, chunk: object, now_ns: int) -> None:
        if not isinstance(chunk, dict):
            raise Failure("bad_answer", "an event of the stream is not an object")
        if chunk.get("error"):
            raise Failure("server_error", "the server reported an error within the stream")
        choices = chunk.get("choices") or [{}]
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise Failure("bad_answer", "an event of the stream has no choices")
        piece = choice.get("delta") if self._is_chat else choice
        if isinstance(piece, dict):
            texts = (text for name in self._texts if isinstance(text := piece.get(name), str))
            if any((*texts, *map(piece.get, self._tools))):
                self._arrivals_ns.append(now_ns)
        # Not every server ends with [DONE].
        self._is_finished = self._is_finished or choice.get("finish_reason") is not None
        if isinstance(chunk.get("usage"), dict):
            self._counts = _counts(chunk["usage"])


def _counts(usage: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return tokens in and out, and those that a prefix cache answered; None if the server does not count."""
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if tokens_in is None or tokens_out is None or tokens_out == 0:
        return None, None, cached
    counts = _count(tokens_in), _count(tokens_out)
    if None in counts:
        raise Failure("bad_answer", "the usage object has no token counts")
    return *counts, cached


def _count(value: Any) -> int | None:  # noqa: ANN401 - any JSON value
    """Return a count of tokens, None if it is none; some servers write 7.0 for 7."""
    is_number = type(value) in (int, float) and 0 <= value <= MAX_TOKENS
    return round(value) if is_number else None


class KserveClient(ServerClient):
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
        reply, answer = connection.request("POST", f"{self._model}/infer", self._body)
        _check_tensors(answer)
        return reply

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""
        facts = {"inputs": self._inputs, "version": self._version or "server default"}
        server = connection.query("GET", self._root)
        model = connection.query("GET", self._model)
        for answer, names in (
            (server, {"name": "server_name", "version": "server_version"}),
            (model, {"platform": "platform", "versions": "model_versions"}),
        ):
            if isinstance(answer, dict):
                values = {fact: answer.get(name) for name, fact in names.items()}
                facts.update((k, excerpt(str(v))) for k, v in values.items() if v)
        return facts

    def cache_hits(self, connection: ServerConnection) -> int | None:
        """Return the hits of Triton's response cache, from its statistics extension."""
        answer = connection.query("GET", f"{self._model}/stats")
        entries = answer.get("model_stats") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            return None
        counts = [_cache_hits(entry) for entry in entries]
        known_counts = [count for count in counts if count is not None]
        return sum(known_counts) if known_counts else None

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models in the server's repository, if it supports that extension."""
        listed = connection.query("POST", f"{self._root}/repository/index")
        entries = listed[:MAX_MODEL_NAMES] if isinstance(listed, list) else []
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        return [excerpt(name) for name in names if isinstance(name, str)]


def _cache_hits(entry: object) -> int | None:
    """Return the cache hits in the statistics of one version of a model."""
    for name in ("inference_stats", "cache_hit", "count"):
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry if type(entry) is int else None


def _check_tensors(answer: object) -> None:
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
    if not all(type(size) is int and size >= 0 for size in shape):
        raise Failure("bad_answer", "an output of the response has an invalid shape")
    return math.prod(shape)


def _length(data: list[Any]) -> int:
    """Count the elements of a flat or nested tensor; the depth of JSON is bounded."""
    if not data or not isinstance(data[0], list):
        return len(data)  # fast path: the server waits for its next request
    return sum(_length(x) if isinstance(x, list) else 1 for x in data)


class AnyClient(ServerClient):
    """Send the same request to any HTTP server.

    Args:
        request: With method, body_file, content_type, status, and the JSON pointer items.
        base_path: Path of the URL.

    Raises:
        ProbeConfigError: The body cannot be read.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._method, self._path = request["method"], base_path or "/"
        self._status, self._type = request["status"], request["content_type"]
        self._items: str | None = request["items"]
        self._found: int | None = None
        self._body = None if request["body_file"] is None else _read_body(request["body_file"])

    def next_request(self) -> Request:
        """Return the same request each time."""
        return self._send

    def _send(self, connection: ServerConnection) -> Reply:
        reply, content = connection.collect(
            self._method, self._path, self._body, content_type=self._type, status=self._status
        )
        return reply._replace(items=self._count(content))

    def _count(self, content: bytes) -> int:
        """Return the items of a response, which are those of the first one."""
        if self._items is None:
            return 1
        items = items_at(parse_json(content), self._items)
        self._found = self._found or items
        if items != self._found:
            found = f"{items} items at {self._items}, an earlier one {self._found}"
            raise Failure("bad_answer", f"the response has {found}")
        return items

    def facts(self, connection: ServerConnection) -> dict[str, str]:  # noqa: ARG002 - the contract's
        """Return the identity of the request."""
        return {"method": self._method, "body": digest(self._body or b"")}


def _read_body(path: str) -> bytes:
    try:
        content = read_regular(Path(path), MAX_ANSWER_BYTES + 1)
    except OSError as error:
        raise ProbeConfigError(f"body_file {path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_ANSWER_BYTES:
        raise ProbeConfigError(f"body_file {path}: is longer than {MAX_ANSWER_BYTES} bytes")
    return content


def items_at(answer: Any, pointer: str) -> int:  # noqa: ANN401 - any JSON value
    """Return the number at a place of a JSON document, or the length of the list there.

    Args:
        answer: The document.
        pointer: The place (RFC 6901).

    Raises:
        Failure: There is neither, or it is 0.
    """
    try:
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            answer = answer[int(name)] if isinstance(answer, list) else answer[name]
    except (IndexError, KeyError, TypeError, ValueError):
        answer = None
    count = len(answer) if isinstance(answer, list) else _count(answer)
    if not count:
        raise Failure("bad_answer", f"the response has no items at {pointer}")
    return count
