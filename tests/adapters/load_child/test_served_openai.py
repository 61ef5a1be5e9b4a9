"""Probes of servers with the OpenAI API, against small HTTP servers."""

import re

import pytest
from costprobe.adapters.load_child.main import measure
from costprobe_probes.wire import ProbeConfigError
from fakes.inference_server import TLS, USAGE, InferenceServer, Notes, generating, piece, request


def run(server, **more):
    notes = Notes()
    measure(notes, request(server.url, **more))
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
    # Lower bounds from the server's pauses: one before the first token, three after.
    assert 10 <= result["ttft_ms"]["p50"] < result["latency_ms"]["p50"]
    assert 0 < 3 * result["tpot_ms"]["p50"] < result["latency_ms"]["p50"]
    assert result["latency_ms"]["p50"] >= 40
    assert result["concurrency"] == 2
    assert not result["has_energy_window"]


def test_exactly_the_configured_requests_are_sent_on_kept_connections():
    with InferenceServer(generating()) as server:
        result = run(server, warmup_requests=3, requests=11, concurrency=2)
        inferences = server.posts("/v1/chat/completions")
    assert len(inferences) == 14
    assert result["window_requests"] == result["samples"] == 11
    # Two for the warm-up, two for the timed requests, one to identify the server.
    assert len(server.connections) <= 5
    prompts = [call.body.pop("messages")[0]["content"] for call in inferences]
    # Each begins with other digits: a prefix cache answers none of it.
    assert len({prompt[:13] for prompt in prompts}) == 14
    assert all(re.fullmatch(r"\d{12}\nSay something\.", prompt) for prompt in prompts)
    assert result["cached"] is False
    first = inferences[0]
    assert first.body == {
        "model": "m",
        "max_tokens": 4,
        "temperature": 0,
        "seed": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert all(call.body == first.body for call in inferences)


def test_repeated_prompt_is_the_same_in_each_request_and_marked_as_cached():
    with InferenceServer(generating()) as server:
        result = run(server, vary_prompt=False)
        assert len({call.raw_body for call in server.posts("/v1/chat/completions")}) == 1
        assert result["fingerprint"] != run(server)["fingerprint"]
    assert result["cached"] is True


def test_tokens_that_the_server_reports_as_cached_decide():
    for cached_tokens, cached in ((0, False), (3, False), (4.0, True), (7, True), ("odd", False)):
        usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": cached_tokens}}
        with InferenceServer(generating(usage=usage)) as server:
            result = run(server)
        assert result["cached"] is cached, cached_tokens
        known = None if cached_tokens == "odd" else cached_tokens
        assert result["cached_tokens"] == known, cached_tokens


def test_tool_call_or_refusal_without_text_is_an_answer():
    called = [{"index": 0, "function": {"name": "look_up", "arguments": "{}"}}]
    for delta in ({"tool_calls": called}, {"function_call": {"name": "f"}}, {"refusal": "No."}):

        def answer(call, delta=delta):
            call.start_stream()
            call.event({"choices": [{"delta": {"content": None, **delta}}]})
            call.event({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
            call.chunk(b"")

        with InferenceServer(answer) as server:
            result = run(server)
        assert (result["samples"], result["errors"], result["tokens_out"]) == (6, {}, 1), delta


def test_usage_counts_may_be_written_as_floats():
    usage = {"prompt_tokens": 7.0, "completion_tokens": 4.0}
    with InferenceServer(generating(usage=usage)) as server:
        result = run(server)
    assert (result["tokens_in"], result["tokens_out"], result["errors"]) == (7, 4, {})


def test_without_energy_the_window_spans_the_timed_requests():
    with InferenceServer(generating()) as server:
        result = run(server)
    assert result["window_start_ns"] == result["steady_start_ns"]
    assert result["window_end_ns"] == result["steady_end_ns"]
    assert result["window_tokens_in"] == 6 * 7
    assert result["window_tokens_out"] == 6 * 4
    window_ms = (result["window_end_ns"] - result["window_start_ns"]) / 1e6
    assert window_ms >= result["latency_ms"]["mean"]


def test_chunks_are_counted_if_the_server_reports_no_usage():
    with InferenceServer(generating(5, usage=None)) as server:
        result = run(server)
    assert result["token_source"] == "chunks"  # noqa: S105 - no password
    assert result["tokens_in"] is None
    assert result["window_tokens_in"] is None
    assert result["tokens_out"] == 5
    assert result["window_tokens_out"] == 30


def test_reasoning_content_counts_as_generated_tokens():
    def answer(call):
        call.start_stream()
        call.event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
        call.event(piece("chat", "yes", finish_reason="stop"))
        call.chunk(b"")

    with InferenceServer(answer) as server:
        assert run(server)["tokens_out"] == 2


def test_single_token_has_no_tpot():
    usage = {**USAGE, "completion_tokens": 1}
    with InferenceServer(generating(1, usage=usage)) as server:
        result = run(server)
    assert result["tpot_ms"] is None
    assert result["ttft_ms"]["p50"] > 0


def test_stream_held_open_after_done_has_ended():
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


def test_software_is_reported_and_has_a_fingerprint():
    with InferenceServer(generating()) as server:
        first, same = run(server), run(server)
        other = run(server, prompt="Say more.")
    software = first["software"]
    assert first["fingerprint"] == same["fingerprint"] != other["fingerprint"]
    assert software["address"] == server.url.removeprefix("http://")
    assert software["server"] == "fake/1.0"
    assert software["server_version"] == "0.9.1"
    assert (software["root"], software["max_model_len"], software["model"]) == (
        "/models/m-7b",
        "4096",
        "m",
    )
    assert (software["kind"], software["api"], software["concurrency"]) == ("openai", "chat", "2")
    assert software["max_tokens"] == "4"
    assert len(software["prompt"]) == 12
    assert "created" not in software
    assert all(isinstance(value, str) for value in software.values())


def test_url_may_end_in_the_api_version_or_have_a_path():
    with InferenceServer(generating()) as server:
        notes = Notes()
        measure(notes, request(f"{server.url}/v1/"))
        (result,) = notes.of("served_result")
        notes = Notes()
        measure(notes, request(f"{server.url}/under/a"))
    assert result["samples"] == 6
    paths = {call.path for call in server.posts()}
    assert paths == {"/v1/chat/completions", "/under/a/v1/chat/completions"}


def test_tls_uses_the_configured_certificate_authority():
    with InferenceServer(generating(), tls=True) as server:
        result = run(server, ca_file=str(TLS / "server.pem"))
        with pytest.raises(
            ProbeConfigError, match="check that ca_file contains the server's certificate authority"
        ):
            run(server)
    assert result["samples"] == 6


def test_token_is_sent_and_never_reported(tmp_path):
    token = "sk-0123456789abcdef"  # noqa: S105 - of a fake
    path = tmp_path / "token"
    path.write_text(token + "\n")

    def echoing(call):
        authorization = call.headers["Authorization"]
        if call.method == "GET":
            call.json({"data": [{"id": "m", "root": authorization}], "version": authorization})
        else:
            generating(token=token)(call)

    with InferenceServer(echoing) as server:
        notes = Notes()
        measure(notes, request(server.url, token_file=str(path)))
    (result,) = notes.of("served_result")
    assert result["samples"] == 6
    assert token not in repr(notes.lines)
    assert result["software"]["root"] == "Bearer [redacted]"


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_no_error_contains_a_token_that_the_server_repeats(tmp_path, status):
    token = "sk-0123456789abcdef"  # noqa: S105 - of a fake
    path = tmp_path / "token"
    path.write_text(token + "\r\n")

    def answer(call):
        call.json(
            {"data": [{"id": token}], "error": token}, 200 if call.method == "GET" else status
        )

    with InferenceServer(answer) as server, pytest.raises(Exception, match=str(status)) as raised:
        run(server, token_file=str(path))
    assert all(call.headers["Authorization"] == f"Bearer {token}" for call in server.calls)
    shown = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    assert token not in shown


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; write the token into it"),
        (b"two\nlines", "contains more than one line"),
        (b"with space", "must contain a token of one line of ASCII"),
        ("ümlaut".encode(), "must contain a token of one line of ASCII"),
        (b"x" * 9999, "must contain a token of one line of ASCII"),
    ],
)
def test_token_invalid_in_a_header_is_rejected_without_being_shown(tmp_path, content, words):
    path = tmp_path / "token"
    path.write_bytes(content)
    with InferenceServer(generating()) as server:
        with pytest.raises(ProbeConfigError, match=words) as raised:
            run(server, token_file=str(path))
        assert server.calls == []
    assert content == b"" or content.decode() not in str(raised.value)


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
def test_invalid_url_is_rejected_without_its_secret(url):
    with pytest.raises(ProbeConfigError, match=r"^url") as raised:
        measure(Notes(), request(url))
    assert "secret" not in str(raised.value)
