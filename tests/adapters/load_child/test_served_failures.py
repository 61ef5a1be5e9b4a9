"""Servers that send broken or truncated responses; `tests/security/test_readers_bounded.py` has the endless ones."""

import itertools
import threading

from costprobe.adapters.load_child import connection
from fakes.inference_server import generating, inferring, measured, piece


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


def short_body(call):
    call.whole(b'data: {"choices": []}\n\n', Content_Length="1000")
    call.cut()


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
    "long event": (streams(b"data:\n" * 1_000_000), "too_large"),
}


def test_invalid_response_fails_only_its_own_request(monkeypatch):
    # The limit is lowered for speed; the test is about the limit, not its value.
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 2 << 20)
    wrong = []
    for name, (bad, kind) in BROKEN.items():
        with some_failing(bad) as server:
            result = measured(server.url, warmup_requests=0, requests=4, concurrency=1)
        expected = {"samples": 4, "inferences": 4, "requests": 5, "tokens_out": 4}
        found = {key: result[key] for key in (*expected, "errors")}
        wrong += [] if found == {**expected, "errors": {kind: 1}} else [(name, found)]
    assert wrong == []
