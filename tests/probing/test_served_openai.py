"""Probes of servers that speak OpenAI's API, on small real ones."""

import pytest
from fakes.inference_server import TLS, USAGE, InferenceServer, Notes, generating, piece, request

from probes.errors import ConfigError
from probes.served.session import ServedSession


def run(server, **more):
    notes = Notes()
    ServedSession(notes).run(request(server.url, **more))
    (result,) = notes.of("served_result")
    return result


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_tokens_and_their_times_are_measured(api):
    with InferenceServer(generating(api=api, pause_s=0.01)) as server:
        result = run(server, api=api)
    assert (result["requests"], result["samples"], result["stop_reason"]) == (6, 6, "runs")
    assert result["errors"] == {}
    assert result["token_source"] == "usage"  # noqa: S105 - no password
    assert (result["tokens_in"], result["tokens_out"]) == (7, 4)
    # What the server's own pauses make the least: one before the first token, three after.
    assert 10 <= result["ttft_ms"]["p50"] < result["latency_ms"]["p50"]
    assert 0 < 3 * result["tpot_ms"]["p50"] < result["latency_ms"]["p50"]
    assert result["latency_ms"]["p50"] >= 40
    assert result["concurrency"] == 2
    assert not result["has_energy_window"]


def test_exactly_the_requests_that_were_asked_for_are_sent_on_kept_connections():
    with InferenceServer(generating()) as server:
        result = run(server, warmup_requests=3, requests=11, concurrency=2)
        inferences = server.posts("/v1/chat/completions")
    assert len(inferences) == 14
    assert result["region_requests"] == result["samples"] == 11
    # Two for the warm-up, two for the timed requests, one to ask who the server is.
    assert len(server.connections) <= 5
    first = inferences[0]
    assert first.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": 4,
        "temperature": 0,
        "seed": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert all(call.raw_body == first.raw_body for call in inferences)


def test_without_an_energy_window_the_region_is_the_timed_requests_themselves():
    with InferenceServer(generating()) as server:
        result = run(server)
    assert result["region_start_ns"] == result["steady_start_ns"]
    assert result["region_end_ns"] == result["steady_end_ns"]
    assert result["region_tokens_in"] == 6 * 7
    assert result["region_tokens_out"] == 6 * 4
    region_ms = (result["region_end_ns"] - result["region_start_ns"]) / 1e6
    assert region_ms >= result["latency_ms"]["mean"]


def test_a_server_that_does_not_count_tokens_has_its_chunks_counted():
    with InferenceServer(generating(5, usage=None)) as server:
        result = run(server)
    assert result["token_source"] == "chunks"  # noqa: S105 - no password
    assert result["tokens_in"] is None
    assert result["region_tokens_in"] is None
    assert result["tokens_out"] == 5
    assert result["region_tokens_out"] == 30


def test_the_text_that_a_model_thinks_is_generated_too():
    def answer(call):
        call.start_stream()
        call.event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
        call.event(piece("chat", "yes", finish_reason="stop"))
        call.chunk(b"")

    with InferenceServer(answer) as server:
        assert run(server)["tokens_out"] == 2


def test_one_token_has_no_time_between_tokens():
    usage = {**USAGE, "completion_tokens": 1}
    with InferenceServer(generating(1, usage=usage)) as server:
        result = run(server)
    assert result["tpot_ms"] is None
    assert result["ttft_ms"]["p50"] > 0


def test_a_stream_that_arrives_in_odd_pieces_is_the_same_stream():
    lines = b": hello\r\n\r\nevent: x\r\ndata:" + b'{"choices":[{"text":"a\\n"}]}\r\n\r\n'
    lines += b'data: {"choices":\ndata: [{"text": "b", "finish_reason": "stop"}]}\n\n'
    lines += b"data: [DONE]\n\n"

    def answer(call):
        call.start_stream()
        for i in range(0, len(lines), 7):
            call.chunk(lines[i : i + 7])
        call.chunk(b"")

    with InferenceServer(answer) as server:
        result = run(server, api="completions")
    assert (result["samples"], result["tokens_out"]) == (6, 2)


