"""Delivery of rows to sinks: retries, back-off, batching, backlog.

Each sink has a thread that decides when rows are sent, at what rate, and how failures are
retried. The size of a request adapts to what the server accepts, and rows that a sink rejects are
isolated. Up to three requests are in flight while a backlog is drained, finished in the order of
their rows.

Hosts that start together (a rollout, the end of a power outage) would otherwise send together,
and a database would have to be sized for their common peak. Each host sends at its own phase of
the flush interval, a hash of its name: the same after every restart, spread evenly over a fleet,
and without any coordination. A backlog begins at a random moment instead, because an outage makes
all hosts begin at once.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from random import Random
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any, Final, NamedTuple

from costprobe.adapters.http.errors import (
    Misconfigured,
    Rejected,
    RetryBackoff,
    RetryLater,
    TokenBucket,
)
from costprobe.adapters.store.cursors import RowStream, SinkOutbox
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, OutboxRow, RowBatch
from costprobe.core.units import format_duration
from costprobe.delivery.contract import Sink, SinkConfig

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 4 << 20
MIN_BATCH_BYTES: Final = 16 << 10
MIN_BATCH_POINTS: Final = 100
# Assumed before the first lines: the size of a row of `device`.
FIRST_LINE_BYTES: Final = 500
# Each accepted request adds this share of the largest batch.
STEP_SHARE: Final = 0.05
# A request that is too large costs a round trip, and a server's limit rarely changes.
ACCEPTED_BEFORE_LARGER: Final = 200
# With fewer, processors of a server are idle while requests and responses are on their way.
IN_FLIGHT_MAX: Final = 3
# A backlog begins within this many flush intervals: two minutes at the defaults.
BACKLOG_FLUSHES: Final = 12
# A flush this shortly before its scheduled time counts as that flush; a share of the interval.
_SERVED_SHARE: Final = 0.1
_HASH_BYTES: Final = 8
# Limits of the wait before rows are sent again, in s.
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
# Interval at which a back-off checks whether it is over.
BACKOFF_POLL_S = 0.2
# After so many answers with HTTP 500 the rows are divided: one of them may be the cause.
INTERNAL_ERRORS_MAX: Final = 5
BATCH_POINTS: Final = 5000
# More live rows than this many batches become a backlog, so that new rows need not wait for them.
LIVE_BATCHES_MAX = 2


class BatchSize:
    """The size of a request: halved after a failure, increased by a step after each success.

    Additive increase with multiplicative decrease settles at what a server can process, also where
    many clients share it (Chiu and Jain 1989).

    Args:
        max_points: Most points of a request.

    Attributes:
        points: Most points of a request now.
        size_bytes: Most bytes of a request now, before compression.
    """

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self.points = max_points
        self.size_bytes = MAX_BATCH_BYTES
        self._accepted = 0
        self._line_bytes = float(FIRST_LINE_BYTES)

    def limit(self) -> int:
        """Number of points to read, such that they are unlikely to exceed `size_bytes`."""
        return max(1, min(self.points, int(self.size_bytes / self._line_bytes)))

    def fits(self, batch: RowBatch) -> bool:
        """Return whether a batch is sent as it is; a single row always is."""
        return len(batch.lines) <= self.size_bytes or batch.points == 1

    def observe(self, points: int, lines_bytes: int) -> None:
        """Record the size of lines; the next ones are assumed to be as long."""
        self._line_bytes = max(1.0, lines_bytes / points)

    def accepted(self) -> None:
        """Record that a request was acknowledged."""
        step = max(1, int(self._max_points * STEP_SHARE))
        self.points = min(self._max_points, self.points + step)
        if self.size_bytes < MAX_BATCH_BYTES:
            self._accepted += 1
            if self._accepted >= ACCEPTED_BEFORE_LARGER:
                self._accepted = 0
                self.size_bytes = min(MAX_BATCH_BYTES, 2 * self.size_bytes)

    def failed(self) -> None:
        """Record that the server did not respond in time, or was overloaded."""
        least = min(MIN_BATCH_POINTS, self._max_points)
        self.points = max(least, self.points // 2)

    def too_large(self, lines_bytes: int) -> None:
        """Record that a request was refused for its size in bytes."""
        self._accepted = 0
        self.size_bytes = min(self.size_bytes, max(MIN_BATCH_BYTES, lines_bytes // 2))


class SinkRequest:
    """One request.

    Args:
        sink: Its destination.
        batch: The rows.
        is_full: Whether more rows may follow.
    """

    def __init__(self, sink: Sink, batch: RowBatch, *, is_full: bool) -> None:
        self.batch = batch
        self.is_full = is_full
        self._sink = sink
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Encode and send in another thread, which does not delay the end of the process."""
        if self._thread is None:
            self._thread = Thread(target=self._send, name="sink request", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Return once the rows are acknowledged; raises the errors of the sink.

        A request that was not started is sent by this thread.
        """
        if self._thread is None:
            self._send()
        self.wait()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Return once a started request has ended, with any result."""
        if self._thread is not None:
            self._thread.join()

    def _send(self) -> None:
        try:
            self._sink.post(self._sink.encode(self.batch.lines))
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self._error = error


class RequestWindow:
    """The requests of one stream of rows that are in flight, oldest first.

    Threads exist only while several requests are in flight. Not thread-safe.

    Args:
        stream: The rows.
        sink: Where they are sent.
        size: Size of a request.
    """

    def __init__(self, stream: RowStream, sink: Sink, size: BatchSize) -> None:
        self._stream = stream
        self._sink = sink
        self._size = size
        self._requests: deque[SinkRequest] = deque()

    def take(self, in_flight: int) -> SinkRequest | None:
        """Remove and return the oldest request; None if no rows are left.

        Args:
            in_flight: Number of requests that are in flight at the same time.
        """
        if not self._requests and not self._read():
            return None
        if in_flight > 1:
            self._fill(in_flight)
        return self._requests.popleft()

    def _fill(self, in_flight: int) -> None:
        """Start requests, and read one more, which is started as soon as one of them is done."""
        while len(self._requests) <= in_flight:
            newest = self._requests[-1]
            if not newest.is_full or not self._size.fits(newest.batch):
                break
            self._start(in_flight)
            if not self._read():
                break
        if len(self._requests) > 1:
            self._start(in_flight)

    def _start(self, in_flight: int) -> None:
        for request in islice(self._requests, in_flight):
            # A batch that does not fit is divided by the caller, once the requests before it are done.
            if self._size.fits(request.batch):
                request.start()

    def discard(self) -> None:
        """Wait for the requests in flight and discard their results; their rows are sent again."""
        while self._requests:
            self._requests.popleft().wait()

    def _read(self) -> bool:
        limit = self._size.limit()
        batch = self._stream.batch(limit, [request.batch for request in self._requests])
        if batch is None:
            return False
        self._size.observe(batch.points, len(batch.lines))
        self._requests.append(SinkRequest(self._sink, batch, is_full=batch.points >= limit))
        return True


class _SuspectedError(Rejected):
    """Rows that the server answers with an internal error, again and again.

    Args:
        error: The last of these errors.
    """

    def __init__(self, error: RetryLater) -> None:
        super().__init__(error.reason)
        self.error = error


class SendResult(NamedTuple):
    """The outcome of one batch.

    Attributes:
        points: Number of rows that are done.
        has_more: Whether more rows may follow.
    """

    points: int
    has_more: bool


class BatchSender:
    """Sends batches and records each in the outbox, in order, once it is acknowledged.

    Not thread-safe: the sink's delivery thread calls it.

    Args:
        name: The sink's name.
        outbox: The rows.
        sink: Where they are sent.
        stop: Ends the search for rejected rows.
        clock: For the time of the last success.
        max_points: Most points of a request.

    Attributes:
        batch_size: Size of a request, adapted to what the server accepts.
        sent: Rows that were acknowledged.
        rejected: Rows that were permanently rejected.
        last_success_ns: UTC ns of the last acknowledgement; None before the first.
    """

    def __init__(
        self,
        name: str,
        outbox: SinkOutbox,
        sink: Sink,
        stop: Flag,
        clock: Clock,
        max_points: int,
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._sink = sink
        self._stop = stop
        self._clock = clock
        self.batch_size = BatchSize(max_points)
        self._live = RequestWindow(outbox.live, sink, self.batch_size)
        self._backlog = RequestWindow(outbox.backlog, sink, self.batch_size)
        self.sent = 0
        self.rejected = 0
        self.last_success_ns: int | None = None
        # Internal errors of the server since a stream's last batch that was accepted at once.
        self._internal_errors: Counter[RowStream] = Counter()
        self._accepted_line = b""

    def send_live(self) -> SendResult:
        """Send the next live rows; raises the errors of the sink, except for rejected rows."""
        return self._send(self._outbox.live, self._live.take(1))

    def send_backlog(self, *, overlap: bool) -> SendResult:
        """Send the next rows of the backlog, likewise.

        Args:
            overlap: Whether the rows after them are sent at the same time; the next call records
                these.
        """
        request = self._backlog.take(IN_FLIGHT_MAX if overlap else 1)
        return self._send(self._outbox.backlog, request)

    def discard(self) -> None:
        """Wait for requests in flight after a failure; their rows are sent again."""
        self._backlog.discard()

    def close(self) -> None:
        """Wait for requests in flight and close the sink."""
        self._backlog.discard()
        self._sink.close()

    def _send(self, stream: RowStream, request: SinkRequest | None) -> SendResult:
        if request is None:
            return SendResult(0, has_more=False)
        batch = request.batch
        if not self.batch_size.fits(batch):
            pieces = self._within_bytes(stream.rows(batch))
            self._split(stream, deque(pieces))
            return SendResult(batch.points, request.is_full)
        refusal = self._refusal_of(stream, request.finish, batch.lines)
        if refusal is None:
            self._acknowledged(stream, batch.seq, batch.points)
            self._accepted_line = batch.lines.rpartition(b"\n")[2]
            del self._internal_errors[stream]
        else:
            self._split(stream, deque([stream.rows(batch)]), refusal)
        return SendResult(batch.points, request.is_full)

    def _split(
        self,
        stream: RowStream,
        pieces: deque[Sequence[OutboxRow]],
        refusal: Rejected | None = None,
    ) -> None:
        """Send pieces of a batch; bisect a rejected piece down to the row that causes it.

        The outbox records every piece that is done, so that little is repeated after a failure; a
        repetition is harmless, because it replaces the same points.

        Args:
            stream: The stream of the rows.
            pieces: The rows of a batch, in the order in which they are sent.
            refusal: The sink's answer to the first piece, if it was sent already.
        """
        # Rows are done in order, and the server's limits may have changed.
        self._backlog.discard()
        refused, reason = 0, ""
        try:
            while pieces and not self._stop.is_set():
                piece = pieces.popleft()
                refusal = refusal or self._refusal_of_rows(stream, piece)
                if refusal is None:
                    self._acknowledged(stream, piece[-1].seq, len(piece))
                elif len(piece) > max(1, refusal.dropped):
                    pieces.extendleft(reversed(_halves(piece)))
                else:
                    refused += self._quarantine(stream, piece, refusal)
                    reason = refusal.reason
                refusal = None
        finally:
            if refused:
                logger.warning(
                    "sink %s: the server permanently rejected %d points; last reason: %s",
                    self._name,
                    refused,
                    reason,
                )

    def _refusal_of_rows(self, stream: RowStream, rows: Sequence[OutboxRow]) -> Rejected | None:
        """Send rows; return the error if the server rejects some of them."""
        lines = "\n".join(row.line for row in rows).encode()
        return self._refusal_of(stream, lambda: self._post(lines), lines)

    def _post(self, lines: bytes) -> None:
        self._sink.post(self._sink.encode(lines))

    def _refusal_of(
        self, stream: RowStream, send: Callable[[], None], lines: bytes
    ) -> Rejected | None:
        """Send lines; return the error if the server rejects some of them, or always fails with them."""
        try:
            send()
        except Rejected as refusal:
            if refusal.too_large:
                self.batch_size.too_large(len(lines))
            return refusal
        except RetryLater as error:
            self._internal_errors[stream] += error.is_internal
            if error.is_internal and self._internal_errors[stream] >= INTERNAL_ERRORS_MAX:
                return _SuspectedError(error)
            raise
        return None

    def _acknowledged(self, stream: RowStream, seq: int, points: int) -> None:
        stream.done(seq, points, ())
        self.batch_size.accepted()
        self.sent += points
        self.last_success_ns = self._clock.time_ns()

    def _quarantine(self, stream: RowStream, rows: Sequence[OutboxRow], refusal: Rejected) -> int:
        """Quarantine rejected rows, unless the server rejects everything; return their number."""
        if isinstance(refusal, _SuspectedError):
            if not self._accepted_line:
                raise refusal.error
            # A server that fails for another reason fails also for what it accepted before.
            with suppress(Rejected):
                self._post(self._accepted_line)
            if self._refusal_of_rows(stream, rows) is None:
                self._acknowledged(stream, rows[-1].seq, len(rows))
                return 0
        if refusal.doubtful:
            try:
                self._sink.check()
            except Rejected as error:
                # A proxy, or a server that expects another scheme, rejects everything: keep the outbox.
                raise Misconfigured(
                    f"{error.reason}; even an empty write is rejected: check url and its scheme"
                ) from error
        stream.done(rows[-1].seq, 0, [(row.line, refusal.reason) for row in rows])
        self.rejected += len(rows)
        return len(rows)

    def _within_bytes(self, rows: Sequence[OutboxRow]) -> list[Sequence[OutboxRow]]:
        """Divide rows into pieces of at most the size of a request."""
        pieces: list[Sequence[OutboxRow]] = []
        first, size_bytes = 0, 0
        for index, row in enumerate(rows):
            line_bytes = len(row.line.encode()) + 1
            size_bytes += line_bytes
            if size_bytes > self.batch_size.size_bytes and index > first:
                pieces.append(rows[first:index])
                first, size_bytes = index, line_bytes
        return [*pieces, rows[first:]] if rows else []


def _halves(rows: Sequence[OutboxRow]) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]


class FlushSchedule:
    """The times at which a host sends to one sink.

    Args:
        host: Name of the host.
        sink: Name of the sink: several sinks of a host may be one server.
        every_s: Time between two flushes in s.
        rng: Random source of the start of a backlog.
        clock: The host's clocks.

    Attributes:
        phase_s: Seconds after each whole interval since 1970 UTC at which the host sends.
    """

    def __init__(self, host: str, sink: str, every_s: float, rng: Random, clock: Clock) -> None:
        digest = blake2b(f"{host}\0{sink}".encode(), digest_size=_HASH_BYTES).digest()
        self._every_s = every_s
        self._rng = rng
        self._clock = clock
        self.phase_s = every_s * int.from_bytes(digest) / 256**_HASH_BYTES

    def live_wait_s(self) -> float:
        """Return the seconds until the host's next flush; at most 1.1 intervals.

        A step of the wall clock shifts one flush, by no more than that.
        """
        every_ns = max(1, int(self._every_s * NS_PER_S))
        past_ns = (self._clock.time_ns() - int(self.phase_s * NS_PER_S)) % every_ns
        wait_s = (every_ns - past_ns) / NS_PER_S
        return wait_s if wait_s > _SERVED_SHARE * self._every_s else wait_s + self._every_s

    def backlog_wait_s(self) -> float:
        """Return the seconds until a backlog may begin, random each time."""
        return self._rng.uniform(0.0, BACKLOG_FLUSHES * self._every_s)


class OutboxWorker:
    """Drains the outbox of one sink.

    Args:
        config: The sink's section of the configuration.
        outbox: The rows.
        sink: Where they are sent.
        stop: Ends `run`.
        clock: The host's clocks.
        rng: Spreads retries, so that a fleet does not overload a database that recovers.
        schedule: When this host sends.
        batch_points: Most points of a request.
    """

    def __init__(  # noqa: PLR0913 - the parts that it combines
        self,
        config: SinkConfig,
        outbox: SinkOutbox,
        sink: Sink,
        stop: Flag,
        clock: Clock,
        *,
        rng: Random,
        schedule: FlushSchedule,
        batch_points: int = BATCH_POINTS,
    ) -> None:
        self._config = config
        self._live_max = LIVE_BATCHES_MAX * batch_points
        self._name = config.name
        self._outbox = outbox
        self._stop = stop
        self._clock = clock
        self._sender = BatchSender(config.name, outbox, sink, stop, clock, batch_points)
        self._backoff = RetryBackoff(FIRST_BACKOFF_S, MAX_BACKOFF_S, rng)
        per_s = config.drain_points_per_s
        self._drain_rate = TokenBucket(per_s, per_s, self._now_s())
        self._schedule = schedule
        self._live_due_s = self._now_s() + self._schedule.live_wait_s()
        self._backlog_due_s = self._now_s() + self._schedule.backlog_wait_s()
        self._retry_requested = False
        self._flush_now = Flag()
        self._wake = Flag()
        self._end_backoff = Flag()
        self._lock = Lock()
        self._state = "idle"
        self._last_error: str | None = None
        self._failing_since_s = 0.0
        self._retry_at_ns: int | None = None

    def run(self) -> None:
        """Deliver until stopped; a failure is reported in the status and retried."""
        while not self._stop.is_set():
            pause_s = self.step()
            if self._backoff.failures:
                self._back_off(pause_s)
            elif pause_s:
                self._wake.wait(pause_s)
                self._wake.clear()
        self._sender.close()

    def wake(self) -> None:
        """Send live rows now; a back-off continues."""
        self._flush_now.set()
        self._wake.set()

    def retry_now(self) -> None:
        """End a back-off and send the backlog without its random delay."""
        self._retry_requested = True
        self._end_backoff.set()
        self._wake.set()

    def step(self) -> float:
        """Send live rows that are due and one batch of the backlog.

        Returns:
            Seconds to wait before the next step.
        """
        try:
            # After an outage even a small remainder waits for the backlog's own random moment,
            # because all hosts of a fleet have one.
            live_max = self._sender.batch_size.points if self._backoff.failures else self._live_max
            self._outbox.move_to_backlog(live_max)
            sent, pause_s = self._deliver()
        except RetryLater as error:
            self._sender.batch_size.failed()
            return self._failed("backing off", error.reason, error.after_s)
        except Misconfigured as error:
            return self._failed("misconfigured", error.reason, None)
        except Exception as error:
            logger.exception("sink %s", self._name)
            return self._failed("failing", f"{type(error).__name__}: {error}", None)
        with self._lock:
            if self._backoff.failures:
                lasted_s = self._now_s() - self._failing_since_s
                logger.info(
                    "sink %s: recovered, %d points acknowledged after %s",
                    self._name,
                    sent,
                    format_duration(max(1, round(lasted_s))),
                )
            self._backoff.succeeded()
            self._last_error, self._retry_at_ns = None, None
            self._retry_requested = False
            self._state = "delivering" if sent else "idle"
        return pause_s

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `retry_in_s` is None without a failure."""
        with self._lock:
            retry_in_s = None
            if self._retry_at_ns is not None:
                left_ns = self._retry_at_ns - self._clock.monotonic_ns()
                retry_in_s = max(0.0, left_ns / NS_PER_S)
            return {
                "state": self._state,
                "last_error": self._last_error,
                "last_success_ns": self._sender.last_success_ns,
                "failures": self._backoff.failures,
                "retry_in_s": retry_in_s,
                "sent_points": self._sender.sent,
                "rejected_points": self._sender.rejected,
            }

    def _deliver(self) -> tuple[int, float]:
        """Send due rows; return their number, and the seconds until more are due."""
        live_points = 0
        if self._flush_now.is_set() or self._backoff.failures or self._now_s() >= self._live_due_s:
            self._flush_now.clear()
            live_points, has_more = self._sender.send_live()
            if has_more:
                self._flush_now.set()
                return live_points, 0.0
            self._live_due_s = self._now_s() + self._schedule.live_wait_s()
        if self._backoff.failures or self._retry_requested:
            spread_s = 0.0 if self._retry_requested else self._schedule.backlog_wait_s()
            self._backlog_due_s = self._now_s() + spread_s
        wait_s = max(
            self._drain_rate.wait_s(self._now_s()), self._backlog_due_s - self._now_s(), 0.0
        )
        backlog_points = 0
        if not wait_s:
            # Rows that the rate does not allow yet, or a server that fails, are not sent ahead.
            ahead = IN_FLIGHT_MAX * self._sender.batch_size.points
            overlap = not (self._backoff.failures or self._drain_rate.wait_s(self._now_s(), ahead))
            backlog_points, _ = self._sender.send_backlog(overlap=overlap)
            self._drain_rate.take(backlog_points)
            wait_s = (
                self._drain_rate.wait_s(self._now_s())
                if backlog_points
                else self._config.flush_every_s
            )
        until_live_s = max(0.0, self._live_due_s - self._now_s())
        return live_points + backlog_points, min(wait_s, until_live_s)

    def _back_off(self, pause_s: float) -> None:
        ends_ns = self._clock.monotonic_ns() + int(pause_s * NS_PER_S)
        while not self._end_backoff.is_set():
            left_s = (ends_ns - self._clock.monotonic_ns()) / NS_PER_S
            if left_s <= 0 or self._stop.wait(min(left_s, BACKOFF_POLL_S)):
                break
        self._end_backoff.clear()

    def _failed(self, state: str, reason: str, after_s: float | None) -> float:
        """Record a failure; return the seconds to wait before the next attempt."""
        self._sender.discard()
        with self._lock:
            if self._last_error != reason:
                level = logging.WARNING if state == "backing off" else logging.ERROR
                logger.log(level, "sink %s: %s: %s", self._name, state, reason)
            if not self._backoff.failures:
                self._failing_since_s = self._now_s()
            self._state, self._last_error = state, reason
            self._retry_requested = False
            pause_s = self._backoff.failed(after_s)
            self._retry_at_ns = self._clock.monotonic_ns() + int(pause_s * NS_PER_S)
        return pause_s

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S
