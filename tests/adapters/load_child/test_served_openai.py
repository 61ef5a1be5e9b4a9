"""Probes of servers with the OpenAI API, against small HTTP servers."""

import json
import re

import pytest
from costprobe.adapters.load_child.main import measure
from costprobe_probes.wire import ProbeConfigError
from fakes.inference_server import (
    USAGE,
    InferenceServer,
    Notes,
    generating,
    inferring,
    measured,
    piece,
    request,
)
from fakes.servers import TLS
from record.record_files import check_outcomes

TOKEN = "sk-0123456789abcdef"  # noqa: S105 - of a fake


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_tokens_and_their_times_are_measured(api):
    with InferenceServer(generating(api=api, pause_s=0.01)) as server:
        result = measured(server.url, api=api)
    expected = {
        "requests": 6, "samples": 6, "stop_reason": "runs", "errors": {}, "tags": {"concurrency": "2"},
        "token_source": "usage", "tokens_in": 7, "tokens_out": 4, "has_energy_window": False,
        "window_tokens_in": 6 * 7, "window_tokens_out": 6 * 4,
        "steady_start_ns": result["window_start_ns"], "steady_end_ns": result["window_end_ns"],
    }  # fmt: skip
    assert {name: result[name] for name in expected} == expected
    # Lower bounds from the server's pauses: one before the first token, three after.
    latency_ms = result["latency_ms"]["p50"]
    assert 10 <= result["ttft_ms"]["p50"] < latency_ms
    assert 0 < 3 * result["tpot_ms"]["p50"] < latency_ms
    assert latency_ms >= 40
    window_ms = (result["window_end_ns"] - result["window_start_ns"]) / 1e6
    assert window_ms >= result["latency_ms"]["mean"]


def test_exactly_the_configured_requests_are_sent_on_kept_connections():
    with InferenceServer(generating()) as server:
        result = measured(server.url, warmup_requests=3, requests=11, concurrency=2)
        inferences = server.posts("/v1/chat/completions")
    assert len(inferences) == 14
    assert result["inferences"] == result["samples"] == 11
    # Two for the warm-up, two for the timed requests, one to identify the server.
    assert len(server.connections) <= 5
    prompts = [call.body.pop("messages")[0]["content"] for call in inferences]
    # Each begins with other digits: a prefix cache answers none of it.
    assert len({prompt[:13] for prompt in prompts}) == 14
    assert all(re.fullmatch(r"\d{12}\nSay something\.", prompt) for prompt in prompts)
    assert result["cached"] is False
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = {"model": "m", "max_tokens": 4, "temperature": 0, "seed": 3, **options}
    assert all(call.body == body for call in inferences)


def test_repeated_prompt_is_the_same_in_each_request_and_marked_as_cached():
    with InferenceServer(generating()) as server:
        result = measured(server.url, vary_prompt=False, prompt="日本 😀 \u0000")
        inferences = server.posts("/v1/chat/completions")
        assert len({call.raw_body for call in inferences}) == 1
        assert inferences[0].body["messages"][0]["content"] == "日本 😀 \u0000"
        assert result["fingerprint"] != measured(server.url)["fingerprint"]
    assert result["cached"] is True


def streaming(*events):
    """A server that streams these events, ends the stream, and lists no models."""

    def answer(call):
        call.start_stream()
        for event in events:
            call.event(event)
        call.chunk(b"")

    return inferring(answer)


def test_answers_are_counted_as_their_server_writes_them():
    """The record has the counts for the usage of an answer, or for its events; see `record_files`."""

    def counts(text):
        made = json.loads(text)
        is_usage = not isinstance(made, list)
        server = InferenceServer(generating(usage=made)) if is_usage else streaming(*made)
        with server:
            result = measured(server.url)
        assert (result["samples"], result["errors"], result["ttft_ms"]["p50"] > 0) == (6, {}, True)
        names = ("tokens_in", "tokens_out", "cached", "cached_tokens", "token_source")
        windows = ("window_tokens_in", "window_tokens_out")
        return {name: result[name] for name in (*names, *windows)}

    check_outcomes("counted_answers.json", counts)
    with InferenceServer(generating(1, usage={**USAGE, "completion_tokens": 1})) as server:
        assert measured(server.url)["tpot_ms"] is None