def test_a_stream_that_is_held_open_behind_its_end_has_ended():
    def answer(call):
        if call.method == "GET":
            call.json({}, 404)
            return
        call.start_stream()
        call.event(piece("chat", "a"))
        call.event(b"[DONE]")
        call.pause(20.0)

    with InferenceServer(answer) as server:
        result = run(server, warmup_requests=0, requests=1, concurrency=1)
    assert result["samples"] == 1
    assert result["errors"] == {}


def test_what_was_measured_is_told_and_has_a_fingerprint():
    with InferenceServer(generating()) as server:
        first, same = run(server), run(server)
        other = run(server, prompt="Say more.")
    told = first["software"]
    assert first["fingerprint"] == same["fingerprint"] != other["fingerprint"]
    assert told["address"] == server.url.removeprefix("http://")
    assert told["server"] == "fake/1.0"
    assert told["server_version"] == "0.9.1"
    assert (told["root"], told["max_model_len"], told["model"]) == ("/models/m-7b", "4096", "m")
    assert (told["kind"], told["api"], told["concurrency"]) == ("openai", "chat", "2")
    assert told["max_tokens"] == "4"
    assert len(told["prompt"]) == 12
    assert "created" not in told
    assert all(isinstance(value, str) for value in told.values())


def test_the_url_may_end_in_the_apis_version_and_lie_under_a_path():
    with InferenceServer(generating()) as server:
        notes = Notes()
        ServedSession(notes).run(request(f"{server.url}/v1/"))
        (result,) = notes.of("served_result")
        notes = Notes()
        ServedSession(notes).run(request(f"{server.url}/under/a"))
    assert result["samples"] == 6
    paths = {call.path for call in server.posts()}
    assert paths == {"/v1/chat/completions", "/under/a/v1/chat/completions"}


def test_tls_is_spoken_with_the_authority_that_the_operator_trusts():
    with InferenceServer(generating(), tls=True) as server:
        result = run(server, ca_file=str(TLS / "server.pem"))
        with pytest.raises(ConfigError, match="is ca_file the server's authority"):
            run(server)
    assert result["samples"] == 6


def test_the_token_is_sent_and_no_line_ever_holds_it(tmp_path):
    token = "sk-0123456789abcdef"  # noqa: S105 - of a fake
    path = tmp_path / "token"
    path.write_text(token + "\n")

    def echoing(call):
        said = call.headers["Authorization"]
        if call.method == "GET":
            call.json({"data": [{"id": "m", "root": said}], "version": said})
        else:
            generating(token=token)(call)

    with InferenceServer(echoing) as server:
        notes = Notes()
        ServedSession(notes).run(request(server.url, token_path=str(path)))
    (result,) = notes.of("served_result")
    assert result["samples"] == 6
    assert token not in repr(notes.lines)
    assert result["software"]["root"] == "Bearer ***"


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_no_error_holds_the_token_even_if_the_server_repeats_it(tmp_path, status):
    token = "sk-0123456789abcdef"  # noqa: S105 - of a fake
    path = tmp_path / "token"
    path.write_text(token + "\r\n")

    def answer(call):
        call.json(
            {"data": [{"id": token}], "error": token}, 200 if call.method == "GET" else status
        )

    with InferenceServer(answer) as server, pytest.raises(Exception, match=str(status)) as told:
        run(server, token_path=str(path))
    assert all(call.headers["Authorization"] == f"Bearer {token}" for call in server.calls)
    shown = f"{told.value!r} {told.value.__cause__!r} {told.value.__context__!r}"
    assert token not in shown


@pytest.mark.parametrize(
    "content", [b"", b"two\nlines", b"with space", "ümlaut".encode(), b"x" * 9999]
)
def test_a_token_that_no_header_can_hold_is_refused_without_being_shown(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with InferenceServer(generating()) as server:
        with pytest.raises(ConfigError, match="must hold a token of one line") as told:
            run(server, token_path=str(path))
        assert server.calls == []
    assert content == b"" or content.decode() not in str(told.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "host:8000",
        "http://",
        "http://h:99999",
        "http://user:secret@host",
        "http://host/?key=secret",
        "http://host/a b",
        "http://hóst",
        "http://[::1",
    ],
)
def test_a_url_that_is_none_is_told_without_what_it_holds(url):
    with pytest.raises(ConfigError, match=r"^url") as told:
        ServedSession(Notes()).run(request(url))
    assert "secret" not in str(told.value)
