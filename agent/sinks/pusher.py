"""Drains the outbox into one sink: in order, acknowledged, never stopped by a bad point."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from random import Random
from threading import Event, Lock
from typing import Any, Protocol

from agent.clock import Clock, SystemClock
from agent.model import NS_PER_S
from agent.sinks.errors import Misconfigured, Rejected, RetryLater
from agent.sinks.registry import Sink

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 1.0
LOOK_EVERY_S = 0.2
MAX_BACKOFF_S = 60.0
MAX_BATCH_BYTES = 4 << 20
MIN_BATCH_BYTES = 16 << 10


class Row(Protocol):
    """A point in the outbox."""

    @property
    def seq(self) -> int:
        """Its place."""
        ...

    @property
    def line(self) -> str:
        """Its line protocol."""
        ...


class Outbox(Protocol):
    """What the store is to a sink."""

    def cursor(self, sink: str) -> int:
        """The last place that was acknowledged."""
        ...

    def rows_after(self, seq: int, limit: int) -> Sequence[Row]:
        """The next points behind a place, in order."""
        ...

    def advance(
        self, sink: str, acked_seq: int, sent: int, rejected: Sequence[tuple[str, str]]
    ) -> None:
        """Moves the cursor, counts what was sent, and puts aside what was refused."""
        ...


class Pusher:
    """One sink's delivery.

    Args:
        name: Name of the sink.
        outbox: Where the points are.
        sink: Where they go.
        stop: Ends `run`.
        batch_points: Most points of a request.
        flush_every_s: How often the outbox is looked into when it was empty.
        rng: Spreads retries, so that a fleet does not stampede a database that comes back.
        clock: For the status; the host's by default.
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
        rng: Random,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._sink = sink
        self._stop = stop
        self._batch_points = batch_points
        self._batch_bytes = MAX_BATCH_BYTES
        self._flush_every_s = flush_every_s
        self._rng = rng
        self._clock = clock or SystemClock()
        self._wake = Event()
        self._failures = 0
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
        self._sink.close()

    def wake(self) -> None:
        """Looks into the outbox now; a back-off goes on."""
        self._wake.set()

    def retry_now(self) -> None:
        """Ends a back-off: whoever mended the database need not wait for it."""
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
        """Sends one batch, if there is one; returns the seconds to wait before the next."""
        try:
            rows = self._outbox.rows_after(self._outbox.cursor(self._name), self._batch_points)
            sent = self._deliver(rows)
        except RetryLater as error:
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
            self._state = "delivering" if sent else "idle"
        return 0.0 if sent == self._batch_points else self._flush_every_s

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

    def _deliver(self, rows: Sequence[Row]) -> int:
        """Sends rows in order, splitting what is refused down to the point that is to blame.

        The cursor moves behind every piece that is done, so that a failure in the middle sends
        little twice; twice is harmless, because a point's identity is its own.
        """
        pieces, refused, reason = deque(self._within_bytes(rows)), 0, ""
        try:
            while pieces and not self._stop.is_set():
                piece = pieces.popleft()
                payload = "\n".join(row.line for row in piece).encode()
                try:
                    self._sink.send(payload)
                except Rejected as refusal:
                    if refusal.too_large:
                        half_bytes = max(MIN_BATCH_BYTES, len(payload) // 2)
                        self._batch_bytes = min(self._batch_bytes, half_bytes)
                    if len(piece) > 1:
                        middle = len(piece) // 2
                        pieces.extendleft((piece[middle:], piece[:middle]))
                    else:
                        self._put_aside(piece[0], refusal)
                        refused, reason = refused + 1, refusal.reason
                else:
                    self._acknowledged(piece)
        finally:
            if refused:
                logger.warning(
                    "sink %s: refuses %d points, put aside; last: %s", self._name, refused, reason
                )
        return len(rows)

    def _acknowledged(self, piece: Sequence[Row]) -> None:
        self._outbox.advance(self._name, piece[-1].seq, len(piece), ())
        with self._lock:
            self._sent += len(piece)
            self._last_success_ns = self._clock.time_ns()

    def _put_aside(self, row: Row, refusal: Rejected) -> None:
        if refusal.doubtful:
            try:
                self._sink.check()
            except Rejected as error:
                # A wrong scheme or a proxy refuses everything: that must not empty the outbox.
                raise Misconfigured(
                    f"{error.reason}; even a write of nothing is refused: check url, http or https"
                ) from error
        self._outbox.advance(self._name, row.seq, 0, [(row.line, refusal.reason)])
        with self._lock:
            self._rejected += 1

    def _within_bytes(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        pieces: list[Sequence[Row]] = []
        first, size_bytes = 0, 0
        for index, row in enumerate(rows):
            line_bytes = len(row.line.encode()) + 1
            size_bytes += line_bytes
            if size_bytes > self._batch_bytes and index > first:
                pieces.append(rows[first:index])
                first, size_bytes = index, line_bytes
        return [*pieces, rows[first:]] if rows else []

    def _failed(self, state: str, reason: str, after_s: float | None) -> float:
        """Full jitter (Brooker 2015), or the wait that the server asked for and a little more."""
        with self._lock:
            if self._last_error != reason:
                level = logging.WARNING if state == "backing off" else logging.ERROR
                logger.log(level, "sink %s: %s: %s", self._name, state, reason)
            self._state, self._last_error = state, reason
            self._failures += 1
            ceiling_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 10))
            pause_s = self._rng.uniform(0.1, ceiling_s)
            if after_s is not None:
                pause_s = after_s + min(pause_s, 1.0)
            self._retry_at_ns = self._clock.monotonic_ns() + int(pause_s * NS_PER_S)
        return pause_s
