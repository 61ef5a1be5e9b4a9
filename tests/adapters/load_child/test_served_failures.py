"""Servers that are slow, unreachable, or send broken, truncated or endless responses."""

import itertools
import threading

import pytest
from costprobe.adapters.load_child import connection
from costprobe.adapters.load_child.connection import ServerError
from fakes.inference_server import generating, inferring, measured, piece

MIB = 1 << 20


def some_failing(bad, every=3):
    """A server that sends `bad` as every `every`-th answer and valid ones otherwise."""
    numbers, lock = itertools.count(1), threading.Lock()
    good = generating()

    def answer(call):
        with lock:
            is_bad = next(numbers) % every == 0
        (bad if is_bad else good)(call)

    return inferring(answer)


def streams(*parts, ends=True):
    """An answer that streams bytes as they are, other values as events, and ends or closes the connection."""

    def answer(call):
        call.start_stream()
        for part in parts:
            (call.chunk if isinstance(part, bytes) else call.event)(part)
        call.chunk(b"") if ends else call.cut()

    return answer


def writes(content):
    """An answer that is these bytes as they are, and the end of the connection."""

    def answer(call):
        call.write(content)
        call.cut()

    return answer


def endless(content, begin=lambda call: call.start_stream(), write="chunk"):
    """An answer that repeats bytes until the connection is closed."""

    def answer(call):
        begin(call)
        while True:
            getattr(call, write)(content)

    return answer


def short_body(call):
    call.whole(b'data: {"choices": []}\n\n', Content_Length="1000")
    call.cut()


def begun(content):
    return lambda call: call.write(b"HTTP/1.1 200 OK\r\n" + content)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ZEROS = b'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 1%b}}\n\n' % (b"0" * 5000)
# What a server sends, and the kind of failure that it is.
BROKEN = {
    "closed mid stream": (streams(piece("chat", "a"), ends=False), "truncated"),
    "closed at once": (lambda call: call.cut(), "broken"),
    "ended early": (streams(piece("chat", "a")), "truncated"),
    "short body": (short_body, "truncated"),
    "half JSON": (streams(b'data: {"choices": [{"delta": {"con\n\n'), "bad_json"),
    "NaN": (streams(b'data: {"usage": {"prompt_tokens": NaN}}\n\n'), "bad_json"),
    "words as counts": (
        streams({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": "many"}}),
        "bad_answer",
    ),
    "endless counts": (streams(ZEROS), "bad_json"),
    "deep JSON": (streams(b"data: " + b"[" * 200_000 + b"\n\n"), "bad_json"),
    "no object": (streams([1]), "bad_answer"),
    "odd choices": (streams({"choices": [3]}), "bad_answer"),
    "no text": (streams(b"data: [DONE]\n\n"), "no_tokens"),
    "its own error": (streams({"error": {"message": "out of blocks"}}), "server_error"),
    "no stream": (
        lambda call: call.json({"choices": [{"message": {"content": "all at once"}}]}),
        "truncated",
    ),
    "garbage": (streams(bytes(range(256)) * 64, b"\n\n: x\n\ndata\n\n"), "truncated"),
    "odd chunk size": (writes(CHUNKED + b"-5\r\nabc\r\n"), "truncated"),
    "no HTTP": (writes(b"220 mail.example.com ESMTP\r\n\r\n"), "bad_http"),
    "endless line": (endless(b"x" * MIB), "too_large"),
    "endless event": (endless(b"data:\n" * 10_000), "too_large"),
    "endless events": (endless(b'data: {"x": "%b"}\n\n' % (b"x" * 10_000)), "too_large"),
    "endless headers": (endless(b"X: y\r\n" * 100, begun(b""), "write"), "bad_http"),
    "endless header": (endless(b"x" * MIB, begun(b"X: "), "write"), "too_large"),
    "endless 100": (
        endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, lambda _: None, "write"),
        "too_large",
    ),
    "endless trailer": (
        endless(b"X: y\r\n" * 10_000, lambda call: call.write(CHUNKED + b"0\r\n"), "write"),
        "too_large",
    ),
}


def test_invalid_response_fails_only_its_own_request(monkeypatch):
    # The limit is lowered for speed; the test is about the limit, not its value.
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 2 * MIB)
    wrong = []
    for name, (bad, kind) in BROKEN.items():
        with some_failing(bad) as server:
            result = measured(server.url, warmup_requests=0, requests=4, concurrency=1)
        expected = {"samples": 4, "inferences": 4, "requests": 5, "tokens_out": 4}
        found = {key: result[key] for key in (*expected, "errors")}
        wrong += [] if found == {**expected, "errors": {kind: 1}} else [(name, found)]
    assert wrong == []


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_endless_body_is_read_up_to_the_limit(kind, monkeypatch):
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 2 * MIB)

    def answer(call):
        call.whole(b"[", Content_Length=str(1 << 40))
        while True:
            call.write(b" " * MIB)

    with inferring(answer) as server, pytest.raises(ServerError, match="too_large"):
        measured(server.url, kind, warmup_requests=0, requests=1, concurrency=1)


def dribbling(call):
    call.start_stream()
    while not call.pause(0.02):
        call.event(piece("chat", "a"))


def silent(call):
    call.pause(20.0)


def dribbling_headers(call):
    call.write(b"HTTP/1.1 200 OK\r\n")
    while not call.pause(0.02):
        call.write(b"X")


def test_timeout_covers_the_whole_request():
    for slow in (silent, dribbling, dribbling_headers):
        with some_failing(slow) as server:
            result = measured(
                server.url, warmup_requests=0, requests=3, concurrency=1, timeout_s=0.5
            )
        assert (result["errors"], result["samples"]) == ({"timeout": 1}, 3), slow
