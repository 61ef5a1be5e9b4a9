"""Client of the OpenAI API: chat or completions, streamed.

All requests send the same prompt, so a server with a prefix cache serves all but the first from
its cache. The API does not report whether it did.
"""

from __future__ import annotations

import json
from typing import Any

from costprobe_probes.digest import digest
from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.served.http import Exchange, Failure, ServerConnection
from costprobe_probes.served.outcome import Reply, parse_json, query
from costprobe_probes.served.sse import EventStream

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MAX_TOKENS = 10_000_000
MAX_MODEL_NAMES = 10
# Keys of generated text in a chunk; reasoning is generated text too.
_TEXTS = {"chat": ("content", "reasoning_content", "reasoning"), "completions": ("text",)}
_IDENTITY = ("root", "owned_by", "max_model_len")


class OpenAiClient:
    """Send one prompt to one model.

    Args:
        request: With api, model, prompt, max_tokens and seed.
        base_path: Path of the URL, with or without the API's /v1.

    Raises:
        ProbeConfigError: No such API.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._api, self._model, prompt = request["api"], request["model"], request["prompt"]
        if self._api not in PATHS:
            raise ProbeConfigError(f"no api {self._api!r}; known: {', '.join(sorted(PATHS))}")
        self._root = base_path.removesuffix("/v1")
        self._path = self._root + "/v1" + PATHS[self._api]
        self._prompt = digest(prompt.encode())
        self._max_tokens = str(request["max_tokens"])
        is_chat = self._api == "chat"
        messages = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {}
        self._body = json.dumps(
            {
                "model": self._model,
                **(messages or {"prompt": prompt}),
                "max_tokens": request["max_tokens"],
                "temperature": 0,
                "seed": request["seed"],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()

    def send(self, connection: ServerConnection) -> Reply:
        """Send the prompt and read the stream of tokens.

        Raises:
            Failure: The stream is malformed or incomplete.
        """
        stream = _TokenStream(self._api)
        exchange = connection.exchange("POST", self._path, self._body, stream.consume)
        return stream.reply(exchange)

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return what identifies the work, with model and version as the server reports them."""
        found = {
            "api": self._api,
            "prompt": self._prompt,
            "max_tokens": self._max_tokens,
        }
        for entry in self._listed_models(connection):
            if entry["id"] == self._model:
                known = {name: entry.get(name) for name in _IDENTITY}
                found.update((k, connection.excerpt(str(v))) for k, v in known.items() if v)
        version = query(connection, "GET", f"{self._root}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            found["server_version"] = connection.excerpt(version["version"])
        return found

    def model_names(self, connection: ServerConnection) -> list[str]:
        """Return the models that the server lists."""
        entries = self._listed_models(connection)[:MAX_MODEL_NAMES]
        return [connection.excerpt(entry["id"]) for entry in entries]

    def _listed_models(self, connection: ServerConnection) -> list[dict[str, Any]]:
        answer = query(connection, "GET", f"{self._root}/v1/models")
        listed = answer.get("data") if isinstance(answer, dict) else None
        entries = listed if isinstance(listed, list) else []
        return [x for x in entries if isinstance(x, dict) and isinstance(x.get("id"), str)]


class _TokenStream:
    """Parse the events of a response and record when generated text arrived."""

    def __init__(self, api: str) -> None:
        self._texts = _TEXTS[api]
        self._is_chat = api == "chat"
        self._events = EventStream()
        self._chunks = 0
        self._first_ns = self._last_ns = 0
        self._tokens: tuple[int, int] | None = None
        self._is_finished = False

    def consume(self, data: bytes, now_ns: int) -> bool:
        for event in self._events.feed(data):
            if event.strip() == b"[DONE]":
                self._is_finished = True
                return True
            self._chunk(parse_json(event), now_ns)
        return False

    def reply(self, exchange: Exchange) -> Reply:
        if not self._is_finished:
            raise Failure("truncated", "the stream of tokens was truncated")
        if not self._chunks:
            raise Failure("no_tokens", "the model generated nothing for this prompt")
        tokens_in, tokens_out = self._tokens or (None, None)
        return Reply(
            exchange.start_ns,
            exchange.end_ns,
            self._first_ns,
            self._last_ns,
            self._chunks,
            tokens_in,
            tokens_out,
        )

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
        if isinstance(piece, dict) and any(_is_text(piece.get(name)) for name in self._texts):
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
            self._chunks += 1
        # Not every server ends with [DONE].
        self._is_finished = self._is_finished or choice.get("finish_reason") is not None
        if isinstance(chunk.get("usage"), dict):
            self._tokens = _tokens(chunk["usage"])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _tokens(usage: dict[str, Any]) -> tuple[int, int] | None:
    """Return tokens in and out; None if the server does not count generated tokens."""
    tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if tokens_in is None or tokens_out is None or tokens_out == 0:
        return None
    return _count(tokens_in), _count(tokens_out)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise Failure("bad_answer", "the usage object has no token counts")
    return value
