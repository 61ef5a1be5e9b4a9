"""Three requests in flight while a backlog is drained: recorded in order, discarded after a failure."""

import threading

import pytest
from costprobe.adapters.http.errors import RetryLater
from fakes.outbox import MemoryOutbox
from fakes.sending import drain, worker_of
from fakes.sinks import RecordingSink

BATCH = 10
ROWS = 4 * BATCH
WAIT_S = 60


def line_of(number, name="m"):
    return f"{name} v={number} {number}"


class HeldSink(RecordingSink):
    """A server that holds its responses to the requests with these first rows.

    Attributes:
        held: By the number of a request's first row: set once the response may be sent.
        begun: First rows of all requests, in the order in which they arrived.
        ended: First rows of the requests with a response.
        answers: Errors by the number of a request's first row, each raised once.
    """

    def __init__(self, *held):
        super().__init__()
        self.held = {number: threading.Event() for number in held}
        self.begun, self.ended = [], []
        self.answers = {}

    def post(self, body):
        number = int(body.split(b"\n")[0].split()[-1])
        self.begun.append(number)
        if number in self.held:
            assert self.held[number].wait(WAIT_S)
        try:
            if number in self.answers:
                raise self.answers.pop(number)
            super().post(body)
        finally:
            self.ended.append(number)


@pytest.fixture
def outbox():
    return MemoryOutbox(backlog=[line_of(number) for number in range(ROWS)])


def stepping(worker):
    thread = threading.Thread(target=worker.step, daemon=True)
    thread.start()
    return thread


def finish(thread):
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_rows_are_recorded_in_order_if_the_second_response_comes_first(outbox, wait_until):
    sink = HeldSink(0)
    worker = worker_of(outbox, sink, batch_points=BATCH)
    thread = stepping(worker)
    wait_until(lambda: BATCH in sink.ended)
    assert (outbox.sent, outbox.backlog.done_seq) == (0, 0)
    sink.held[0].set()
    finish(thread)
    assert (outbox.sent, outbox.backlog.done_seq) == (BATCH, BATCH)
    drain(worker, outbox)
    assert sorted(sink.begun) == [0, BATCH, 2 * BATCH, 3 * BATCH]
    assert outbox.sent == ROWS


def test_rejected_request_is_searched_before_the_accepted_one_after_it_counts(wait_until):
    lines = [line_of(number, "poison" if number == 3 else "m") for number in range(ROWS)]
    outbox, sink = MemoryOutbox(backlog=lines), HeldSink(0)
    worker = worker_of(outbox, sink, batch_points=BATCH)
    thread = stepping(worker)
    wait_until(lambda: BATCH in sink.ended)
    sink.held[0].set()
    finish(thread)
    assert outbox.rejected == [(lines[3], "it is poison")]
    assert (outbox.sent, outbox.backlog.done_seq) == (BATCH - 1, BATCH)
    drain(worker, outbox)
    assert (outbox.sent, set(sink.lines)) == (ROWS - 1, {*lines} - {lines[3]})
    assert sink.begun.count(BATCH) == 2


def test_failure_of_the_second_request_keeps_the_first(outbox, wait_until):
    sink = HeldSink(BATCH)
    worker = worker_of(outbox, sink, batch_points=BATCH)
    finish(stepping(worker))
    assert outbox.sent == BATCH
    wait_until(lambda: BATCH in sink.begun)
    sink.answers[BATCH] = RetryLater("busy")
    sink.held[BATCH].set()
    worker.step()
    assert (outbox.sent, worker.status()["state"]) == (BATCH, "backing off")
    drain(worker, outbox)
    assert (outbox.sent, set(sink.lines)) == (ROWS, {line_of(number) for number in range(ROWS)})


def test_stop_with_three_requests_in_flight_starts_no_fourth_and_loses_nothing(outbox, wait_until):
    sink, stop = HeldSink(0, BATCH, 2 * BATCH), threading.Event()
    worker = worker_of(outbox, sink, batch_points=BATCH, stop=stop)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    wait_until(lambda: len(sink.begun) == 3)
    stop.set()
    worker.wake()
    assert not sink.is_closed
    for held in sink.held.values():
        held.set()
    finish(thread)
    assert sorted(sink.begun) == [0, BATCH, 2 * BATCH]
    assert (outbox.sent, sink.is_closed) == (BATCH, True)
    restarted = RecordingSink()
    drain(worker_of(outbox, restarted, batch_points=BATCH), outbox)
    assert {*sink.lines, *restarted.lines} == {line_of(number) for number in range(ROWS)}
    assert outbox.sent == ROWS
