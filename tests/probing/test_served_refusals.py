"""What is told of servers that refuse, are not there, or are asked for what they have not."""

import itertools
import socket
import threading

import pytest
from fakes.inference_server import InferenceServer, Notes, generating, request
from fakes.servers import free_port

from probes.errors import ConfigError, DeviceError, kind_of
from probes.served.outcome import ServerError
from probes.served.session import ServedSession


def run(url, kind="openai", **more):
    notes = Notes()
    ServedSession(notes).run(request(url, kind, **more))
    (result,) = notes.of("served_result")
    return result


def inferring(answer):
    """A server that answers inferences by a function, and knows nothing of its models."""
    return InferenceServer(lambda c: c.json({}, 404) if c.method == "GET" else answer(c))


def test_a_server_that_is_too_slow_is_told_with_what_to_set():
    with (
        inferring(lambda call: call.pause(20.0)) as server,
        pytest.raises(ServerError, match="longer timeout_s"),
    ):
        run(server.url, timeout_s=0.2)


def test_a_run_past_its_cap_still_takes_what_is_under_way():
    with inferring(generating(2, pause_s=0.1)) as server:
        result = run(server.url, warmup_requests=0, requests=1000, sample_cap_s=0.3)
    assert result["stop_reason"] == "time_cap"
    assert 2 <= result["samples"] < 1000
    assert result["errors"] == {}


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_nobody_there_is_a_fault_of_the_server(kind):
    with pytest.raises(ServerError, match=r"refused.*is the server up, and url right") as told:
        run(f"http://127.0.0.1:{free_port()}", kind)
    assert kind_of(told.value) == "device"
    assert isinstance(told.value, DeviceError)


def test_a_name_that_nobody_has_is_a_fault_of_the_server():
    with pytest.raises(ServerError, match="unreachable"):
        run("http://nobody.invalid:8000", timeout_s=5.0)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, ConfigError, "set token_path to a file that holds the server's token"),
        (403, ConfigError, "set token_path"),
        (404, ConfigError, r"set model to one that it offers \(m, other\)"),
        (400, ConfigError, "no such thing"),
        (307, ConfigError, "it redirects, which is not followed"),
        (429, ServerError, "no such thing"),
        (500, ServerError, "no such thing; see the server log"),
        (503, ServerError, "no such thing; see the server log"),
    ],
)
def test_a_refusal_is_told_with_what_to_do(status, error, words):
    good = generating()

    def answer(call):
        if call.method == "GET":
            good(call)
        else:
            call.whole(b"no such\n\tthing", status, Location="/elsewhere")

    with InferenceServer(answer) as server, pytest.raises(error, match=words) as told:
        run(server.url, concurrency=1)
    assert f"2 of 2 requests failed, mostly http_{status}: " in str(told.value)
    assert all(call.path != "/elsewhere" for call in server.calls)


def test_a_404_of_a_server_that_lists_nothing_doubts_the_url():
    server = InferenceServer(lambda call: call.json({}, 404))
    with server, pytest.raises(ConfigError, match="are url and model right"):
        run(server.url)


def test_the_commonest_of_many_failures_is_named_and_their_number_is_bounded():
    statuses = itertools.cycle([500, 503, 500, 502])
    lock = threading.Lock()

    def answer(call):
        with lock:
            status = next(statuses)
        call.json({}, status)

    with inferring(answer) as server:
        with pytest.raises(ServerError, match="4 of 4 requests failed, mostly http_500"):
            run(server.url, warmup_requests=0, requests=4, concurrency=1)
        # A server that refuses is not asked on and on.
        assert len(server.posts()) == 4


def test_a_server_that_closes_its_connections_is_connected_to_anew():
    body = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n'

    def answer(call):
        call.whole(body, Connection="close")
        call.cut()

    with inferring(answer) as server:
        result = run(server.url, requests=20, warmup_requests=0)
        assert len(server.connections) >= 20
    assert result["samples"] == 20
    assert result["errors"] == {}


def test_a_connection_that_stands_half_open_is_bounded_too():
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ServerError, match="mostly timeout"):
            run(url, timeout_s=0.2, warmup_requests=2, concurrency=2)
        with pytest.raises(ServerError, match="mostly timeout"):
            run(url.replace("http", "https"), timeout_s=0.2, warmup_requests=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"concurrency": 0}, "concurrency must be from 1 to 256"),
        ({"requests": 0}, "requests must be from 1"),
        ({"kind": "grpc"}, "there are kserve, openai"),
        ({"api": "edits"}, "there are chat, completions"),
        ({"token_path": "/nowhere/token"}, "cannot be read"),
        ({"url": "https://h", "ca_file": "/nowhere/ca"}, "cannot be used"),
        ({"url": "https://h", "ca_file": __file__}, "no certificates in it"),
    ],
)
def test_a_request_for_what_is_not_there_is_told(change, words):
    with pytest.raises(ConfigError, match=words):
        ServedSession(Notes()).run({**request("http://127.0.0.1:9"), **change})


def test_the_prompt_goes_out_as_it_is_in_any_script():
    sent = []

    def answer(call):
        sent.append(call.body["messages"][0]["content"])
        generating()(call)

    with inferring(answer) as server:
        run(server.url, prompt="日本 😀 \u0000")
    assert set(sent) == {"日本 😀 \u0000"}
