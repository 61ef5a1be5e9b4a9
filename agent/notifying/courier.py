"""The courier: it drains one notifier's queue, in order, and tries again until a notice is told."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event as Flag
from threading import Lock
from typing import Any, Protocol

from agent.alert import Alert
from agent.clock import Clock
from agent.model import NS_PER_S
from agent.notifying.rate import RateLimit
from agent.notifying.sender import Misconfigured, Refused, RetryLater, Sender

logger = logging.getLogger(__name__)

IDLE_S = 5.0
UNSTORED_MAX = 100
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 300.0
MAX_ASKED_S = 3600.0
MISCONFIGURED_S = 60.0


class Waiting(Protocol):
    """An alert that waits."""

    @property
    def id(self) -> int:
        """Its identity in the queue; a later one has a higher id."""
        ...

    @property
    def alert(self) -> Mapping[str, Any]:
        """The alert, as JSON holds it."""
        ...

    @property
    def queued_ns(self) -> int:
        """UTC in ns at which it was queued."""
        ...


class NoticeQueue(Protocol):
    """The queue of one notifier, kept where a crash does not reach it."""

    def waiting(self, limit: int) -> Sequence[Waiting]:
        """Up to `limit` notices, the oldest first."""
        ...

    def sent(self, notices: Sequence[int]) -> None:
        """Removes notices that were told."""
        ...

    def dropped(self, notice: int, reason: str) -> None:
        """Removes a notice that will never be told, and counts it."""
        ...


@dataclass(frozen=True, slots=True)
class CourierSettings:
    """How a notifier is to be told.

    Attributes:
        name: The notifier's.
        rate_per_minute: The most messages in a minute.
        keep_s: How long a notice is tried.
        batch: The most alerts in one message.
        refresh_every_s: How often what still fires is told again; None for never.
    """

    name: str
    rate_per_minute: int = 30
    keep_s: float = 86_400.0
    batch: int = 1
    refresh_every_s: float | None = None


class Courier:
    """Tells one notifier.

    Args:
        queue: What it is to be told.
        sender: How it is told.
        settings: How often, how long.
        clock: The host's clocks.
        stop: Ends `run`.
        rng: Spreads retries.
        firing: What the notifier was told and still fires.
    """

    def __init__(
        self,
        queue: NoticeQueue,
        sender: Sender,
        settings: CourierSettings,
        *,
        clock: Clock,
        stop: Flag,
        rng: random.Random,
        firing: Callable[[], Sequence[Alert]] = tuple,
    ) -> None:
        self.name = settings.name
        self._queue = queue
        self._sender = sender
        self._settings = settings
        self._clock = clock
        self._stop = stop
        self._rng = rng
        self._firing = firing
        # By both clocks: a calendar that leaps ahead makes no notice old.
        self._began_ns = clock.time_ns(), clock.monotonic_ns()
        self._woken = Flag()
        self._lock = Lock()
        self._failures = 0
        self._failing: str | None = None
        self._failing_since_ns: int | None = None
        self._not_before_s = 0.0
        self._refreshed_s = self._now_s()
        self._rate = RateLimit(settings.rate_per_minute, self._now_s())
        self._told_ids: list[int] = []
        self._one_by_one_until_id: int | None = None
        self._refresh_refusal = ""
        self._unstored: deque[Alert] = deque()

    def run(self) -> None:
        """Tells until told to stop; never raises."""
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
        """Says that there is something to tell, or that it is time to stop."""
        self._woken.set()

    def tell_unstored(self, alerts: Sequence[Alert]) -> None:
        """Takes alerts that the store could not keep; they are told before what it keeps.

        Beyond UNSTORED_MAX the oldest goes. What a crash takes with it here fires again after it.
        """
        with self._lock:
            self._unstored += alerts
            while len(self._unstored) > UNSTORED_MAX:
                self._unstored.popleft()
                logger.error("notifier %s: an alert that was not stored is given up", self.name)
        self.wake()

    def status(self) -> dict[str, Any]:
        """What `infercost status` shows; `failing` is None while all is well."""
        with self._lock:
            left_s = max(0.0, self._not_before_s - self._now_s())
            return {
                "failing": self._failing,
                "since_ns": self._failing_since_ns,
                "failures": self._failures,
                "retry_in_s": left_s if self._failing else None,
            }

    def step(self) -> float:
        """Does what is due and says in how many seconds there may be more.

        Raises:
            Exception: The queue could not be read or written.
        """
        now_s = self._now_s()
        if now_s < self._not_before_s:
            return self._not_before_s - now_s
        if self._unstored:
            return self._tell_unstored(now_s)
        self._record_told()
        notices = self._next_notices()
        if not notices:
            return self._refresh(now_s)
        alerts = self._alerts_of(notices)
        wait_s = self._rate.take(now_s) if alerts else 0.0
        return self._tell(alerts, now_s) if alerts and not wait_s else wait_s

    def _tell_unstored(self, now_s: float) -> float:
        """Tells what was not stored, as `step` does; what is refused for good is given up."""
        wait_s = self._rate.take(now_s)
        if wait_s:
            return wait_s
        with self._lock:
            alerts = list(islice(self._unstored, self._settings.batch))
        outcome = self._try(alerts)
        if outcome is not None and not isinstance(outcome, Refused):
            return self._not_before_s - now_s
        if isinstance(outcome, Refused):
            logger.error("notifier %s: an alert is given up: %s", self.name, outcome.reason)
        with self._lock:
            self._unstored = deque(alert for alert in self._unstored if alert not in alerts)
        return 0.0

    def _next_notices(self) -> Sequence[Waiting]:
        """What goes into one message: a batch, or one of a batch that was refused."""
        notices = self._queue.waiting(self._settings.batch)
        if self._one_by_one_until_id is not None and notices:
            if notices[0].id <= self._one_by_one_until_id:
                return notices[:1]
            self._one_by_one_until_id = None
        return notices

    def _tell(self, alerts: Mapping[int, Alert], now_s: float) -> float:
        """Sends one message and does what the answer asks for; see `step`."""
        outcome = self._try(list(alerts.values()))
        if isinstance(outcome, Refused):
            if len(alerts) > 1:
                self._one_by_one_until_id = max(alerts)
            else:
                self._give_up(next(iter(alerts)), outcome.reason)
            return 0.0
        if outcome is not None:
            return self._not_before_s - now_s
        self._told_ids = list(alerts)
        self._record_told()
        if not self._queue.waiting(1):
            self._refreshed_s = now_s
        return 0.0

    def _record_told(self) -> None:
        """Takes what was told out of the queue; until that is done nothing is told again.

        Else a store that can be read and not written would page somebody every few seconds.
        """
        if self._told_ids:
            self._queue.sent(self._told_ids)
            self._told_ids = []

    def _alerts_of(self, notices: Sequence[Waiting]) -> dict[int, Alert]:
        """What is to be told, by its id; what is too old or cannot be read is given up."""
        alerts = {}
        began_ns, monotonic_ns = self._began_ns
        passed_ns = self._clock.monotonic_ns() - monotonic_ns
        now_ns = min(self._clock.time_ns(), began_ns + passed_ns)
        for notice in notices:
            age_s = (now_ns - notice.queued_ns) / NS_PER_S
            if age_s > self._settings.keep_s:
                reason = (
                    f"not told within {self._settings.keep_s:g} s: {self._failing or 'no room'}"
                )
                self._give_up(notice.id, reason)
                continue
            try:
                alerts[notice.id] = Alert.from_document(notice.alert)
            except (TypeError, KeyError):
                # Queued by another version: it would block all that comes after it.
                self._give_up(notice.id, "it cannot be read: another version queued it")
        return alerts

    def _give_up(self, notice_id: int, reason: str) -> None:
        logger.error("notifier %s: a notice is given up: %s", self.name, reason)
        self._queue.dropped(notice_id, reason)

    def _try(self, alerts: Sequence[Alert]) -> Exception | None:
        """Sends, and plans the next try where that fails."""
        try:
            self._sender.send(alerts, self._clock.time_ns())
        except Refused as error:
            self._answered()
            return error
        except RetryLater as error:
            asked_s = min(error.after_s or 0.0, MAX_ASKED_S)
            self._fail(error.reason, max(self._backoff_s(), asked_s))
            return error
        except Misconfigured as error:
            self._fail(error.reason, MISCONFIGURED_S)
            return error
        except Exception as error:  # noqa: BLE001 - the thread must live; the text may hold a secret
            self._fail(f"unexpected {type(error).__name__}", self._backoff_s())
            return error
        self._answered()
        return None

    def _answered(self) -> None:
        """The other side is there, whether or not it liked this message."""
        with self._lock:
            if self._failing is not None:
                logger.info("notifier %s answers again", self.name)
            self._failing, self._failing_since_ns, self._failures = None, None, 0

    def _fail(self, reason: str, wait_s: float) -> None:
        with self._lock:
            if self._failing != reason:
                logger.warning("notifier %s: %s", self.name, reason)
            self._failing = reason
            self._failing_since_ns = self._failing_since_ns or self._clock.time_ns()
            self._failures += 1
            self._not_before_s = self._now_s() + wait_s

    def _backoff_s(self) -> float:
        """Exponential with full jitter: many hosts do not come back at once."""
        ceiling_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2 ** min(self._failures, 20))
        return self._rng.uniform(FIRST_RETRY_S / 2, ceiling_s)

    def _refresh(self, now_s: float) -> float:
        """Tells again what still fires, where the other side forgets."""
        every_s = self._settings.refresh_every_s
        if every_s is None:
            return IDLE_S
        due_s = self._refreshed_s + every_s
        if now_s < due_s:
            return min(IDLE_S, due_s - now_s)
        alerts = self._firing()
        for start in range(0, len(alerts), self._settings.batch):
            outcome = self._try(alerts[start : start + self._settings.batch])
            if isinstance(outcome, Refused):
                # Those of the other messages must not expire for it.
                self._say_refresh_refused(outcome.reason)
            elif outcome is not None:
                return self._not_before_s - now_s
        self._refreshed_s = now_s
        return IDLE_S

    def _say_refresh_refused(self, reason: str) -> None:
        if reason != self._refresh_refusal:
            logger.error("notifier %s: what still fires was refused: %s", self.name, reason)
        self._refresh_refusal = reason

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S
