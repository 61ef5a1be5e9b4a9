"""Parts of the probes of servers by themselves: event streams, connections, loads."""

import time

import pytest
from fakes.inference_server import InferenceServer
from hypothesis import given
from hypothesis import strategies as st

from probes.digest import fingerprint
from probes.served.http import Connection, Failure
from probes.served.load import MAX_KINDS, Load, Outcomes, Quota, counted
from probes.served.outcome import Failed, Reply
from probes.served.sse import MAX_EVENT_BYTES, EventStream
from probes.served.target import target

lines = st.binary(max_size=20).filter(lambda x: b"\n" not in x and not x.endswith(b"\r"))


@given(st.lists(lines, max_size=6), st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_events_are_the_same_however_the_stream_is_cut(contents, end, data):
    stream = b"".join(b"data: " + content + end + end for content in contents)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events = EventStream()
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += events.feed(stream[start:stop])
    assert found == contents


def test_fields_other_than_data_and_comments_are_no_events():
    events = EventStream()
    assert events.feed(b": hi\n\nevent: x\nid: 3\nretry: 5\n\ndata\ndata:a\ndata:  b\n\n") == [
        b"\na\n b"
    ]


@pytest.mark.parametrize("piece", [b"x" * 1000, b"data:\n", b": ping\n", b"data: x\n" * 99])
def test_an_event_without_end_is_refused(piece):
    events = EventStream()

    def feed():
        for _ in range(MAX_EVENT_BYTES):
            events.feed(piece)

    with pytest.raises(Failure, match="an event has more than") as told:
        feed()
    assert told.value.kind == "too_large"


def test_a_kept_connection_that_the_server_closed_meanwhile_is_made_anew():
    def answer(call):
        call.json({})
        call.cut()

    with InferenceServer(answer) as server:
        connection = Connection(target(server.url, None, None), 10.0)
        for _ in range(2):
            connection.exchange("GET", "/", None, lambda *_: False)
            time.sleep(0.2)  # for the server's end of the connection to arrive
        connection.close()
        assert len(server.connections) == 2


def test_a_connection_is_kept_between_requests():
    with InferenceServer(lambda call: call.json({})) as server:
        connection = Connection(target(server.url, None, None), 10.0)
        for _ in range(5):
            exchange = connection.exchange("GET", "/", None, lambda *_: False)
            assert exchange.start_ns < exchange.end_ns
        connection.close()
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    ("url", "name", "header"),
    [
        ("http://host", "host:80", "host"),
        ("http://host:8000/a/", "host:8000", "host:8000"),
        ("http://[::1]:80", "[::1]:80", "[::1]"),
        ("http://[::1]:8000", "[::1]:8000", "[::1]:8000"),
        ("https://host", "host:443", "host"),
        ("https://host:80", "host:80", "host:80"),
    ],
)
def test_a_server_is_named_as_http_has_it(url, name, header):
    found = target(url, None, None)
    assert (found.name, found.host_header) == (name, header)


def test_what_a_server_says_is_kept_short_in_one_line_and_without_the_token(tmp_path):
    path = tmp_path / "token"
    path.write_text("abc123\n")
    found = target("http://host", None, str(path))
    assert found.words("a\x1b[31m\nb \u202e abc123") == "a [31m b ***"
    assert len(found.words("x" * 9999)) == 200
    assert "abc123" not in repr(found)


class BugError(Exception):
    pass


class Kind:
    """A kind of server that needs none; fails by script."""

    def __init__(self, *, failing=(), bug=False):
        self._failing = set(failing)
        self._bug = bug
        self.sent = 0

    def send(self, _connection):
        self.sent += 1
        if self._bug:
            raise BugError
        if self.sent in self._failing:
            raise Failure("odd", "it is odd")
        now_ns = time.monotonic_ns()
        return Reply(now_ns, now_ns + 1)


def load_of(kind, quota, concurrency=1):
    place = target("http://127.0.0.1:9", None, None)
    return Load(
        kind,
        lambda: Connection(place, 1.0),
        concurrency=concurrency,
        quota=quota,
        timeout_s=1.0,
    )


def ended(load):
    with load:
        while load.is_on():
            time.sleep(0.001)
    return load.outcomes()


def test_a_load_ends_with_its_answers_and_sends_those_that_failed_again():
    kind = Kind(failing={2, 3})
    outcomes = ended(load_of(kind, Quota(5, 9, 60.0)))
    assert (kind.sent, len(outcomes.replies), len(outcomes.failed)) == (7, 5, 2)
    assert counted(outcomes.failed) == {"odd": 2}
    assert not outcomes.is_mostly_failed()


def test_a_load_ends_with_too_many_failures():
    outcomes = ended(load_of(Kind(failing=range(99)), Quota(5, 3, 60.0)))
    assert (len(outcomes.replies), len(outcomes.failed)) == (0, 3)
    assert outcomes.is_mostly_failed()


def test_no_more_than_are_wanted_are_sent_at_any_concurrency():
    assert len(ended(load_of(Kind(), Quota(100, 9, 60.0), concurrency=16)).replies) == 100


def test_a_bug_ends_the_load_and_is_raised_where_it_is_left():
    with pytest.raises(BugError):
        ended(load_of(Kind(bug=True), Quota(None, 9, 60.0), concurrency=4))


def test_outcomes_are_chosen_by_when_they_were_under_way():
    replies = [Reply(0, 10), Reply(10, 20), Reply(20, 30)]
    failed = [Failed(5, 12, "odd", ""), Failed(30, 40, "odd", "")]
    outcomes = Outcomes(replies, failed)
    assert outcomes.sent_before(10) == (replies[:1], failed[:1])
    assert outcomes.within(10, 20) == (replies[1:2], failed[:1])
    assert outcomes.span_ns() == (0, 40)


def test_the_table_of_failures_is_bounded():
    failed = [Failed(0, 1, f"kind{i}", "") for i in range(40) for _ in range(41 - i)]
    table = counted(failed)
    assert len(table) == MAX_KINDS + 1
    assert next(iter(table)) == "kind0"
    assert sum(table.values()) == len(failed)
    assert table["other"] == sum(41 - i for i in range(MAX_KINDS, 40))


def test_a_fingerprint_is_of_the_facts_in_any_order():
    assert fingerprint({"a": "1", "b": "2"}) == fingerprint({"b": "2", "a": "1"})
    assert fingerprint({"a": "1"}) != fingerprint({"a": "2"})
    assert len(fingerprint({})) == 12
