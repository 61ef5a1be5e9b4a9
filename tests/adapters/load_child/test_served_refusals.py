"""Errors about servers that reject requests, are unreachable, or lack what was requested."""

import socket

import pytest
from costprobe.adapters.load_child.connection import ServerError
from costprobe.adapters.load_child.main import measure
from costprobe_probes.wire import DeviceError, ProbeConfigError, kind_of
from fakes.inference_server import InferenceServer, Notes, generating, inferring, measured, request
from fakes.servers import free_port
from record.record_files import check_outcomes


def test_requests_in_flight_at_the_time_cap_are_counted():
    with inferring(generating(2, pause_s=0.1)) as server:
        result = measured(server.url, warmup_requests=0, requests=1000, sample_cap_s=0.3)
    assert (result["stop_reason"], result["errors"]) == ("time_cap", {})
    assert 2 <= result["samples"] < 1000


def test_unreachable_server_is_a_server_error():
    for place, kind, words in (
        (f"http://127.0.0.1:{free_port()}", "openai", "check that the server is running, and url"),
        (f"http://127.0.0.1:{free_port()}", "kserve", r"refused"),
        ("http://unknown.invalid:8000", "openai", "unreachable"),
    ):
        with pytest.raises(ServerError, match=words) as raised:
            measured(place, kind, timeout_s=5.0)
        assert (kind_of(raised.value), isinstance(raised.value, DeviceError)) == ("device", True)


def test_error_of_a_rejected_request_contains_its_fix():
    good = generating()

    def error_of(status):
        def answer(call):
            if call.method == "GET":
                good(call)
            else:
                call.whole(b"no such\n\tthing", int(status), Location="/elsewhere")

        with InferenceServer(answer) as server, pytest.raises(Exception, match="failed") as raised:
            measured(server.url, concurrency=1)
        assert all(call.path != "/elsewhere" for call in server.calls)
        return f"{type(raised.value).__name__}: {raised.value}".replace(server.url[7:], "HOST")

    check_outcomes("rejected_requests.json", error_of)


def test_most_frequent_failure_is_named_and_requests_stop():
    statuses = iter([500, 503, 500, 502])
    with inferring(lambda call: call.json({}, next(statuses))) as server:
        with pytest.raises(ServerError, match="4 of 4 requests failed, mostly http_500"):
            measured(server.url, warmup_requests=0, requests=4, concurrency=1)
        # No further requests are sent to a server that rejects all of them.
        assert len(server.posts()) == 4


def test_half_open_connection_times_out():
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        for scheme in ("http", "https"):
            place = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(ServerError, match="mostly timeout"):
                measured(place, timeout_s=0.2, warmup_requests=2, concurrency=2)


def test_invalid_requests_are_config_errors():
    for change, words in (
        ({"token_file": "/nowhere/token"}, "cannot be read"),
        ({"url": "https://h", "ca_file": "/nowhere/ca"}, "cannot be used"),
        ({"url": "https://h", "ca_file": __file__}, "contains no certificates"),
    ):
        with pytest.raises(ProbeConfigError, match=words):
            measure(Notes(), {**request("http://127.0.0.1:9"), **change})