def test_stream_held_open_after_done_has_ended():
    def answer(call):
        call.start_stream()
        call.event(piece("chat", "a"))
        call.event(b"[DONE]")
        call.pause(20.0)

    with inferring(answer) as server:
        result = measured(server.url, warmup_requests=0, requests=1, concurrency=1)
    assert (result["samples"], result["errors"]) == (1, {})


def test_software_is_reported_and_has_a_fingerprint():
    with InferenceServer(generating()) as server:
        first, same = measured(server.url), measured(server.url)
        other = measured(server.url, prompt="Say more.")
    software = first["software"]
    assert first["fingerprint"] == same["fingerprint"] != other["fingerprint"]
    expected = {
        "address": server.url.removeprefix("http://"), "server": "fake/1.0", "model": "m",
        "server_version": "0.9.1", "root": "/models/m-7b", "max_model_len": "4096",
        "kind": "openai", "api": "chat", "concurrency": "2", "max_tokens": "4",
    }  # fmt: skip
    assert {name: software[name] for name in expected} == expected
    assert len(software["prompt"]) == 12
    assert "created" not in software
    assert all(isinstance(value, str) for value in software.values())


def test_tls_uses_the_configured_certificate_authority():
    words = "check that ca_file contains the server's certificate authority"
    with InferenceServer(generating(), tls=True) as server:
        assert measured(server.url, ca_file=str(TLS / "server.pem"))["samples"] == 6
        with pytest.raises(ProbeConfigError, match=words):
            measured(server.url)


def test_token_is_sent_and_never_reported(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")

    def echoing(call):
        authorization = call.headers["Authorization"]
        if call.method == "GET":
            call.json({"data": [{"id": "m", "root": authorization}], "version": authorization})
        else:
            generating(token=TOKEN)(call)

    notes = Notes()
    with InferenceServer(echoing) as server:
        result = measured(server.url, notes=notes, token_file=str(path))
    assert result["samples"] == 6
    assert TOKEN not in repr(notes.lines)
    assert result["software"]["root"] == "Bearer [redacted]"


def test_no_error_contains_a_token_that_the_server_repeats(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\r\n")
    for status in (400, 401, 404, 500):

        def answer(call, status=status):
            echoed = {"data": [{"id": TOKEN}], "error": TOKEN}
            call.json(echoed, 200 if call.method == "GET" else status)

        with (
            InferenceServer(answer) as server,
            pytest.raises(Exception, match=str(status)) as raised,
        ):
            measured(server.url, token_file=str(path))
        assert all(call.headers["Authorization"] == f"Bearer {TOKEN}" for call in server.calls)
        shown = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
        assert TOKEN not in shown, status


def test_token_invalid_in_a_header_is_rejected_without_being_shown(tmp_path):
    path, not_one = tmp_path / "token", "must contain a token of one line of ASCII"
    with InferenceServer(generating()) as server:
        for content, words in (
            (b"", "is empty; write the token into it"),
            (b"two\nlines", "contains more than one line"),
            *((text, not_one) for text in (b"with space", "ümlaut".encode(), b"x" * 9999)),
        ):
            path.write_bytes(content)
            with pytest.raises(ProbeConfigError, match=words) as raised:
                measured(server.url, token_file=str(path))
            assert content == b"" or content.decode() not in str(raised.value)
        assert server.calls == []


def test_invalid_url_is_rejected_without_its_secret():
    for place in ("ftp://host", "host:8000", "http://", "http://h:99999", "http://user:secret@host",
                  "http://host/?key=secret", "http://host/a b", "http://hóst", "http://[::1"):  # fmt: skip
        with pytest.raises(ProbeConfigError, match=r"^url") as raised:
            measure(Notes(), request(place))
        assert "secret" not in str(raised.value), place
