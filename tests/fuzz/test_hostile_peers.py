"""Servers and clients that send damaged, nested and endless data: one kind of error, never another."""

import gc
import io
import json
import logging
import random
import socket
from contextlib import ExitStack, contextmanager

import pytest
from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import MetricsFetcher
from costprobe.adapters.host.log import Log, quiet_libraries
from costprobe.adapters.host.redaction import REDACTOR
from costprobe.adapters.http.errors import DeliveryError
from costprobe.adapters.load_child.clients import EventStream
from costprobe.adapters.load_child.connection import (
    Failure,
    ServerConnection,
    parse_json,
    parse_target,
)
from costprobe.adapters.sensors.messages import decode
from costprobe.delivery.kinds import build_notifier
from costprobe.delivery.webhook import WebhookConfig
from costprobe.pricing.plans import SpotPlan, parse_spot
from costprobe.serving.meter import ServiceMeter
from costprobe.serving.settings import ServiceConfig
from fakes.incidents import incident
from fakes.sending import send, sink_of
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
    b"[" * 20_000,
    b'{"a":' * 9_000,
    b"1" * 6_000,
    b"1e999999999",
    b"NaN",
    b"\x00",
    b"\xff\xfe",
    b"\r\n",
    b"\x1b[2J",
    b'"\\ud800"',
    b"{}",
    b"null",
    b"-0",
]
HEADERS = [
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"Content-Length: x",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Content-Encoding: gzip",
    b"Content-Type: \xff",
    b"Retry-After: 1e400",
    b"Retry-After: Thu, 99 Foo 99999 99:99:99 GMT",
    b"Location: http://[::",
    b"Server: \x1b]0;x\x07",
    b"X" * 300,
    b": empty",
    b" folded",
]
STATUS = [
    b"200 OK",
    b"204 No",
    b"302 x",
    b"400 x",
    b"401",
    b"429 x",
    b"500 x",
    b"999 x",
    b"-1",
    b"x",
]


def damaged(rng, content):
    """Content with a few pieces replaced, inserted or cut."""
    parts = bytearray(content)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(parts) + 1)
        choice = rng.random()
        if choice < 0.4:
            parts[at:at] = rng.choice(ODD)
        elif choice < 0.7:
            parts[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
        else:
            del parts[at:]
    return bytes(parts)


def response(rng):
    """A damaged response, with a header or without."""
    body = damaged(rng, rng.choice([JSON, METRICS, EVENTS, *ODD]))
    if rng.random() < 0.1:
        return body
    lines = [b"HTTP/1.1 " + rng.choice(STATUS), *rng.sample(HEADERS, rng.randrange(4))]
    if rng.random() < 0.5:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    return damaged(rng, head + body) if rng.random() < 0.3 else head + body


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


def webhook(server, stack):
    config = WebhookConfig(name="n", kind="webhook", url=server.url, timeout=f"{TIMEOUT_S}s")
    sender = build_notifier(config)
    stack.callback(sender.close)
    return lambda: sender.send([incident()], 1)


def influxdb(api):
    options = {"database": "d"} if api == "v1" else {"org": "o", "bucket": "b"}

    def made(server, stack):
        sink = sink_of(api=api, url=server.url, timeout_s=TIMEOUT_S, **options)
        stack.callback(sink.close)
        return lambda: (send(sink, b"m f=1 1"), sink.check())

    return made


def spot_price(server, _):
    plan = SpotPlan(plan="spot", url=server.url)

    def read():
        text = read_source(plan, TIMEOUT_S)
        try:
            parse_spot(text, 1, "USD")
        except ValueError as error:
            raise SourceError(str(error)) from error

    return read


def scrape(server, _):
    service = ServiceConfig(
        name="s", engine="vllm", url=[f"{server.url}/metrics"], devices=["gpu0"]
    )
    meter = ServiceMeter(service, MetricsFetcher(service), lambda: 1, lambda: 1)
    return meter.close_window


def served_probe(server, stack):
    connection = ServerConnection(parse_target(server.url, None, None), TIMEOUT_S)
    stack.callback(connection.close)

    def exchange():
        stream, received = EventStream(), bytearray()

        def consume(data, _):
            received.extend(data)
            for event in stream.feed(data):
                parse_json(event)
            return False

        connection.exchange("POST", "/v1/chat/completions", b"{}", consume)
        parse_json(bytes(received))

    return exchange


CLIENTS = {
    "webhook": (webhook, DeliveryError),
    "InfluxDB 1": (influxdb("v1"), DeliveryError),
    "InfluxDB 2": (influxdb("v2"), DeliveryError),
    "spot price": (spot_price, SourceError),
    "scrape": (scrape, ScrapeError),
    "probe of a server": (served_probe, Failure),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_any_response_is_taken_or_one_kind_of_error(client, log):
    make, error = CLIENTS[client]
    unexpected = []
    with hostile_server(SEED) as server, ExitStack() as stack:
        act = make(server, stack)
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
            decode(damaged(rng, line))
        except ValueError as error:
            assert str(error).isprintable()  # noqa: PT017 - both outcomes are right
