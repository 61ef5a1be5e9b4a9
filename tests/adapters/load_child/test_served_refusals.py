"""Errors about servers that reject requests, are unreachable, or lack what was requested."""

import itertools
import socket
import threading

import pytest
from costprobe.adapters.load_child.connection import ServerError
from costprobe.adapters.load_child.main import measure
from costprobe_probes.wire import DeviceError, ProbeConfigError, kind_of
from fakes.inference_server import InferenceServer, Notes, generating, request
from fakes.servers import free_port


def run(url, kind="openai", **more):
    notes = Notes()
    measure(notes, request(url, kind, **more))
    (result,) = notes.of("served_result")
    return result


def inferring(answer):
    """A server that answers inferences with `answer` and lists no models."""
    return InferenceServer(lambda c: c.json({}, 404) if c.method == "GET" else answer(c))


def test_error_of_a_slow_server_suggests_a_longer_timeout():
    with (
        inferring(lambda call: call.pause(20.0)) as server,
        pytest.raises(ServerError, match="longer timeout_s"),
    ):
        run(server.url, timeout_s=0.2)


def test_requests_in_flight_at_the_time_cap_are_counted():
    with inferring(generating(2, pause_s=0.1)) as server:
        result = run(server.url, warmup_requests=0, requests=1000, sample_cap_s=0.3)
    assert result["stop_reason"] == "time_cap"
    assert 2 <= result["samples"] < 1000
    assert result["errors"] == {}


@pytest.mark.parametrize("kind", ["openai", "kserve"])
def test_refused_connection_is_a_server_error(kind):
    with pytest.raises(
        ServerError, match=r"refused.*check that the server is running, and url"
    ) as raised:
        run(f"http://127.0.0.1:{free_port()}", kind)
    assert kind_of(raised.value) == "device"
    assert isinstance(raised.value, DeviceError)


def test_unresolvable_host_name_is_a_server_error():
    with pytest.raises(ServerError, match="unreachable"):
        run("http://unknown.invalid:8000", timeout_s=5.0)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, ProbeConfigError, "a file that holds the server's token"),
        (403, ProbeConfigError, "set token ="),
        (404, ProbeConfigError, r"set model to one of its models \(m, other\)"),
        (400, ProbeConfigError, "no such thing"),
        (307, ProbeConfigError, "it redirects, and redirects are not followed"),
        (429, ServerError, "no such thing"),
        (500, ServerError, "no such thing; see the server log"),
        (503, ServerError, "no such thing; see the server log"),
    ],
)
def test_error_of_a_rejected_request_contains_its_fix(status, error, words):
    good = generating()

    def answer(call):
        if call.method == "GET":
            good(call)
        else:
            call.whole(b"no such\n\tthing", status, Location="/elsewhere")

    with InferenceServer(answer) as server, pytest.raises(error, match=words) as raised:
        run(server.url, concurrency=1)
    assert f"2 of 2 requests failed, mostly http_{status}: " in str(raised.value)
    assert all(call.path != "/elsewhere" for call in server.calls)


def test_404_of_a_server_without_a_model_list_suggests_checking_the_url():
    server = InferenceServer(lambda call: call.json({}, 404))
    with server, pytest.raises(ProbeConfigError, match="check url and model"):
        run(server.url)


def test_most_frequent_failure_is_named_and_requests_stop():
    statuses = itertools.cycle([500, 503, 500, 502])
    lock = threading.Lock()

    def answer(call):
        with lock:
            status = next(statuses)
        call.json({}, status)

    with inferring(answer) as server:
        with pytest.raises(ServerError, match="4 of 4 requests failed, mostly http_500"):
            run(server.url, warmup_requests=0, requests=4, concurrency=1)
        # No further requests are sent to a server that rejects all of them.
        assert len(server.posts()) == 4


def test_half_open_connection_times_out():
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ServerError, match="mostly timeout"):
            run(url, timeout_s=0.2, warmup_requests=2, concurrency=2)
        with pytest.raises(ServerError, match="mostly timeout"):
            run(url.replace("http", "https"), timeout_s=0.2, warmup_requests=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token_file": "/nowhere/token"}, "cannot be read"),
        ({"url": "https://h", "ca_file": "/nowhere/ca"}, "cannot be used"),
        ({"url": "https://h", "ca_file": __file__}, "contains no certificates"),
    ],
)
def test_invalid_requests_are_config_errors(change, words):
    with pytest.raises(ProbeConfigError, match=words):
        measure(Notes(), {**request("http://127.0.0.1:9"), **change})


def test_prompt_is_sent_unchanged_in_any_script():
    sent = []

    def answer(call):
        sent.append(call.body["messages"][0]["content"])
        generating()(call)

    with inferring(answer) as server:
        run(server.url, prompt="日本 😀 \u0000")
    assert {prompt[13:] for prompt in sent} == {"日本 😀 \u0000"}
