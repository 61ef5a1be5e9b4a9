"""Delivery of notices to notifiers: retries, back-off, rate limit.

Each notifier's queue is delivered in order by a thread of its own, so that none delays another.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from random import Random
from threading import Event as Flag
from threading import Lock
from typing import Any

from costprobe.adapters.http.errors import (
    Misconfigured,
    Rejected,
    RetryBackoff,
    RetryLater,
    TokenBucket,
)
from costprobe.adapters.store.cursors import QueuedNotice
from costprobe.adapters.store.write import Store
from costprobe.core.clock import Clock
from costprobe.core.incident import Alert
from costprobe.core.records import NS_PER_S
from costprobe.delivery.contract import Notifier, NotifierConfig

logger = logging.getLogger(__name__)

# Wait while the queue is empty or cannot be read, in s.
IDLE_S = 5.0
UNSTORED_MAX = 100
# Limits of the wait before a notice is sent again, in s.
FIRST_RETRY_S = 1.0
LEAST_RETRY_S = 0.5
MAX_RETRY_S = 300.0
# Wait after an answer that only another configuration can change, in s.
MISCONFIGURED_S = 60.0


class DeliveryWorker:
    """Deliver one notifier's queue in order, retrying with back-off until acknowledged.

    Args:
        store: Stores the queue, which survives a crash.
        notifier: Where they are sent.
        config: The notifier's configuration: name, rate and retention.
        clock: The host's clocks.
        stop: Ends `run`.
        rng: Spreads retries.
        firing: Returns the delivered alerts that are still firing.
    """

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        config: NotifierConfig,
        *,
        clock: Clock,
        stop: Flag,
        rng: Random,
        firing: Callable[[], Sequence[Alert]] = tuple,
    ) -> None:
        self.name = config.name
        self._store = store
        self._notifier = notifier
        self._config = config
        self._clock = clock
        self._stop = stop
        self._firing = firing
        # Both clocks: a step of the wall clock must not age the queue.
        self._started_ns = clock.time_ns(), clock.monotonic_ns()
        self._woken = Flag()
        self._lock = Lock()
        self._backoff = RetryBackoff(FIRST_RETRY_S, MAX_RETRY_S, rng, LEAST_RETRY_S)
        # Why the last attempt failed; None after a success.
        self._failing: str | None = None
        self._failing_since_ns: int | None = None
        self._not_before_s = 0.0
        self._resent_s = self._now_s()
        per_minute = config.rate_per_minute
        self._rate = TokenBucket(per_minute / 60, per_minute, self._now_s())
        self._sent_ids: list[int] = []
        # The last notice of a rejected batch: up to it each notice is sent alone, to find the cause.
        self._one_by_one_until_id: int | None = None
        self._resend_rejection = ""
        self._unstored: deque[Alert] = deque()

    def run(self) -> None:
        """Deliver until stopped; never raises."""
        while not self._stop.is_set():
            try:
                wait_s = self.step()
            except Exception:
                logger.exception("notifier %s: its queue could not be read", self.name)
                wait_s = IDLE_S
            if wait_s > 0:
                self._woken.wait(wait_s)
                self._woken.clear()

    def wake(self) -> None:
        """End a wait: there is a new notice, or `stop` was set."""
        self._woken.set()

    def send_unstored(self, alerts: Sequence[Alert]) -> None:
        """Queue alerts that could not be stored; they are delivered before the queue.

        Beyond UNSTORED_MAX the oldest is discarded. A crash loses them, and they fire again after
        the restart.
        """
        with self._lock:
            self._unstored += alerts
            while len(self._unstored) > UNSTORED_MAX:
                self._unstored.popleft()
                logger.error("notifier %s: alert discarded: too many are not stored", self.name)
        self.wake()

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `failing` is None while deliveries succeed."""
        with self._lock:
            left_s = max(0.0, self._not_before_s - self._now_s())
            return {
                "failing": self._failing,
                "since_ns": self._failing_since_ns,
                "failures": self._backoff.failures,
                "retry_in_s": left_s if self._failing else None,
            }

    def step(self) -> float:
        """Deliver what is due; return the seconds until the next step.

        Raises:
            Exception: The queue could not be read or written.
        """
        now_s = self._now_s()
        if now_s < self._not_before_s:
            return self._not_before_s - now_s
        if self._unstored:
            return self._deliver_unstored(now_s)
        self._record_sent()
        notices = self._next_notices()
        if not notices:
            return self._resend(now_s)
        alerts = self._alerts_of(notices)
        wait_s = self._take_token(now_s) if alerts else 0.0
        return self._deliver(alerts, now_s) if alerts and not wait_s else wait_s

    def _take_token(self, now_s: float) -> float:
        """Take a token of the rate limit and return 0.0; without one, return the seconds until it."""
        wait_s = self._rate.wait_s(now_s, tokens=1.0)
        if not wait_s:
            self._rate.take()
        return wait_s

    def _deliver_unstored(self, now_s: float) -> float:
        """Deliver alerts that are not stored; see `step`."""
        wait_s = self._take_token(now_s)
        if wait_s:
            return wait_s
        with self._lock:
            alerts = list(islice(self._unstored, self._notifier.alerts_per_send))
        failure = self._try(alerts)
        if failure is not None and not isinstance(failure, Rejected):
            return self._not_before_s - now_s
        if isinstance(failure, Rejected):
            logger.error("notifier %s: alert discarded: %s", self.name, failure.reason)
        with self._lock:
            self._unstored = deque(alert for alert in self._unstored if alert not in alerts)
        return 0.0

    def _next_notices(self) -> Sequence[QueuedNotice]:
        """Return the notices of one message: a batch, or one notice of a rejected batch."""
        notices = self._store.notices(self.name, self._notifier.alerts_per_send)
        if self._one_by_one_until_id is not None and notices:
            if notices[0].id <= self._one_by_one_until_id:
                return notices[:1]
            self._one_by_one_until_id = None
        return notices

    def _deliver(self, alerts: Mapping[int, Alert], now_s: float) -> float:
        """Send one message and act on the outcome; see `step`."""
        failure = self._try(list(alerts.values()))
        if isinstance(failure, Rejected):
            if len(alerts) > 1:
                self._one_by_one_until_id = max(alerts)
            else:
                self._discard(next(iter(alerts)), failure.reason)
            return 0.0
        if failure is not None:
            return self._not_before_s - now_s
        self._sent_ids = list(alerts)
        self._record_sent()
        if not self._store.notices(self.name, 1):
            self._resent_s = now_s
        return 0.0

    def _record_sent(self) -> None:
        """Remove delivered notices from the queue; nothing is sent until that succeeds.

        Otherwise a store that is not writable would repeat a notification every few seconds.
        """
        if self._sent_ids:
            self._store.notices_sent(self._sent_ids)
            self._sent_ids = []

    def _alerts_of(self, notices: Sequence[QueuedNotice]) -> dict[int, Alert]:
        """Return alerts by id; a notice that is too old or unreadable is discarded."""
        alerts = {}
        started_ns, monotonic_ns = self._started_ns
        passed_ns = self._clock.monotonic_ns() - monotonic_ns
        now_ns = min(self._clock.time_ns(), started_ns + passed_ns)
        for notice in notices:
            age_s = (now_ns - notice.queued_ns) / NS_PER_S
            if age_s > self._config.keep_s:
                cause = self._failing or "rate limit"
                self._discard(notice.id, f"not delivered within {self._config.keep_s:g} s: {cause}")
                continue
            try:
                alerts[notice.id] = Alert.from_document(notice.alert)
            except (TypeError, KeyError):
                # It would block all later notices.
                self._discard(notice.id, "unreadable: queued by another version")
        return alerts

    def _discard(self, notice_id: int, reason: str) -> None:
        logger.error("notifier %s: alert discarded: %s", self.name, reason)
        self._store.notice_dropped(notice_id, reason)

    def _try(self, alerts: Sequence[Alert]) -> Exception | None:
        """Send alerts; after a failure schedule the next attempt and return the error."""
        try:
            self._notifier.send(alerts, self._clock.time_ns())
        except Rejected as error:
            self._succeeded()  # the receiver is reachable
            return error
        except RetryLater as error:
            self._failed(error.reason, after_s=error.after_s)
            return error
        except Misconfigured as error:
            self._failed(error.reason, wait_s=MISCONFIGURED_S)
            return error
        except Exception as error:  # noqa: BLE001 - the thread must live; the text may be secret
            self._failed(f"unexpected {type(error).__name__}")
            return error
        self._succeeded()
        return None

    def _succeeded(self) -> None:
        with self._lock:
            if self._failing is not None:
                logger.info("notifier %s: recovered", self.name)
            self._failing, self._failing_since_ns = None, None
            self._backoff.succeeded()

    def _failed(
        self, reason: str, *, after_s: float | None = None, wait_s: float | None = None
    ) -> None:
        with self._lock:
            if self._failing != reason:
                logger.warning("notifier %s: %s", self.name, reason)
            self._failing = reason
            self._failing_since_ns = self._failing_since_ns or self._clock.time_ns()
            backoff_s = self._backoff.failed(after_s)
            self._not_before_s = self._now_s() + (backoff_s if wait_s is None else wait_s)

    def _resend(self, now_s: float) -> float:
        """Send alerts that still fire again, if the receiver expires them; see `step`."""
        every_s = self._notifier.resend_every_s
        if every_s is None:
            return IDLE_S
        due_s = self._resent_s + every_s
        if now_s < due_s:
            return min(IDLE_S, due_s - now_s)
        alerts, size = self._firing(), self._notifier.alerts_per_send
        for start in range(0, len(alerts), size):
            failure = self._try(alerts[start : start + size])
            if isinstance(failure, Rejected):
                # The alerts of the other messages must not expire because of it.
                self._log_resend_rejection(failure.reason)
            elif failure is not None:
                return self._not_before_s - now_s
        self._resent_s = now_s
        return IDLE_S

    def _log_resend_rejection(self, reason: str) -> None:
        if reason != self._resend_rejection:
            logger.error("notifier %s: firing alerts were rejected: %s", self.name, reason)
        self._resend_rejection = reason

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S
