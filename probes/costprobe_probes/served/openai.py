"""Client of the OpenAI API: chat or completions, streamed."""

from __future__ import annotations

import json
from array import array
from functools import partial
from typing import Any

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.served.http import Exchange, Failure, ServerConnection
from costprobe_probes.served.outcome import Reply, Request, parse_json, query
from costprobe_probes.served.prompts import Prompt, Prompts
from costprobe_probes.served.sse import EventStream

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MAX_TOKENS = 10_000_000
MAX_MODEL_NAMES = 10
# Keys of generated text in a chunk; reasoning is generated text too.
_TEXTS = {
    "chat": ("content", "reasoning_content", "reasoning", "refusal"),
    "completions": ("text",),
}
# Keys of tool calls in a chunk of a chat; an answer may consist of nothing else.
_TOOLS = ("tool_calls", "function_call")
_IDENTITY = ("root", "owned_by", "max_model_len")


class OpenAiClient:
    """Send prompts to one model.

    Args:
        request: With api, model, prompt, vary_prompt, max_tokens and seed; with `load` of a load
            curve the arrival of each chunk is kept, too.
        base_path: Path of the URL, with or without the API's /v1.

    Raises:
        ProbeConfigError: No such API, or the file of prompts cannot be used.
    """

    def __init__(self, request: dict[str, Any], base_path: str) -> None:
        self._api, self._model = request["api"], request["model"]
        self._prompts = Prompts(request)
        self._keeps_arrivals = bool(request.get("load"))
        if self._api not in PATHS:
            raise ProbeConfigError(f"no api {self._api!r}; known: {', '.join(sorted(PATHS))}")
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
        stream = _TokenStream(self._api, keeps_arrivals=self._keeps_arrivals)
        exchange = connection.exchange("POST", self._path, body, stream.consume)
        return stream.reply(exchange)

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

    def cache_hits(self, connection: ServerConnection) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: the API has no response cache; answers report cached tokens themselves."""
        return None

    def facts(self, connection: ServerConnection) -> dict[str, str]:
        """Return the identity of the workload, with model and version as reported by the server."""
        facts = {"api": self._api, **self._prompts.facts()}
        for entry in self._listed_models(connection):
            if entry["id"] == self._model:
                identity = {name: entry.get(name) for name in _IDENTITY}
                facts.update((k, connection.excerpt(str(v))) for k, v in identity.items() if v)
        version = query(connection, "GET", f"{self._root}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            facts["server_version"] = connection.excerpt(version["version"])
        return facts

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

    def __init__(self, api: str, *, keeps_arrivals: bool) -> None:
        self._texts = _TEXTS[api]
        self._arrivals = array("q") if keeps_arrivals else None
        self._is_chat = api == "chat"
        self._events = EventStream()
        self._chunks = 0
        self._first_ns = self._last_ns = 0
        self._tokens: tuple[int, int] | None = None
        self._cached_tokens: int | None = None
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
            self._cached_tokens,
            arrivals_ns=self._arrivals,
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
        if isinstance(piece, dict) and self._is_generated(piece):
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns
            self._chunks += 1
            if self._arrivals is not None:
                self._arrivals.append(now_ns)
        # Not every server ends with [DONE].
        self._is_finished = self._is_finished or choice.get("finish_reason") is not None
        if isinstance(chunk.get("usage"), dict):
            self._tokens = _tokens(chunk["usage"])
            self._cached_tokens = _cached_tokens(chunk["usage"])

    def _is_generated(self, piece: dict[str, Any]) -> bool:
        if any(_is_text(piece.get(name)) for name in self._texts):
            return True
        return self._is_chat and any(piece.get(name) for name in _TOOLS)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _tokens(usage: dict[str, Any]) -> tuple[int, int] | None:
    """Return tokens in and out; None if the server does not count generated tokens."""
    tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if tokens_in is None or tokens_out is None or tokens_out == 0:
        return None
    counts = _count(tokens_in), _count(tokens_out)
    if counts[0] is None or counts[1] is None:
        raise Failure("bad_answer", "the usage object has no token counts")
    return counts[0], counts[1]


def _cached_tokens(usage: dict[str, Any]) -> int | None:
    """Return the prompt tokens that a prefix cache answered; None if the server does not count them."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return _count(cached)


def _count(value: Any) -> int | None:  # noqa: ANN401 - any JSON value
    """Return a count of tokens, None if it is none; some servers write 7.0 for 7."""
    is_number = type(value) in (int, float) and 0 <= value <= MAX_TOKENS
    return round(value) if is_number else None
