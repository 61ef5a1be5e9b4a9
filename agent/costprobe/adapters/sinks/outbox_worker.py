"""One sink's delivery thread: when rows are sent, at what rate, and how failures are retried."""

from __future__ import annotations

import logging
from random import Random
from threading import Event as Flag
from threading import Lock
from typing import Any

from costprobe.adapters.net.backoff import RetryBackoff
from costprobe.adapters.net.errors import Misconfigured, RetryLater
from costprobe.adapters.net.token_bucket import TokenBucket
from costprobe.adapters.sinks.batch_sender import BatchSender
from costprobe.adapters.sinks.flush_schedule import FlushSchedule, ImmediateSchedule
from costprobe.adapters.sinks.outbox import Outbox
from costprobe.adapters.sinks.request_window import IN_FLIGHT_MAX
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.adapters.sinks.sink import Sink
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S
from costprobe.core.units import format_duration

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 1.0
# Interval at which a back-off checks whether it is over.
BACKOFF_POLL_S = 0.2
MAX_BACKOFF_S = 60.0
# More live rows than this many batches become a backlog, so that new rows need not wait for them.
LIVE_BATCHES_MAX = 2


class OutboxWorker:
    """Drains the outbox of one sink.

    Args:
        config: The sink's section of the configuration.
        outbox: The rows.
        sink: Where they are sent.
        stop: Ends `run`.
        clock: The host's clocks.
        rng: Spreads retries, so that a fleet does not overload a database that recovers.
        schedule: When this host sends; None to send at once, and then at the interval.
    """

    def __init__(
        self,
        config: SinkConfig,
        outbox: Outbox,
        sink: Sink,
        stop: Flag,
        clock: Clock,
        *,
        rng: Random,
        schedule: FlushSchedule | None = None,
    ) -> None:
        self._config = config
        self._name = config.name
        self._outbox = outbox
        self._stop = stop
        self._clock = clock
        self._sender = BatchSender(config, outbox, sink, stop, clock)
        self._backoff = RetryBackoff(FIRST_BACKOFF_S, MAX_BACKOFF_S, rng)
        per_s = config.drain_points_per_s
        self._drain_rate = TokenBucket(per_s, per_s, self._now_s())
        self._schedule = schedule or ImmediateSchedule(config.flush_every_s)
        self._live_due_s = self._now_s() + self._schedule.first_wait_s()
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
            live_max = (
                self._sender.batch_size.points
                if self._backoff.failures
                else LIVE_BATCHES_MAX * self._config.batch_points
            )
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
