"""Scripted servers: both write APIs translate a response in the same way."""

import gzip
import json

import pytest
from costprobe.adapters.http.access import is_loopback
from fakes.outbox import MemoryOutbox
from fakes.sending import send, sink_of, worker_of
from fakes.servers import Scripted

PLAIN_TO_TLS = b"Client sent an HTTP request to an HTTPS server.\n"


@pytest.fixture(params=["v1", "v2"])
def api(request):
    return request.param


def lines(count):
    return [f"m,host=h{i % 7} v={i / 3},n={i}i {i * 10**6}" for i in range(count)]


def pushed(sink, stored, *, steps):
    """An outbox and its worker after a number of steps."""
    outbox = MemoryOutbox(stored)
    worker = worker_of(outbox, sink)
    for _ in range(steps):
        worker.step()
    sink.close()
    return outbox, worker


def test_only_bodies_to_another_host_are_compressed(api):
    payload = "\n".join(lines(1000)).encode()
    with Scripted(lambda *_: (204, {}, b"")) as server:
        for url, proxy in (
            (server.url, None),
            (server.url.replace("127.0.0.1", "localhost"), None),
            ("http://influx.invalid:8086", server.url),
        ):
            sink = sink_of(api, url, proxy=proxy)
            send(sink, payload)
            sink.close()
    for (method, path, headers, body), is_far in zip(server.requests, (0, 0, 1), strict=True):
        assert (method, "precision=ns" in path) == ("POST", True)
        place = path.removeprefix("http://influx.invalid:8086")
        assert place.startswith("/write?" if api == "v1" else "/api/v2/write?")
        assert headers.get("Content-Encoding") == ("gzip" if is_far else None)
        assert (gzip.decompress(body) if is_far else body) == payload


def test_loopback_addresses():
    own = ("http://127.0.0.1:8086", "http://127.9.9.9", "https://[::1]:8086/x", "http://localhost")
    others = ("http://10.0.0.1:8086", "http://localhost.example.com", "http://influx")
    assert [is_loopback(url) for url in (*own, *others)] == [True] * 4 + [False] * 3


def test_one_refused_point_among_a_thousand_is_quarantined(api):
    stored, taken = lines(1000), []
    stored[617] = "poison v=1 1"

    def answer(_method, _path, _headers, body):
        found = body.decode().split("\n")
        if "poison v=1 1" in found:
            return 400, {}, b'{"error":"partial write: it is poison dropped=1"}'
        taken.extend(found)
        return 204, {}, b""

    with Scripted(answer) as server:
        outbox, _ = pushed(sink_of(api, server.url), stored, steps=1)
    assert taken == stored[:617] + stored[618:]
    ((line, reason),) = outbox.rejected
    assert line == "poison v=1 1"
    assert "partial write: it is poison dropped=1" in reason
    assert outbox.live.done_seq == 1000
    # One point among a thousand is found in about twice log2(1000) requests.
    assert len(server.requests) <= 25


# InfluxDB 1.x, 2.0, 2.1 and later, and 2.7.11.
_OLD = "points beyond retention policy dropped=3"
_LONG = (
    f"dropped 3 points {'x' * 500} dropped=3 for database: 91040e1b for retention policy: autogen"
)
PARTIAL = (
    (400, f"partial write: {_OLD}"),
    (500, f"unexpected error writing points to database: partial write: {_OLD}"),
    (422, f"failure writing points to database: partial write: {_OLD}"),
    (422, f"failure writing points to database: partial write: {_LONG}"),
)


def test_count_of_dropped_points_is_read_from_each_version(api):
    for status, message in PARTIAL:
        document = json.dumps({"message" if status != 400 else "error": message}).encode()
        with Scripted(lambda *_, s=status, d=document: (s, {}, d)) as server:
            outbox, worker = pushed(sink_of(api, server.url), lines(3), steps=1)
        assert len(server.requests) == 1, message
        assert [line for line, _ in outbox.rejected] == lines(3), message
        assert worker.status()["rejected_points"] == 3
    # InfluxDB 3 lists the lines instead.
    listed = [{"error_message": "column severity", "line_number": n} for n in (1, 2, 3)]
    document = {"error": "partial write of line protocol occurred", "data": listed}
    with Scripted(lambda *_: (400, {}, json.dumps(document).encode())) as server:
        outbox, _ = pushed(sink_of(api, server.url), lines(3), steps=1)
    assert (len(server.requests), len(outbox.rejected)) == (1, 3)
    assert outbox.rejected[0][1] == (
        "HTTP 400: partial write of line protocol occurred: column severity"
    )
    # The text of a line is not the server's count.
    quoted = "unable to parse 'm,a=partial write: x dropped=3': missing fields"
    for message in (quoted, f"partial write: {quoted} dropped=0"):
        document = json.dumps({"error": message}).encode()
        with Scripted(lambda *_, d=document: (400, {}, d)) as server:
            pushed(sink_of(api, server.url), lines(3), steps=1)
        assert len(server.requests) == 5, message


def test_response_of_another_server_program_loses_nothing(api):
    for answer in (
        (400, {}, PLAIN_TO_TLS),
        (200, {}, b"<html>Please log in</html>"),
        (302, {"Location": "/login"}, b""),
        (403, {}, b""),
        (404, {}, b"404 page not found"),
        (405, {}, b""),
        (502, {}, b"\xff\xfe"),
        (400, {}, b"\xff\xfe"),
        (503, {}, b"<html>" * 100_000),
    ):
        with Scripted(lambda *_, answer=answer: answer) as server:
            outbox, worker = pushed(sink_of(api, server.url), lines(100), steps=3)
        assert outbox.live.done_seq == 0
        assert outbox.rejected == []
        status = worker.status()
        assert status["state"] in {"misconfigured", "backing off"}
        assert status["failures"] == 3
        assert len(status["last_error"]) < 1000
