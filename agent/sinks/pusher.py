"""Drains the outbox into one sink: in order, acknowledged, never stopped by a bad point."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from random import Random
from threading import Event, Lock
from typing import Any

from agent.clock import Clock, SystemClock
from agent.model import NS_PER_S
from agent.sinks.ahead import Ahead, Request
from agent.sinks.batching import BatchSize, Pace
from agent.sinks.errors import Misconfigured, Rejected, RetryLater
from agent.sinks.registry import Sink
from agent.sinks.streams import Outbox, Row, Rows
from agent.sinks.turn import AtOnce, Turn

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 1.0
LOOK_EVERY_S = 0.2
MAX_BACKOFF_S = 60.0
# More live rows than so many batches are a backlog, which waits for none that come now.
APART_BATCHES = 2


class Pusher:
    """One sink's delivery.

    Args:
        name: Name of the sink.
        outbox: Where the points are.
        sink: Where they go.
        stop: Ends `run`.
        batch_points: Most points of a request.
        flush_every_s: How often live rows are sent.
        drain_points_per_s: How fast a backlog leaves beside them, at most.
        rng: Spreads retries, so that a fleet does not stampede a database that comes back.
        clock: For the status; the host's by default.
        turn: The host's moments among a fleet's; None to send at once, and then at the interval.
    """

    def __init__(  # noqa: PLR0913 - what a test gives in place of the host's own
        self,
        name: str,
        outbox: Outbox,
        sink: Sink,
        stop: Event,
        *,
        batch_points: int,
        flush_every_s: float,
        drain_points_per_s: int,
        rng: Random,
        clock: Clock | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._sink = sink
        self._stop = stop
        self._batch_points = batch_points
        self._batch = BatchSize(batch_points)
        self._ahead = Ahead(sink.pack, sink.post, f"sink {name} ahead", sink.at_once)
        self._flush_every_s = flush_every_s
        self._rng = rng
        self._clock = clock or SystemClock()
        self._pace = Pace(drain_points_per_s, self._now_s())
        self._turn = turn or AtOnce(flush_every_s)
        self._live_due_s = self._now_s() + self._turn.first_wait_s(self._clock.time_ns())
        self._behind_due_s = self._now_s() + self._turn.backlog_wait_s()
        self._was_asked = False
        self._look = Event()
        self._wake = Event()
        self._failures = 0
        # Whether the server took what it was last given: only then it gets two requests at once.
        self._keeps_up = False
        self._lock = Lock()
        self._now = Event()
        self._state = "idle"
        self._last_error: str | None = None
        self._last_success_ns: int | None = None
        self._retry_at_ns: int | None = None
        self._sent = 0
        self._rejected = 0

    def run(self) -> None:
        """Pushes until stopped; whatever goes wrong is kept in the status and tried again."""
        while not self._stop.is_set():
            pause_s = self.step()
            if self._failures:
                self._back_off(pause_s)
            elif pause_s:
                self._wake.wait(pause_s)
                self._wake.clear()
        self._settle()
        self._ahead.close()
        self._sink.close()

    def _settle(self) -> None:
        """Records what arrived before its turn, where that has come: it is not to be sent again."""
        try:
            for stream, request in self._ahead.arrived():
                if stream.is_next(request.pack.seq):
                    self._acknowledged(stream, request.pack.seq, request.pack.points)
        except Exception as error:  # noqa: BLE001 - sent again, it takes its own place
            logger.debug("sink %s: %s", self._name, error)

    def wake(self) -> None:
        """Looks into the outbox now; a back-off goes on."""
        self._look.set()
        self._wake.set()

    def retry_now(self) -> None:
        """Ends a back-off: whoever mended the database need not wait for it."""
        self._was_asked = True
        self._now.set()
        self._wake.set()

    def _back_off(self, pause_s: float) -> None:
        ends_ns = self._clock.monotonic_ns() + int(pause_s * NS_PER_S)
        while not self._now.is_set():
            left_s = (ends_ns - self._clock.monotonic_ns()) / NS_PER_S
            if left_s <= 0 or self._stop.wait(min(left_s, LOOK_EVERY_S)):
                break
        self._now.clear()

    def step(self) -> float:
        """Sends live rows that are due, and a batch of a backlog; seconds to wait before the next."""
        try:
            # What an outage piles up has to wait for its own moment: all hosts of a fleet have some.
            most = self._batch.points if self._failures else APART_BATCHES * self._batch_points
            self._outbox.set_apart(most)
            sent, pause_s = self._push()
        except RetryLater as error:
            self._batch.failed()
            return self._failed("backing off", error.reason, error.after_s)
        except Misconfigured as error:
            return self._failed("misconfigured", error.reason, None)
        except Exception as error:
            logger.exception("sink %s", self._name)
            return self._failed("failing", f"{type(error).__name__}: {error}", None)
        with self._lock:
            if self._failures:
                logger.info("sink %s: delivers again", self._name)
            self._failures, self._last_error, self._retry_at_ns = 0, None, None
            self._was_asked = False
            self._state = "delivering" if sent else "idle"
        return pause_s

    def _push(self) -> tuple[int, float]:
        """How many rows left, and for how long nothing else is to be done, in seconds."""
        live = 0
        if self._look.is_set() or self._failures or self._now_s() >= self._live_due_s:
            self._look.clear()
            live, has_more = self._deliver(self._outbox.live)
            if has_more:
                self._look.set()
                return live, 0.0
            self._live_due_s = self._now_s() + self._turn.live_wait_s(self._clock.time_ns())
        if self._failures or self._was_asked:
            spread_s = 0.0 if self._was_asked else self._turn.backlog_wait_s()
            self._behind_due_s = self._now_s() + spread_s
        wait_s = max(self._pace.wait_s(self._now_s()), self._behind_due_s - self._now_s(), 0.0)
        behind = 0
        if not wait_s:
            behind, _ = self._deliver(self._outbox.backlog)
            self._pace.take(behind)
            wait_s = self._pace.wait_s(self._now_s()) if behind else self._flush_every_s
        until_live_s = max(0.0, self._live_due_s - self._now_s())
        return live + behind, min(wait_s, until_live_s)

    def status(self) -> dict[str, Any]:
        """What `infercost status` shows of the sink; `retry_in_s` is None while all is well."""
        with self._lock:
            retry_in_s = None
            if self._retry_at_ns is not None:
                left_ns = self._retry_at_ns - self._clock.monotonic_ns()
                retry_in_s = max(0.0, left_ns / NS_PER_S)
            return {
                "state": self._state,
                "last_error": self._last_error,
                "last_success_ns": self._last_success_ns,
                "failures": self._failures,
                "retry_in_s": retry_in_s,
                "sent": self._sent,
                "rejected": self._rejected,
            }

    def _deliver(self, stream: Rows) -> tuple[int, bool]:
        """Sends the next rows; how many they were, and whether there may be more.

        While they are on their way the ones behind them are made ready, and sent too where the sink
        takes two at once and has kept up. What is done is recorded in its order all the same.
        """
        request = self._ahead.take(stream, self._batch.limit())
        if request is None:
            return 0, False
        pack = request.pack
        posts = self._sink.at_once > 1 and self._keeps_up and self._batch.is_whole
        if request.has_arrived:
            if request.is_full:
                self._ahead.begin(stream, pack.seq, self._batch.limit(), posts=posts)
            self._acknowledged(stream, pack.seq, pack.points)
            return pack.points, request.is_full
        size_bytes = len(pack.lines)
        self._batch.saw(pack.points, size_bytes)
        if size_bytes > self._batch.size_bytes and pack.points > 1:
            pieces = self._within_bytes(stream.rows(pack.points))
            return self._split(stream, deque(pieces)), request.is_full
        if request.is_full and request.error is None:
            self._ahead.begin(stream, pack.seq, self._batch.limit(), posts=posts)
        try:
            self._post(request)
        except Rejected as refusal:
            if refusal.too_large:
                self._batch.too_large(size_bytes)
            rows = stream.rows(pack.points)
            pieces = [rows] if len(rows) == 1 else list(_halves(rows))
            said = refusal if len(rows) == 1 else None
            return self._split(stream, deque(pieces), said), request.is_full
        except BaseException:
            self._ahead.drop(stream)
            raise
        self._acknowledged(stream, pack.seq, pack.points)
        return pack.points, request.is_full

    def _post(self, request: Request) -> None:
        """Sends a request, or raises what came of it where it was sent before its turn."""
        if request.error is not None:
            raise request.error
        self._ahead.post(request.body)

    def _split(
        self, stream: Rows, pieces: deque[Sequence[Row]], refusal: Rejected | None = None
    ) -> int:
        """Sends pieces, splitting what is refused down to the point that is to blame.

        The outbox moves on behind every piece that is done, so that a failure in the middle sends
        little twice; twice is harmless, because a point's identity is its own.

        Args:
            stream: Whose they are.
            pieces: Rows in order; what of them is refused is split.
            refusal: What was said of the first piece, if it was sent already.
        """
        self._ahead.drop(stream)
        total, refused, reason = sum(map(len, pieces)), 0, ""
        try:
            while pieces and not self._stop.is_set():
                piece = pieces.popleft()
                refusal = refusal or self._refusal_of(piece)
                if refusal is None:
                    self._acknowledged(stream, piece[-1].seq, len(piece))
                elif len(piece) > 1:
                    pieces.extendleft(reversed(_halves(piece)))
                else:
                    self._put_aside(stream, piece[0], refusal)
                    refused, reason = refused + 1, refusal.reason
                refusal = None
        finally:
            if refused:
                logger.warning(
                    "sink %s: refuses %d points, put aside; last: %s", self._name, refused, reason
                )
        return total

    def _refusal_of(self, piece: Sequence[Row]) -> Rejected | None:
        """Sends rows; what the server said if it refuses something in them."""
        lines = "\n".join(row.line for row in piece).encode()
        try:
            self._sink.post(self._sink.pack(lines))
        except Rejected as refusal:
            if refusal.too_large:
                self._batch.too_large(len(lines))
            return refusal
        return None

    def _acknowledged(self, stream: Rows, seq: int, points: int) -> None:
        stream.done(seq, points, ())
        self._batch.taken()
        self._keeps_up = True
        with self._lock:
            self._sent += points
            self._last_success_ns = self._clock.time_ns()

    def _put_aside(self, stream: Rows, row: Row, refusal: Rejected) -> None:
        if refusal.doubtful:
            try:
                self._sink.check()
            except Rejected as error:
                # A wrong scheme or a proxy refuses everything: that must not empty the outbox.
                raise Misconfigured(
                    f"{error.reason}; even a write of nothing is refused: check url, http or https"
                ) from error
        stream.done(row.seq, 0, [(row.line, refusal.reason)])
        with self._lock:
            self._rejected += 1

    def _within_bytes(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        pieces: list[Sequence[Row]] = []
        first, size_bytes = 0, 0
        for index, row in enumerate(rows):
            line_bytes = len(row.line.encode()) + 1
            size_bytes += line_bytes
            if size_bytes > self._batch.size_bytes and index > first:
                pieces.append(rows[first:index])
                first, size_bytes = index, line_bytes
        return [*pieces, rows[first:]] if rows else []

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _failed(self, state: str, reason: str, after_s: float | None) -> float:
        """Full jitter (Brooker 2015), or the wait that the server asked for and a little more."""
        self._keeps_up = False
        with self._lock:
            if self._last_error != reason:
                level = logging.WARNING if state == "backing off" else logging.ERROR
                logger.log(level, "sink %s: %s: %s", self._name, state, reason)
            self._state, self._last_error = state, reason
            self._failures += 1
            self._was_asked = False
            ceiling_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 10))
            pause_s = self._rng.uniform(0.1, ceiling_s)
            if after_s is not None:
                pause_s = after_s + min(pause_s, 1.0)
            self._retry_at_ns = self._clock.monotonic_ns() + int(pause_s * NS_PER_S)
        return pause_s


def _halves(rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    middle = len(rows) // 2
    return rows[:middle], rows[middle:]
