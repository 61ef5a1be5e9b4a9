"""A client that sends a known load and keeps its own count."""

import http.client
import json
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields

TIMEOUT_S = 120.0
CLIENTS = 4


@dataclass
class Tally:
    """What a client sent, and what it received.

    Attributes:
        calls: Answered calls.
        requests: Answers that the engine should have counted: several for a call with `n`.
        refused: Calls that were answered with an error.
        failed: Those of them that the engine counts as errors, where it does not count all.
        aborted: Calls whose answer the client did not read to its end.
        tokens_in: Prompt tokens of the answers, by their `usage`.
        tokens_out: Generated tokens of the answers, likewise.
        aborted_tokens_in: Prompt tokens of aborted calls, known from equal prompts.
        aborted_tokens_out: The most tokens that aborted calls may have generated.
        latencies_ms: Times of answered calls that were sent one after another.
    """

    calls: int = 0
    requests: int = 0
    refused: int = 0
    failed: int = 0
    aborted: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    aborted_tokens_in: int = 0
    aborted_tokens_out: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def __add__(self, other):
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def counts(self):
        """The counts, without the times."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "latencies_ms"}


def total(tallies):
    """The sum of tallies."""
    return sum(tallies, start=Tally())


def at_once(calls, clients=CLIENTS):
    """Make calls from several clients at the same time; return their tally."""
    with ThreadPoolExecutor(clients) as pool:
        return total(pool.map(lambda call: call(), calls))


class HttpClient:
    """Calls of one server, each with a connection of its own."""

    def __init__(self, url):
        self._host = urllib.parse.urlsplit(url).netloc

    def post(self, path, body):
        """Send JSON; return the status, the parsed answer and the milliseconds it took."""
        connection = self._connect()
        try:
            start_s = time.perf_counter()
            self._send(connection, path, body)
            response = connection.getresponse()
            content = response.read()
            took_ms = (time.perf_counter() - start_s) * 1e3
        finally:
            connection.close()
        try:
            return response.status, json.loads(content), took_ms
        except ValueError:
            return response.status, None, took_ms

    def stream(self, path, body, events=None):
        """Send JSON; return the events of the answer, or only the first ones, and the milliseconds.

        Args:
            path: From the root.
            body: The request.
            events: Events after which the connection is closed; None to read all of them.
        """
        connection = self._connect()
        found = []
        try:
            start_s = time.perf_counter()
            self._send(connection, path, body)
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read())
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    found.append(json.loads(line[6:]))
                    if len(found) == events:
                        break
            took_ms = (time.perf_counter() - start_s) * 1e3
        finally:
            connection.close()
        return found, took_ms

    def _connect(self):
        connection = http.client.HTTPConnection(self._host, timeout=TIMEOUT_S)
        connection.connect()
        return connection

    @staticmethod
    def _send(connection, path, body):
        content = json.dumps(body).encode()
        connection.request("POST", path, content, {"Content-Type": "application/json"})


class OpenAiClient:
    """Calls of a server with the OpenAI API.

    Args:
        url: Its address.
        model: Name of the model.
        more: Added to the body of each call.
    """

    def __init__(self, url, model, **more):
        self._http = HttpClient(url)
        self._body = {"model": model, **more}

    def chat(self, text, max_tokens, **more):
        """Send one chat; return its tally."""
        body = self._chat(text, max_tokens, **more)
        status, answer, took_ms = self._http.post("/v1/chat/completions", body)
        assert status == 200, (status, answer)
        return _answered(answer["usage"], len(answer["choices"]), took_ms)

    def completion(self, prompt, max_tokens, **more):
        """Send one completion, of a prompt or of a list of prompts."""
        body = {**self._body, "prompt": prompt, "max_tokens": max_tokens, **more}
        status, answer, took_ms = self._http.post("/v1/completions", body)
        assert status == 200, (status, answer)
        return _answered(answer["usage"], len(answer["choices"]), took_ms)

    def streamed(self, text, max_tokens, **more):
        """Send one chat, and read its stream to the end."""
        events, took_ms = self._http.stream(
            "/v1/chat/completions", self._live(text, max_tokens, **more)
        )
        (usage,) = [event["usage"] for event in events if event.get("usage")]
        return _answered(usage, 1, took_ms)

    def aborted(self, text, max_tokens, tokens_in):
        """Send one chat, and close the connection after the first token."""
        self._http.stream("/v1/chat/completions", self._live(text, max_tokens), events=2)
        return Tally(aborted=1, aborted_tokens_in=tokens_in, aborted_tokens_out=max_tokens)

    def refused(self, **body):
        """Send one chat that the server refuses."""
        status, _, _ = self._http.post("/v1/chat/completions", {**self._chat("?", 1), **body})
        assert 400 <= status < 600, status
        return Tally(refused=1)

    def _chat(self, text, max_tokens, **more):
        messages = [{"role": "user", "content": text}]
        return {**self._body, "messages": messages, "max_tokens": max_tokens, **more}

    def _live(self, text, max_tokens, **more):
        options = {"stream": True, "stream_options": {"include_usage": True}}
        return self._chat(text, max_tokens, **options, **more)


def _answered(usage, choices, took_ms):
    return Tally(
        calls=1,
        requests=choices,
        tokens_in=usage["prompt_tokens"],
        tokens_out=usage["completion_tokens"],
        latencies_ms=[took_ms],
    )


class TensorClient:
    """Calls of a server with the Open Inference Protocol.

    Args:
        url: Its address.
        model: Name of the model.
    """

    def __init__(self, url, model):
        self._http = HttpClient(url)
        self._path = f"/v2/models/{model}/infer"

    def infer(self, values):
        """Send one tensor; return its tally."""
        status, answer, took_ms = self._http.post(self._path, {"inputs": [tensor(values)]})
        assert status == 200, (status, answer)
        return Tally(calls=1, requests=1, latencies_ms=[took_ms])

    def refused(self, values):
        """Send one tensor that makes the model fail."""
        status, answer, _ = self._http.post(self._path, {"inputs": [tensor(values)]})
        assert status >= 400, (status, answer)
        return Tally(refused=1)


def tensor(values):
    """An input tensor of the Open Inference Protocol."""
    return {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
