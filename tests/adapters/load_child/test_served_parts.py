"""Event streams, connections and loads of server probes."""

import collections
import itertools
import json
import time

import pytest
from costprobe.adapters.load_child.clients import MAX_EVENT_BYTES, EventStream
from costprobe.adapters.load_child.connection import Failure, Reply, ServerConnection, parse_target
from costprobe.adapters.load_child.load import (
    LoadGenerator,
    Outcomes,
    PoissonArrivals,
    Quota,
    count_by_kind,
)
from fakes.inference_server import InferenceServer
from hypothesis import given
from hypothesis import strategies as st

data = st.binary(min_size=1, max_size=20).filter(lambda x: b"\n" not in x and x == x.strip())


@given(st.lists(data, max_size=6), st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_events_do_not_depend_on_how_the_stream_is_split(contents, end, drawn):
    stream = b"".join(b"data: " + content + end + end for content in contents)
    cuts = sorted(drawn.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events = EventStream()
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += events.feed(stream[start:stop])
    assert found == contents


def test_only_lines_of_data_make_events_and_their_length_is_bounded():
    events = EventStream()
    feed = b": hi\n\nevent: x\nid: 3\nretry: 5\n\ndata\ndata:\ndata:a\ndata:  b\n\n"
    assert events.feed(feed) == [b"a", b"b"]
    with pytest.raises(Failure, match="an event has more than") as raised:
        collections.deque(map(events.feed, itertools.repeat(b"x" * 1000, MAX_EVENT_BYTES)), 0)
    assert raised.value.kind == "too_large"


def test_connection_closed_by_the_server_is_reopened(wait_until):
    def answer(call):
        call.json({})
        call.cut()

    with InferenceServer(answer) as server:
        connection = ServerConnection(parse_target(server.url, None, None), 60.0)
        for _ in range(2):
            connection.exchange("GET", "/", None, lambda *_: False)
            wait_until(lambda: server.ended == len(server.connections))
        connection.close()
        assert len(server.connections) == 2


def test_request_that_fills_the_socket_is_sent_to_its_end():
    # Longer than the buffers of both sockets together.
    body = json.dumps("x" * 16_000_000).encode()
    with InferenceServer(lambda call: call.json({"received": len(call.raw_body)})) as server:
        connection = ServerConnection(parse_target(server.url, None, None), 10.0)
        content = bytearray()
        connection.exchange("POST", "/", body, lambda data, _: content.extend(data))
        connection.close()
    assert json.loads(content) == {"received": len(body)}


class ClientBugError(Exception):
    pass


class ScriptedClient:
    """A client without a server, which fails as scripted."""

    def __init__(self, *, failing=(), bug=False):
        self._failing = set(failing)
        self._bug = bug
        self.sent = 0
        self.built_ns = []

    def next_request(self):
        self.built_ns.append(time.monotonic_ns())
        return self._send

    def _send(self, _connection):
        self.sent += 1
        if self._bug:
            raise ClientBugError
        if self.sent in self._failing:
            raise Failure("odd", "it is odd")
        now_ns = time.monotonic_ns()
        return Reply(now_ns, now_ns + 1)


def load_of(client, quota, concurrency=1, arrivals=None):
    place = parse_target("http://127.0.0.1:9", None, None)
    return LoadGenerator(
        client,
        lambda: ServerConnection(place, 1.0),
        concurrency=concurrency,
        quota=quota,
        timeout_s=1.0,
        arrivals=arrivals,
    )


def ended(load):
    with load:
        while load.is_running():
            time.sleep(0.001)
    return load.outcomes()


def test_load_ends_at_its_answers_or_its_failures_at_any_concurrency():
    client = ScriptedClient(failing={2, 3})
    outcomes = ended(load_of(client, Quota(5, 9, 60.0)))
    assert (client.sent, len(outcomes.replies), len(outcomes.failed)) == (7, 5, 2)
    assert count_by_kind(outcomes.failed) == {"odd": 2}
    assert not outcomes.is_mostly_failed()
    outcomes = ended(load_of(ScriptedClient(failing=range(99)), Quota(5, 3, 60.0)))
    assert (len(outcomes.replies), len(outcomes.failed)) == (0, 3)
    assert outcomes.is_mostly_failed()
    in_flight = Outcomes([Reply(0, 10), Reply(10, 20), Reply(20, 30)], []).within(10, 20)
    assert in_flight.replies == [Reply(10, 20)]
    assert len(ended(load_of(ScriptedClient(), Quota(100, 9, 60.0), concurrency=16)).replies) == 100


def test_request_of_an_open_loop_is_built_before_its_instant():
    client = ScriptedClient()
    arrivals = PoissonArrivals(1.0, time.monotonic_ns() + 200_000_000, 1)
    (reply,) = ended(load_of(client, Quota(1, 9, 60.0), arrivals=arrivals)).replies
    assert client.built_ns[0] < reply.scheduled_ns <= reply.start_ns


def test_unexpected_exception_ends_the_load_and_is_raised_on_exit():
    with pytest.raises(ClientBugError):
        ended(load_of(ScriptedClient(bug=True), Quota(None, 9, 60.0), concurrency=4))
