"""Detection and alerting at work: every row that is kept is looked at, and incidents are told."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any

from agent.alert import Alert, Fault, Notice, Silence
from agent.alerting.analyst import STATE_PREFIX, Analyst
from agent.alerting.defaults import effective_rules
from agent.alerting.engine import AlertEngine
from agent.calendar_step import CalendarStep
from agent.clock import Clock
from agent.config import Config
from agent.costing.points import event_point
from agent.daemon.accounts import Ledger
from agent.daemon.control_requests import silence_document
from agent.daemon.schedule import ClockStep
from agent.model import NS_PER_S, Event, Point
from agent.storage.errors import StoreError
from agent.storage.reader import StoreReader
from agent.storage.writer import Store

logger = logging.getLogger(__name__)

DAY_NS = 86_400 * NS_PER_S
# A series without a kept detector learns from so much of its stored past.
LEARN_NS = 21 * DAY_NS
ENGINE_STATE = "alerting"
PUBLIC_STATE = "alerts"
REFRESH_NS = 60 * NS_PER_S
MAX_WAITING = 10_000
# A row's time is computed from the monotonic clock's: it may be a little later than now.
AHEAD_NS = 60 * NS_PER_S
# States are kept by the hour, one after the other.
OVERLAP_NS = 3600 * NS_PER_S
EXPLAINED = ("probe", "cost", "event")


class WatchedLedger:
    """A ledger whose rows are looked at once they are kept.

    Args:
        ledger: Where rows are kept.
        look: Told of them.
    """

    def __init__(self, ledger: Ledger, look: Callable[[Sequence[Point]], None]) -> None:
        self._ledger = ledger
        self._look = look
        self.state = ledger.state
        self.put_state = ledger.put_state

    def append(self, points: Iterable[Point]) -> None:
        """Keeps rows and shows them."""
        rows = tuple(points)
        self._ledger.append(rows)
        try:
            self._look(rows)
        except Exception:
            # Measuring goes on whatever becomes of detection.
            logger.exception("rows could not be looked at")


class Watching:
    """The detectors, rules and incidents of a configuration.

    What they know outlives a restart: incidents and their notices are committed together, and
    detectors learn what came after their last kept state from the stored rows.

    Args:
        config: The configuration.
        store: Keeps incidents, and notices until they are told.
        ledger: Keeps events.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)
        self._lock = Lock()
        self._step = ClockStep(clock.time_ns(), clock.monotonic_ns())
        self._analyst = Analyst(config.detection, self._history)
        rules = effective_rules(config.rule, use_defaults=config.alerting.defaults)
        probes = {None, *(probe.name for probe in config.probe)}
        budgets = {None, *(budget.name for budget in config.budget)}
        services = {None, *(service.name for service in config.service)}
        self._engine = AlertEngine(
            rules,
            config.alerting,
            config.maintenance,
            config.notifier,
            self._tags,
            is_current=lambda labels: (
                labels.get("probe") in probes
                and labels.get("service") in services
                and labels.get("budget") in budgets
            ),
        )
        self._points: list[Point] = []
        self._notices: list[Notice] = []
        self._dropped_notices = 0
        self._committed_ns = 0
        self._fault: str | None = None
        self._resume()

    def take(self, points: Sequence[Point]) -> None:
        """Looks at rows that were kept together: those of a probe run, or others."""
        with self._lock:
            now_ns = self._look_at_the_clock()
            for point in points:
                self._engine.observe(point)
            # What was measured by a calendar that has been set back since is not taken for later.
            for event in self._analyst.take(
                point for point in points if point.time_ns <= now_ns + AHEAD_NS
            ):
                self._tell(event)

    def tick(self, faults: Collection[Fault]) -> bool:
        """Evaluates every rule and keeps what came of it; True if there is something to tell."""
        with self._lock:
            # Before the rules are looked at: a moment later an incident could have fired.
            now_ns = self._look_at_the_clock()
            outcome = self._engine.tick(now_ns, faults)
            for row in outcome.points:
                _log(row)
            self._points += outcome.points
            self._notices += outcome.notices
            self._drop_overflow()
            is_due = not 0 <= now_ns - self._committed_ns < REFRESH_NS
            if outcome.changed or self._points or self._notices or is_due:
                return self._commit(now_ns)
        return False

    def unstored(self) -> Sequence[Notice]:
        """Takes out the notices that the store could not keep: they can be told without it.

        They are not told again when it can: the incidents in memory know that they were. A process
        that ends before that finds the old incidents, and tells anew.
        """
        with self._lock:
            if self._fault is None:
                return ()
            found, self._notices = self._notices, []
        return found

    def close(self) -> None:
        """Keeps what a next process goes on from; a store that cannot be written is logged."""
        try:
            self.keep_detectors()
        except StoreError as error:
            logger.warning("the detectors' states are not kept: %s", error)

    def keep_detectors(self) -> None:
        """Keeps what the detectors know, so that a restart need not learn it again.

        Incidents first: what a detector has told is not found again from its later state.
        """
        with self._lock:
            self._commit(self._clock.time_ns())
            documents = self._analyst.documents()
        for name, document in documents.items():
            self._store.put_state(name, document)

    def status(self) -> dict[str, Any]:
        """What `infercost status` shows; `fault` is None while incidents are kept."""
        return {
            "fault": self._fault,
            "waiting_notices": len(self._notices),
            "dropped_notices": self._dropped_notices,
        }

    def firing_for(self, notifier: str) -> Sequence[Alert]:
        """What a notifier was told and still holds."""
        with self._lock:
            return self._engine.firing_for(notifier, self._clock.time_ns())

    def add_silence(self, silence: Silence) -> None:
        """Adds a silence.

        Raises:
            ValueError: There are too many.
        """
        with self._lock:
            self._engine.add_silence(silence)
            self._commit(self._clock.time_ns())

    def end_silence(self, silence_id: str) -> Silence:
        """Ends a silence.

        Raises:
            KeyError: There is none of that id.
        """
        with self._lock:
            ended = self._engine.end_silence(silence_id, self._clock.time_ns())
            self._commit(self._clock.time_ns())
        return ended

    def silences(self) -> Sequence[Silence]:
        """The silences that hold or will."""
        with self._lock:
            return self._engine.silences(self._clock.time_ns())

    def _resume(self) -> None:
        """Goes on where the last process stopped; what it kept and is damaged begins anew."""
        kept = self._store.state(ENGINE_STATE)
        if isinstance(kept, dict):
            try:
                self._engine.restore(kept)
                now_ns = self._clock.time_ns()
                ahead_ns = kept.get("time_ns", 0) - now_ns
                if ahead_ns > 0:
                    self._engine.clock_was_stepped(CalendarStep(-ahead_ns, now_ns))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                logger.error("the incidents that were kept are damaged: %r", error)  # noqa: TRY400 - said once, the daemon goes on
        self._catch_up()

    def _look_at_the_clock(self) -> int:
        """UTC in ns of now; rules and detectors go on behind a step of the calendar."""
        now_ns = self._clock.time_ns()
        step_s = self._step.step_s(now_ns, self._clock.monotonic_ns())
        if step_s is not None:
            step = CalendarStep(round(step_s * NS_PER_S), now_ns)
            self._engine.clock_was_stepped(step)
            self._analyst.clock_was_stepped(step)
        return now_ns

    def _tell(self, event: Event) -> None:
        level = logging.WARNING if event.severity != "info" else logging.INFO
        logger.log(level, "%s", event.detail or event.title)
        row = event_point(event, self._tags)
        self._ledger.append([row])
        self._engine.observe(row)
        self._engine.notice(event)

    def _commit(self, now_ns: int) -> bool:
        """Keeps incidents, their rows and their notices, all or none."""
        alerts = {
            "alerts": [alert.to_document() for alert in self._engine.alerts()],
            "silenced": [alert.id for alert in self._engine.silenced(now_ns)],
            "silences": [silence_document(silence) for silence in self._engine.silences(now_ns)],
        }
        notices = [(notice.notifier, notice.alert.to_document()) for notice in self._notices]
        try:
            self._store.commit_alerts(
                self._points,
                {
                    ENGINE_STATE: {**self._engine.document(), "time_ns": now_ns},
                    PUBLIC_STATE: alerts,
                },
                notices,
            )
        except StoreError as error:
            if self._fault is None:
                logger.error("incidents wait in memory: %s", error)  # noqa: TRY400 - said once, its cause is in it
            self._fault = str(error)
            return False
        self._fault = None
        self._committed_ns = now_ns
        self._points, self._notices = [], []
        return bool(notices)

    def _drop_overflow(self) -> None:
        """Bounds what waits while the store cannot be written; the oldest goes first."""
        del self._points[:-MAX_WAITING]
        dropped = max(0, len(self._notices) - MAX_WAITING)
        if dropped:
            del self._notices[:dropped]
            self._dropped_notices += dropped

    def _history(self, device: str, probe: str, since_ns: int, until_ns: int) -> Sequence[Point]:
        tags = {"device": device, "probe": probe}
        with closing(StoreReader.open(self._store.path)) as reader:
            return [
                row
                for measurement in EXPLAINED
                for row in reader.points(measurement, since_ns, until_ns, tags)
            ]

    def _catch_up(self) -> None:
        """Feeds the detectors what was stored since their states were kept.

        An event that was told already is told again under the same identity: harmless. What is
        older than the states is only learnt from.
        """
        now_ns = self._clock.time_ns()
        with closing(StoreReader.open(self._store.path)) as reader:
            kept = {
                name: state
                for name, state in reader.states().items()
                if name.startswith(STATE_PREFIX)
            }
            for problem in self._analyst.restore(document for document, _ in kept.values()):
                logger.warning("%s", problem)
            self._analyst.set_back(now_ns)
            times_ns = [time_ns for _, time_ns in kept.values()]
            tell_after_ns = min([*times_ns, now_ns])
            stored = {(s.tags["device"], s.tags["probe"]) for s in reader.series("probe")}
            since_ns = now_ns - LEARN_NS
            if stored <= self._analyst.probes():
                since_ns = max(since_ns, tell_after_ns - OVERLAP_NS)
            for together in _by_time(reader, since_ns, now_ns + 1):
                for event in self._analyst.take(together):
                    if event.time_ns > tell_after_ns:
                        self._tell(event)


def _log(row: Point) -> None:
    """Says in the log that an incident fires or has ended."""
    state, name = row.tags["state"], row.tags["rule"]
    if state == "firing":
        logger.warning("%s fires: %s", name, row.fields["summary"])
    elif state == "resolved":
        logger.info("%s is resolved: %s", name, row.fields["summary"])


def _by_time(reader: StoreReader, since_ns: int, until_ns: int) -> Iterable[list[Point]]:
    """Rows of `probe` and `cost` of the same time together, oldest first."""
    rows = heapq.merge(
        # An hour's median is no sample: detectors learn from samples alone.
        *(reader.points(name, since_ns, until_ns, coarsest_s=0) for name in ("probe", "cost")),
        key=attrgetter("time_ns"),
    )
    for _, together in groupby(rows, key=attrgetter("time_ns")):
        yield list(together)
