"""The loop that delivers rows to a sink, or alerts to a notifier: retries, back-off, bisection.

Each sink and each notifier has a thread, so that none delays another. What it sends is recorded once
it is acknowledged, in order. What is rejected is halved down to the row or alert that causes it.

A sink sends live rows first, and its backlog alongside them with up to three requests in flight. The
size of a request adapts to what the server accepts.

Hosts that start together (a rollout, the end of a power outage) would otherwise send together,
and a database would have to be sized for their common peak. Each host sends at its own phase of
the flush interval, a hash of its name: the same after every restart, spread evenly over a fleet,
and without any coordination. A backlog begins at a random moment instead, because an outage makes
all hosts begin at once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from random import Random
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any, Final

from costprobe.adapters.http.errors import (
    DeliveryError,
    Misconfigured,
    Rejected,
    RetryBackoff,
    RetryLater,
    TokenBucket,
)
from costprobe.adapters.store.cursors import QueuedNotice, RejectedLine, SinkOutbox
from costprobe.adapters.store.write import Store
from costprobe.core.clock import Clock
from costprobe.core.incident import Alert
from costprobe.core.records import NS_PER_S, OutboxRow, RowBatch
from costprobe.core.units import duration_words
from costprobe.delivery.contract import Notifier, Sink, SinkConfig

logger = logging.getLogger(__name__)

# Limits of the wait before something is sent again, in s.
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
BATCH_POINTS: Final = 5000
MAX_BATCH_BYTES: Final = 4 << 20
# A server that does not respond receives no smaller requests than this.
MIN_BATCH_POINTS: Final = 100
# Each accepted request adds this share of the largest batch.
STEP_SHARE: Final = 0.02
# More live rows than this many batches become a backlog, so that new rows need not wait for them.
LIVE_BATCHES_MAX: Final = 2
# With fewer, processors of a server are idle while requests and responses are on their way.
IN_FLIGHT_MAX: Final = 3
# After so many answers with HTTP 500 the rows are divided: one of them may be the cause.
INTERNAL_ERRORS_MAX: Final = 5
# A backlog begins within this many flush intervals: two minutes at the defaults.
BACKLOG_FLUSHES: Final = 12
# A flush this shortly before its scheduled time counts as that flush; a share of the interval.
_SERVED_SHARE: Final = 0.1
_HASH_BYTES: Final = 8
# Wait while a notifier's queue is empty, in s.
IDLE_S: Final = 5.0
UNSTORED_MAX: Final = 100
# Most messages of a notifier on average; as many may be sent at once.
MESSAGES_PER_MINUTE: Final = 30
# A message is retried for this long, in s, before it is dropped and counted.
KEEP_S: Final = 86400


class Worker(ABC):
    """Deliver to one destination, retrying with back-off until acknowledged.

    Args:
        label: Kind and name of the destination, for messages.
        stop: Ends `run`.
        clock: The host's clocks.
        rng: Spreads retries, so that a fleet does not overload a server that recovers.

    Attributes:
        label: Kind and name of the destination.
    """

    def __init__(self, label: str, stop: Flag, clock: Clock, rng: Random) -> None:
        self.label = label
        self._stop = stop
        self._clock = clock
        self._backoff = RetryBackoff(FIRST_BACKOFF_S, MAX_BACKOFF_S, rng)
        self._woken = Flag()
        self._not_before_s = 0.0
        self._state = "idle"
        self._last_error: str | None = None
        # UTC in ns and monotonic seconds.
        self._failing_since = 0, 0.0

    def run(self) -> None:
        """Deliver until stopped; a failure is reported in the status and retried."""
        while not self._stop.is_set():
            wait_s = self._not_before_s - self._now_s()
            if wait_s <= 0:
                wait_s = self.step()
            if wait_s > 0:
                self._woken.wait(wait_s)
                self._woken.clear()

    def wake(self) -> None:
        """End a wait, but no back-off: something new is to be sent, or `stop` was set."""
        self._woken.set()

    def step(self) -> float:
        """Deliver what is due; return the seconds until the next step."""
        try:
            wait_s = self._deliver()
        except RetryLater as error:
            return self._failed("backing off", error.reason, error.after_s)
        except Misconfigured as error:
            return self._failed("misconfigured", error.reason)
        except Exception as error:
            logger.exception("%s", self.label)
            return self._failed("failing", f"{type(error).__name__}: {error}")
        if self._state == "failing":  # of the store, which is readable again
            self._succeeded()
        return wait_s

    @abstractmethod
    def _deliver(self) -> float:
        """Deliver what is due; return the seconds until more is.

        Raises:
            RetryLater, Misconfigured: The destination does not accept anything now.
        """

    @abstractmethod
    def _send(self, items: Sequence[Any]) -> None:
        """Send rows or alerts; raises the errors of the destination."""

    @abstractmethod
    def _done(self, items: Sequence[Any]) -> None:
        """Record that they were acknowledged."""

    @abstractmethod
    def _refuse(self, items: Sequence[Any], refusal: Rejected) -> None:
        """Record that they will never be accepted."""

    def _offer(self, items: Sequence[Any]) -> None:
        """Send rows or alerts, and record each part of them that is done."""
        try:
            self._send(items)
        except Rejected as refusal:
            self._split(items, refusal)
        else:
            self._done(items)

    def _split(self, items: Sequence[Any], refusal: Rejected) -> None:
        """Halve rejected rows or alerts down to the one that causes it."""
        if len(items) <= max(1, refusal.dropped):
            self._refuse(items, refusal)
            return
        middle = len(items) // 2
        for half in (items[:middle], items[middle:]):
            if not self._stop.is_set():
                self._offer(half)

    def _succeeded(self, news: str = "") -> None:
        """Record that the destination answered."""
        if self._last_error is not None:
            lasted_s = max(1, round(self._now_s() - self._failing_since[1]))
            logger.info("%s: recovered%s after %s", self.label, news, duration_words(lasted_s))
        self._backoff.succeeded()
        self._state, self._last_error = "delivering", None

    def _failed(self, state: str, reason: str, after_s: float | None = None) -> float:
        """Record a failure; return the seconds to wait before the next attempt."""
        if self._last_error != reason:
            level = logging.WARNING if state == "backing off" else logging.ERROR
            logger.log(level, "%s: %s: %s", self.label, state, reason)
        if not self._backoff.failures:
            self._failing_since = self._clock.time_ns(), self._now_s()
        self._state, self._last_error = state, reason
        pause_s = self._backoff.failed(after_s)
        self._not_before_s = self._now_s() + pause_s
        return pause_s

    def _retry_in_s(self) -> float | None:
        """Return the seconds until the next attempt; None without a failure."""
        if self._last_error is None:
            return None
        return max(0.0, self._not_before_s - self._now_s())

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S


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


class _Request:
    """A request in flight, sent by a thread that does not delay the end of the process."""

    def __init__(self, batch: RowBatch, send: Callable[[RowBatch], None]) -> None:
        self.batch = batch
        self._send = send
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="sink request", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send(self.batch)
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self._error = error

    def wait(self) -> None:
        """Return once it has ended, with any result."""
        self._thread.join()

    def finish(self) -> None:
        """Return once it is acknowledged; raises the errors of the sink."""
        self.wait()
        if self._error is not None:
            raise self._error


class _SuspectedError(Rejected):
    """Rows that the server answers with an internal error, again and again."""

    def __init__(self, error: RetryLater) -> None:
        super().__init__(error.reason)
        self.error = error


class SinkWorker(Worker):
    """Deliver the rows that one sink has not received.

    Args:
        config: The sink's section of the configuration.
        outbox: The rows.
        sink: Where they are sent.
        stop: Ends `run`.
        clock: The host's clocks.
        rng: Spreads retries.
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
        super().__init__(f"sink {config.name}", stop, clock, rng)
        self._outbox = outbox
        self._sink = sink
        self._schedule = schedule
        self._flush_every_s = config.flush_every_s
        self._max_points = batch_points
        # Most points of a request now. Additive increase with multiplicative decrease settles at what a
        # server can process, also where many clients share it (Chiu and Jain 1989).
        self._points = batch_points
        per_s = config.drain_points_per_s
        self._drain_rate = TokenBucket(per_s, per_s, self._now_s())
        self._live_due_s = self._now_s() + schedule.live_wait_s()
        self._backlog_due_s = self._now_s() + schedule.backlog_wait_s()
        self._is_retry_requested = False
        # Requests of the backlog in flight, oldest first.
        self._requests: deque[_Request] = deque()
        # What is being sent: live rows or the backlog, and the sequence number before its first row.
        self._is_live, self._after = True, 0
        # Internal errors of the server since the last batch, live or not, that was accepted at once.
        self._internal_errors: Counter[bool] = Counter()
        self._accepted_line = b""
        self._sent = 0
        self._rejected, self._last_rejection = 0, ""
        self._last_success_ns: int | None = None

    def run(self) -> None:
        """Deliver until stopped; then wait for requests in flight and close the sink."""
        super().run()
        self._discard_requests()
        self._sink.close()

    def retry_now(self) -> None:
        """End a back-off and send the backlog without its random delay."""
        self._is_retry_requested = True
        self._not_before_s = 0.0
        self.wake()

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `retry_in_s` is None without a failure."""
        return {
            "state": self._state,
            "last_error": self._last_error,
            "last_success_ns": self._last_success_ns,
            "failures": self._backoff.failures,
            "retry_in_s": self._retry_in_s(),
            "sent_points": self._sent,
            "rejected_points": self._rejected,
        }

    def _deliver(self) -> float:
        """Send live rows that are due and one batch of the backlog."""
        is_failing = bool(self._backoff.failures)
        # After an outage even a small remainder waits for the backlog's own random moment,
        # because all hosts of a fleet have one.
        live_max = self._points if is_failing else LIVE_BATCHES_MAX * self._max_points
        self._outbox.move_to_backlog(live_max)
        batch = None
        if is_failing or self._now_s() >= self._live_due_s:
            limit = self._points
            batch = self._outbox.live_batch(limit)
            if batch is not None:
                self._push(_Request(batch, self._post), is_live=True)
                if batch.points >= limit:
                    return 0.0
            self._live_due_s = self._now_s() + self._schedule.live_wait_s()
        if self._is_retry_requested:
            self._backlog_due_s, self._is_retry_requested = 0.0, False
        wait_s = self._backlog_due_s - self._now_s()
        request = self._next_request() if wait_s <= 0 else None
        if request is not None:
            self._push(request, is_live=False)
            wait_s = 0.0
        elif not self._backoff.failures:
            self._state = "delivering" if batch is not None else "idle"
        if wait_s <= 0 and not self._requests:
            until_rate_s = self._drain_rate.wait_s(self._now_s())
            wait_s = until_rate_s if request or until_rate_s else self._flush_every_s
        return max(0.0, min(wait_s, self._live_due_s - self._now_s()))

    def _next_request(self) -> _Request | None:
        """Return the oldest request of the backlog, once others are in flight beside it."""
        # A server that fails receives one at a time.
        most = 1 if self._backoff.failures else IN_FLIGHT_MAX
        while len(self._requests) < most and not self._drain_rate.wait_s(self._now_s()):
            after = self._requests[-1].batch.seq if self._requests else 0
            batch = self._outbox.backlog_batch(self._points, after)
            if batch is None:
                break
            self._drain_rate.take(batch.points)
            self._requests.append(_Request(batch, self._post))
        return self._requests.popleft() if self._requests else None

    def _discard_requests(self) -> None:
        """Wait for the requests in flight and discard their results; their rows are sent again."""
        while self._requests:
            self._requests.popleft().wait()

    def _push(self, request: _Request, *, is_live: bool) -> None:
        """Wait for a request, and record what is done of its batch."""
        batch = request.batch
        self._is_live, self._after = is_live, batch.after
        rejected_before = self._rejected
        try:
            self._finish(request)
        except Rejected as refusal:
            # Rows are done in order, and the server's limits may have changed.
            self._discard_requests()
            self._split(self._outbox.rows(batch), refusal)
        else:
            self._acknowledged(batch.seq, batch.points)
            self._accepted_line = batch.lines.rpartition(b"\n")[2]
            del self._internal_errors[is_live]
        finally:
            if self._rejected > rejected_before:
                logger.warning(
                    "%s: the server permanently rejected %d points; last reason: %s",
                    self.label,
                    self._rejected - rejected_before,
                    self._last_rejection,
                )
        if self._backoff.failures and not self._is_retry_requested:
            self._backlog_due_s = self._now_s() + self._schedule.backlog_wait_s()
        self._succeeded(f", {batch.points} points acknowledged")

    def _finish(self, request: _Request) -> None:
        """Wait for a request; rows with which the server fails again and again count as rejected."""
        try:
            request.finish()
        except Rejected as refusal:
            if refusal.too_large:
                self._points = max(1, min(self._points, request.batch.points // 2))
            raise
        except RetryLater as error:
            self._internal_errors[self._is_live] += error.is_internal
            if error.is_internal and self._internal_errors[self._is_live] >= INTERNAL_ERRORS_MAX:
                raise _SuspectedError(error) from None
            raise

    def _post(self, batch: RowBatch) -> None:
        if len(batch.lines) > MAX_BATCH_BYTES and batch.points > 1:
            raise Rejected("too large to send", too_large=True)
        self._sink.post(self._sink.encode(batch.lines))

    def _send(self, items: Sequence[OutboxRow]) -> None:
        lines = "\n".join(row.line for row in items).encode()
        batch = RowBatch(self._after, items[-1].seq, len(items), lines)
        self._finish(_Request(batch, self._post))

    def _done(self, items: Sequence[OutboxRow]) -> None:
        self._acknowledged(items[-1].seq, len(items))

    def _acknowledged(self, seq: int, points: int) -> None:
        self._outbox.done(self._after, seq, points, ())
        step = max(1, int(self._max_points * STEP_SHARE))
        self._points = min(self._max_points, self._points + step)
        self._sent += points
        self._last_success_ns = self._clock.time_ns()

    def _refuse(self, items: Sequence[OutboxRow], refusal: Rejected) -> None:
        """Quarantine rejected rows, unless the server rejects everything."""
        if isinstance(refusal, _SuspectedError):
            if not self._accepted_line:
                raise refusal.error
            # A server that fails for another reason fails also for what it accepted before.
            with suppress(Rejected):
                self._sink.post(self._sink.encode(self._accepted_line))
            with suppress(Rejected):
                self._send(items)
                self._done(items)
                return
        if refusal.doubtful:
            try:
                self._sink.check()
            except Rejected as error:
                # A proxy, or a server that expects another scheme, rejects everything: keep the outbox.
                raise Misconfigured(
                    f"{error.reason}; even an empty write is rejected: check url and its scheme"
                ) from error
        lines = [RejectedLine(row.line, refusal.reason) for row in items]
        self._outbox.done(self._after, items[-1].seq, 0, lines)
        self._rejected += len(items)
        self._last_rejection = refusal.reason

    def _failed(self, state: str, reason: str, after_s: float | None = None) -> float:
        self._discard_requests()
        self._is_retry_requested = False
        if state == "backing off":
            self._points = max(min(MIN_BATCH_POINTS, self._points), self._points // 2)
        return super()._failed(state, reason, after_s)


class NotifierWorker(Worker):
    """Deliver one notifier's queue in order.

    Args:
        store: Stores the queue, which survives a crash.
        name: Name of the notifier.
        notifier: Where alerts are sent.
        clock: The host's clocks.
        stop: Ends `run`.
        rng: Spreads retries.
        firing: Returns the delivered alerts that are still firing.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        notifier: Notifier,
        *,
        clock: Clock,
        stop: Flag,
        rng: Random,
        firing: Callable[[], Sequence[Alert]] = tuple,
    ) -> None:
        super().__init__(f"notifier {name}", stop, clock, rng)
        self._store = store
        self._name = name
        self._notifier = notifier
        self._firing = firing
        # Both clocks: a step of the wall clock must not age the queue.
        self._started_ns = clock.time_ns(), clock.monotonic_ns()
        self._resent_s = self._now_s()
        self._rate = TokenBucket(MESSAGES_PER_MINUTE / 60, MESSAGES_PER_MINUTE, self._now_s())
        self._sent_ids: list[int] = []
        self._resend_rejection = ""
        self._lock = Lock()
        self._unstored: list[Alert] = []

    def close(self) -> None:
        """End what the thread waits for."""
        self._notifier.close()

    def send_unstored(self, alerts: Sequence[Alert]) -> None:
        """Queue alerts that could not be stored; they are delivered before the queue.

        Beyond UNSTORED_MAX the oldest is discarded. A crash loses them, and they fire again after
        the restart.
        """
        with self._lock:
            kept = [*self._unstored, *alerts]
            self._unstored = kept[-UNSTORED_MAX:]
        if len(kept) > UNSTORED_MAX:
            lost = len(kept) - UNSTORED_MAX
            logger.error("%s: %d alerts discarded: too many are not stored", self.label, lost)
        if self._state == "failing":  # they need no store
            self._not_before_s = 0.0
        self.wake()

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `failing` is None while deliveries succeed."""
        # A fault of the store is reported by the store.
        failing = self._last_error if self._state != "failing" else None
        return {
            "failing": failing,
            "since_ns": self._failing_since[0] if failing else None,
            "failures": self._backoff.failures,
            "retry_in_s": self._retry_in_s() if failing else None,
        }

    def _deliver(self) -> float:
        """Send one message."""
        size = self._notifier.alerts_per_send
        with self._lock:
            unstored = self._unstored[:size]
        items: list[tuple[int | None, Alert]] = [(None, alert) for alert in unstored]
        if not items:
            self._record_sent()
            notices = self._store.notices(self._name, size)
            if not notices:
                return self._resend()
            items += self._current(notices)
        wait_s = self._rate.wait_s(self._now_s(), tokens=1.0) if items else 0.0
        if items and not wait_s:
            self._offer(items)
        return wait_s

    def _send(self, items: Sequence[tuple[int | None, Alert]]) -> None:
        self._rate.take()
        try:
            self._notifier.send([alert for _, alert in items], self._clock.time_ns())
        except Rejected:
            self._succeeded()  # the receiver is reachable
            raise
        except DeliveryError:
            raise
        except Exception as error:  # noqa: BLE001 - its text may contain a secret
            raise RetryLater(f"unexpected {type(error).__name__}") from None
        self._succeeded()

    def _done(self, items: Sequence[tuple[int | None, Alert]]) -> None:
        self._sent_ids = [number for number, _ in items if number is not None]
        self._record_sent()
        self._forget_unstored(items)

    def _refuse(self, items: Sequence[tuple[int | None, Alert]], refusal: Rejected) -> None:
        for number, _ in items:
            self._discard(number, refusal.reason)
        self._forget_unstored(items)

    def _forget_unstored(self, items: Sequence[tuple[int | None, Alert]]) -> None:
        alerts = [alert for number, alert in items if number is None]
        with self._lock:
            self._unstored = [alert for alert in self._unstored if alert not in alerts]

    def _record_sent(self) -> None:
        """Remove delivered notices from the queue; nothing is sent until that succeeds.

        Otherwise a store that is not writable would repeat a notification every few seconds.
        """
        if self._sent_ids:
            self._store.notices_sent(self._sent_ids)
            self._sent_ids = []

    def _current(self, notices: Sequence[QueuedNotice]) -> list[tuple[int, Alert]]:
        """Return ids and alerts; a notice that is too old or unreadable is discarded."""
        current = []
        started_ns, monotonic_ns = self._started_ns
        passed_ns = self._clock.monotonic_ns() - monotonic_ns
        now_ns = min(self._clock.time_ns(), started_ns + passed_ns)
        for notice in notices:
            if now_ns - notice.queued_ns > KEEP_S * NS_PER_S:
                cause = self._last_error or "rate limit"
                self._discard(notice.id, f"not delivered within {KEEP_S} s: {cause}")
                continue
            try:
                current.append((notice.id, Alert.from_document(notice.alert)))
            except (TypeError, KeyError):
                # It would block all later notices.
                self._discard(notice.id, "unreadable: queued by another version")
        return current

    def _discard(self, number: int | None, reason: str) -> None:
        logger.error("%s: alert discarded: %s", self.label, reason)
        if number is not None:
            self._store.notice_dropped(number, reason)

    def _resend(self) -> float:
        """Send alerts that still fire again, if the receiver expires them; see `_deliver`."""
        every_s = self._notifier.resend_every_s
        now_s = self._now_s()
        wait_s = IDLE_S if every_s is None else self._resent_s + every_s - now_s
        if wait_s > 0:
            return min(IDLE_S, wait_s)
        alerts, size = self._firing(), self._notifier.alerts_per_send
        for start in range(0, len(alerts), size):
            try:
                self._send([(None, alert) for alert in alerts[start : start + size]])
            except Rejected as refusal:
                # The alerts of the other messages must not expire because of it.
                if refusal.reason != self._resend_rejection:
                    logger.error(  # noqa: TRY400 - no traceback: the text has the cause
                        "%s: firing alerts were rejected: %s", self.label, refusal.reason
                    )
                self._resend_rejection = refusal.reason
        self._resent_s = now_s
        return IDLE_S
