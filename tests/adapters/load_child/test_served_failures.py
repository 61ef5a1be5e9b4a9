"""Servers that are slow, unreachable, or send broken, truncated or endless responses."""

import itertools
import threading

import pytest
from costprobe.adapters.load_child import clients
from costprobe.adapters.load_child.connection import ServerError
from costprobe.adapters.load_child.main import measure
from fakes.inference_server import InferenceServer, Notes, generating, piece, request

MIB = 1 << 20


def run(url, kind="openai", **more):
    notes = Notes()
    measure(notes, request(url, kind, **more))
    (result,) = notes.of("served_result")
    return result


def inferring(answer):
    """A server that answers inferences with `answer` and lists no models."""
    return InferenceServer(lambda c: c.json({}, 404) if c.method == "GET" else answer(c))


def some_failing(bad, every=3):
    """A server that sends `bad` as every `every`-th answer and valid ones otherwise."""
    numbers, lock = itertools.count(1), threading.Lock()
    good = generating()

    def answer(call):
        with lock:
            is_bad = next(numbers) % every == 0
        (bad if is_bad else good)(call)

    return inferring(answer)


def closing_mid_stream(call):
    call.start_stream()
    call.event(piece("chat", "a"))
    call.cut()


def closing_at_once(call):
    call.cut()


def ending_early(call):
    call.start_stream()
    call.event(piece("chat", "a"))
    call.chunk(b"")


def short_body(call):
    call.whole(b'data: {"choices": []}\n\n', Content_Length="1000")
    call.cut()


def half_json(call):
    call.start_stream()
    call.event(b'{"choices": [{"delta": {"con')
    call.chunk(b"")


def nan(call):
    call.start_stream()
    call.event(b'{"choices": [], "usage": {"prompt_tokens": NaN, "completion_tokens": 3}}')


def words_as_counts(call):
    call.start_stream()
    call.event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": "many"}})


def endless_counts(call):
    call.start_stream()
    call.event(b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1%b}}' % (b"0" * 5000))


def deep_json(call):
    call.start_stream()
    call.event(b"[" * 200_000)


def no_object(call):
    call.start_stream()
    call.event([1])


def odd_choices(call):
    call.start_stream()
    call.event({"choices": [3]})


def no_text(call):
    call.start_stream()
    call.event(b"[DONE]")
    call.chunk(b"")


def own_error(call):
    call.start_stream()
    call.event({"error": {"message": "out of blocks"}})


def no_stream(call):
    call.json({"choices": [{"message": {"content": "all at once"}}]})


def garbage_events(call):
    call.start_stream()
    call.chunk(bytes(range(256)) * 64)
    call.chunk(b"\n\n: x\n\ndata\n\n")
    call.chunk(b"")


def odd_chunk_size(call):
    call.start_stream()
    call.write(b"-5\r\nabc\r\n")
    call.cut()


def no_http(call):
    call.write(b"220 mail.example.com ESMTP\r\n\r\n")
    call.cut()


def endless_line(call):
    call.start_stream()
    while True:
        call.chunk(b"x" * MIB)


def endless_event(call):
    call.start_stream()
    while True:
        call.chunk(b"data:\n" * 10_000)


def endless_events(call):
    call.start_stream()
    while True:
        call.chunk(b'data: {"choices": [], "x": "%b"}\n\n' % (b"x" * 10_000))


def endless_headers(call):
    call.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(10_000):
        call.write(b"X: y\r\n" * 100)
    call.cut()


def endless_header_line(call):
    call.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        call.write(b"x" * MIB)


def endless_continue(call):
    while True:
        call.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)


def endless_trailer(call):
    call.start_stream()
    call.write(b"0\r\n")
    while True:
        call.write(b"X: y\r\n" * 10_000)


BROKEN = {
    closing_mid_stream: "truncated",
    closing_at_once: "broken",
    ending_early: "truncated",
    short_body: "truncated",
    half_json: "bad_json",
    nan: "bad_json",
    words_as_counts: "bad_answer",
    endless_counts: "bad_json",
    deep_json: "bad_json",
    no_object: "bad_answer",
    odd_choices: "bad_answer",
    no_text: "no_tokens",
    own_error: "server_error",
    no_stream: "truncated",
    garbage_events: "bad_json",
    odd_chunk_size: "truncated",
    no_http: "bad_http",
    endless_line: "too_large",
    endless_event: "too_large",
    endless_events: "too_large",
    endless_headers: "bad_http",
    endless_header_line: "too_large",
    endless_continue: "too_large",
    endless_trailer: "too_large",
}


def test_invalid_response_fails_only_its_own_request(monkeypatch):
    # The limit is lowered for speed; the test is about the limit, not its value.
    monkeypatch.setattr(clients, "MAX_ANSWER_BYTES", 2 * MIB)
    for bad, kind in BROKEN.items():
        with some_failing(bad) as server:
            result = run(server.url, warmup_requests=0, requests=4, concurrency=1)
        assert result["samples"] == result["window_requests"] == 4, bad
        assert result["errors"] == {kind: 1}, bad
        assert result["requests"] == 5, bad
        assert result["tokens_out"] == 4, bad


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_endless_body_is_read_up_to_the_limit(kind, monkeypatch):
    monkeypatch.setattr(clients, "MAX_ANSWER_BYTES", 2 * MIB)

    def answer(call):
        call.whole(b"[", Content_Length=str(1 << 40))
        while True:
            call.write(b" " * MIB)

    with inferring(answer) as server, pytest.raises(ServerError, match="too_large"):
        run(server.url, kind, warmup_requests=0, requests=1, concurrency=1)


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


@pytest.mark.parametrize("slow", [silent, dribbling, dribbling_headers])
def test_timeout_covers_the_whole_request(slow):
    with some_failing(slow) as server:
        result = run(server.url, warmup_requests=0, requests=3, concurrency=1, timeout_s=0.5)
    assert result["errors"] == {"timeout": 1}
    assert result["samples"] == 3
