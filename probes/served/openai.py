"""Servers that speak OpenAI's API: chat or completions, streamed.

The prompt is the same in all requests, so a server that caches prefixes answers all but the
first from its cache; what it says of itself does not tell.
"""

from __future__ import annotations

import json
from typing import Any

from probes.digest import digest
from probes.errors import ConfigError
from probes.served.http import Connection, Exchange, Failure
from probes.served.outcome import Reply, asked, parsed
from probes.served.sse import EventStream

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MAX_TOKENS = 10_000_000
MAX_OFFERS = 10
# Where the pieces of generated text lie: what a model thinks is generated too.
_TEXTS = {"chat": ("content", "reasoning_content", "reasoning"), "completions": ("text",)}
_IDENTITY = ("root", "owned_by", "max_model_len")


class Server:
    """Requests of one prompt to one model.

    Args:
        request: With api, model, prompt, max_tokens and seed.
        base_path: Path of the URL, with or without the API's /v1.

    Raises:
        ConfigError: There is no such API.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._api, self._model, prompt = request["api"], request["model"], request["prompt"]
        if self._api not in PATHS:
            raise ConfigError(f"api {self._api!r}: there are {', '.join(sorted(PATHS))}")
        self._root = base_path.removesuffix("/v1")
        self._path = self._root + "/v1" + PATHS[self._api]
        self._prompt = digest(prompt.encode())
        self._max_tokens = str(request["max_tokens"])
        is_chat = self._api == "chat"
        said = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {}
        self._body = json.dumps(
            {
                "model": self._model,
                **(said or {"prompt": prompt}),
                "max_tokens": request["max_tokens"],
                "temperature": 0,
                "seed": request["seed"],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()

    def send(self, connection: Connection) -> Reply:
        """Sends the prompt and takes the stream of tokens.

        Raises:
            Failure: The stream is none, or did not come to its end.
        """
        stream = _TokenStream(self._api)
        exchange = connection.exchange("POST", self._path, self._body, stream.take)
        return stream.reply(exchange)

    def facts(self, connection: Connection) -> dict[str, str]:
        """What identifies the work, and what the server says of its model and version."""
        found = {
            "api": self._api,
            "prompt": self._prompt,
            "max_tokens": self._max_tokens,
        }
        for entry in self._listed(connection):
            if entry["id"] == self._model:
                known = {name: entry.get(name) for name in _IDENTITY}
                found.update((k, connection.words(str(v))) for k, v in known.items() if v)
        version = asked(connection, "GET", f"{self._root}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            found["server_version"] = connection.words(version["version"])
        return found

    def offers(self, connection: Connection) -> list[str]:
        """Names of the models that the server lists."""
        entries = self._listed(connection)[:MAX_OFFERS]
        return [connection.words(entry["id"]) for entry in entries]

    def _listed(self, connection: Connection) -> list[dict[str, Any]]:
        answer = asked(connection, "GET", f"{self._root}/v1/models")
        listed = answer.get("data") if isinstance(answer, dict) else None
        entries = listed if isinstance(listed, list) else []
        return [x for x in entries if isinstance(x, dict) and isinstance(x.get("id"), str)]


class _TokenStream:
    """Takes an answer's events, and notes when generated text came."""

    def __init__(self, api: str) -> None:
        self._texts = _TEXTS[api]
        self._is_chat = api == "chat"
        self._events = EventStream()
        self._chunks = 0
        self._first_ns = self._last_ns = 0
        self._tokens: tuple[int, int] | None = None
        self._is_finished = False

    def take(self, data: bytes, now_ns: int) -> bool:
        for event in self._events.feed(data):
            if event.strip() == b"[DONE]":
                self._is_finished = True
                return True
            self._chunk(parsed(event), now_ns)
        return False

    def reply(self, exchange: Exchange) -> Reply:
        if not self._is_finished:
            raise Failure("truncated", "its stream of tokens ends before its end")
        if not self._chunks:
            raise Failure("no_tokens", "it generates nothing for this prompt")
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
            raise Failure("bad_answer", "an event of its stream is no object")
        if chunk.get("error"):
            raise Failure("server_error", "it tells of an error of its own within the stream")
        choices = chunk.get("choices") or [{}]
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise Failure("bad_answer", "an event of its stream has no choices")
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
    """Tokens in and out; None if the server does not count what it generated."""
    tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if tokens_in is None or tokens_out is None or tokens_out == 0:
        return None
    return _count(tokens_in), _count(tokens_out)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise Failure("bad_answer", "its usage has no counts of tokens")
    return value
