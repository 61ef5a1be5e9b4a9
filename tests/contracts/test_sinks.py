"""The contract of sinks (docs/contributing/kinds.md), on every sink and its real destination."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest
from contracts.sink_destinations import DESTINATIONS
from costprobe.adapters.http.errors import DeliveryError, RetryLater
from costprobe.core.clock import SystemClock
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from costprobe.delivery.contract import SinkConfig
from costprobe.delivery.kinds import SINKS
from costprobe.delivery.loop import IN_FLIGHT_MAX
from fakes.outbox import MemoryOutbox
from fakes.sending import drain, send, worker_of

START_NS = 1_780_000_000 * 10**9
names = (f"contract{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=sorted(DESTINATIONS))
def destination(request, tmp_path_factory):
    with DESTINATIONS[request.param](tmp_path_factory.mktemp("sink")) as opened:
        yield opened


@pytest.fixture
def sink(destination):
    opened = destination.sink(SystemClock())
    yield opened
    opened.close()


def points_of(count, *, tags=None, measurement=None):
    """Return points of a unique measurement, so that tests can share a destination."""
    name = measurement or next(names)
    return [
        Point(name, {"host": f"h{i % 3}"} | (tags or {}), {"v": i + 0.5}, START_NS + i * 10**9)
        for i in range(count)
    ]


def text(points):
    return "\n".join(map(render, points)).encode()


def keyed(points):
    return {
        (p.measurement, tuple(sorted(p.tags.items())), p.time_ns // 10**6): p.fields["v"]
        for p in points
    }


def arrived(destination, points):
    """Return the points of their measurement that arrived."""
    expected = keyed(points)
    measurements = {point.measurement for point in points}
    found = destination.points(expected)
    return {key: value for key, value in found.items() if key[0] in measurements}


def test_each_kind_takes_part_and_has_a_section_of_its_own():
    assert set(SINKS) <= set(DESTINATIONS)
    for api, kind in SINKS.items():
        assert issubclass(kind.config, SinkConfig)
        assert get_args(kind.config.model_fields["api"].annotation) == (api,)
        undescribed = [n for n, f in kind.config.model_fields.items() if not f.description]
        assert not undescribed


def test_posted_points_arrive_and_a_repetition_changes_nothing(destination, sink):
    points = points_of(50)
    body = sink.encode(text(points))
    for _ in range(2):
        sink.post(body)
    assert arrived(destination, points) == keyed(points)


def test_odd_text_arrives_as_written(destination, sink):
    marks = "\"'#/_:.-1i"
    tags = {"label": "a b,c=d", "name": "ü é 😀", "marks": marks, "word": "NaN"}
    points = points_of(2, tags=tags)
    send(sink, text(points))
    assert arrived(destination, points) == keyed(points)


def test_encode_is_pure_and_may_be_called_by_another_thread(sink):
    bodies = [text(points_of(20, measurement=f"m{number}")) for number in range(20)]
    alone = [sink.encode(body) for body in bodies]
    with ThreadPoolExecutor(4) as threads:
        # The time in a gzip header may differ: compare what both decode to by their length.
        assert list(map(len, threads.map(sink.encode, bodies))) == list(map(len, alone))


def test_three_requests_at_a_time_arrive(destination, sink):
    requests = [points_of(200) for _ in range(8)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda points: send(sink, text(points)), requests))
    for points in requests:
        assert arrived(destination, points) == keyed(points)


def test_check_command_stores_nothing(destination, sink):
    before = destination.points(())
    assert sink.check()
    assert destination.points(()) == before


def test_close_may_be_called_twice(destination):
    sink = destination.sink(SystemClock())
    sink.close()
    sink.close()


@pytest.mark.processes
def test_outage_is_retried_and_the_same_sink_recovers(destination):
    points = points_of(5)
    destination.stop()
    try:
        sink = destination.sink(SystemClock())  # connects to nothing yet
        failures = []
        for attempt in (lambda: send(sink, text(points)), sink.check):
            with pytest.raises(DeliveryError) as caught:
                attempt()
            failures.append(caught.value)
    finally:
        destination.start()
    assert all(isinstance(error, RetryLater) for error in failures)
    assert all(error.reason and error.reason.isprintable() for error in failures)
    send(sink, text(points))
    sink.close()
    assert arrived(destination, points) == keyed(points)


def test_delivery_through_an_outage_has_no_loss_and_no_duplicate(destination, sink):
    points = points_of(1000)
    outbox = MemoryOutbox(backlog=[render(point) for point in points])
    worker = worker_of(outbox, sink, batch_points=100)
    for _ in range(3):
        worker.step()
    destination.stop()
    try:
        for _ in range(IN_FLIGHT_MAX):  # those in flight may have been accepted before
            worker.step()
        assert worker.status()["state"] == "backing off"
    finally:
        destination.start()
    drain(worker, outbox)
    assert arrived(destination, points) == keyed(points)
    assert (outbox.sent, outbox.rejected) == (1000, [])
