"""Servers and clients that send damaged, nested and endless data: one kind of error, never another."""

import gc
import io
import json
import logging
import random
import socket
from contextlib import ExitStack, contextmanager

import pytest
from costprobe.adapters.host.log import Log, quiet_libraries
from costprobe.adapters.host.redaction import REDACTOR
from costprobe.adapters.sensors.messages import decode
from fakes.damaged import damaged
from fakes.http_clients import CLIENTS
from fakes.servers import Talking
from fakes.sizes import sized

SEED = 20
ROUNDS = sized(60, 5000)
TIMEOUT_S = 5.0
JSON = b'{"error": {"message": "no"}, "data": [{"id": "m"}], "price": 1.5, "time": 1700000000}'
METRICS = (
    b'# TYPE vllm:request_success_total counter\nvllm:request_success_total{model_name="m"} 5\n'
)
EVENTS = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n'
ODD = [
    b"[" * 20_000, b'{"a":' * 9_000, b"1" * 6_000, b"1e999999999", b"NaN", b"\x00", b"\xff\xfe",
    b"\r\n", b"\x1b[2J", b'"\\ud800"', b"{}", b"null", b"-0",
]  # fmt: skip
HEADERS = [
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: x",
    b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: gzip", b"Content-Type: \xff",
    b"Retry-After: 1e400", b"Retry-After: Thu, 99 Foo 99999 99:99:99 GMT",
    b"Location: http://[::", b"Server: \x1b]0;x\x07", b"X" * 300, b": empty", b" folded",
]  # fmt: skip
STATUS = [
    b"200 OK", b"204 No", b"302 x", b"400 x", b"401", b"429 x", b"500 x", b"999 x", b"-1", b"x",
]  # fmt: skip


def response(rng):
    """A damaged response, with a header or without."""
    body = damaged(rng, rng.choice([JSON, METRICS, EVENTS, *ODD]), ODD)
    if rng.random() < 0.1:
        return body
    lines = [b"HTTP/1.1 " + rng.choice(STATUS), *rng.sample(HEADERS, rng.randrange(4))]
    if rng.random() < 0.5:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    return damaged(rng, head + body, ODD) if rng.random() < 0.3 else head + body


@contextmanager
def hostile_server(seed):
    """A server that answers each connection with the next response of a seed, and closes it."""
    rng = random.Random(seed)

    def talk(connection):
        connection.settimeout(TIMEOUT_S)
        request = b""
        while b"\r\n\r\n" not in request:
            part = connection.recv(65536)
            if not part:
                return
            request += part
        connection.sendall(response(rng))
        connection.shutdown(socket.SHUT_WR)

    with Talking(talk) as server:
        yield server


@pytest.fixture
def log():
    """What the daemon's log contains."""
    root, stream = logging.getLogger(), io.StringIO()
    handler = Log(stream, REDACTOR)
    root.addHandler(handler)
    quiet_libraries()
    yield stream
    root.removeHandler(handler)
    handler.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_any_response_is_taken_or_one_kind_of_error(client, log):
    make, error = CLIENTS[client]
    unexpected = []
    with hostile_server(SEED) as server, ExitStack() as stack:
        act = make(server.url, TIMEOUT_S, stack)
        for number in range(ROUNDS):
            try:
                act()
            except error as expected:
                assert str(expected).isprintable()  # noqa: PT017 - each of many
            except Exception as other:  # noqa: BLE001 - what the test looks for
                unexpected.append((number, repr(other)))
    # A socket that is still open is a warning here.
    gc.collect()
    assert unexpected == []
    assert "Traceback" not in log.getvalue()


def test_any_line_of_a_child_is_taken_or_malformed():
    rng = random.Random(SEED)
    line = json.dumps({"type": "result", "latency_ms": {"p50": 1.0}, "tags": {}}).encode()
    for _ in range(20 * ROUNDS):
        try:
            decode(damaged(rng, line, ODD))
        except ValueError as error:
            assert str(error).isprintable()  # noqa: PT017 - both outcomes are right
