"""Detection and alerting in the daemon: every stored row is examined, incidents become notices.

Detectors receive stored rows of one time together. They are trained with the store's rows, and
their state is stored for a restart. Rows and notices of incidents are stored together with the
state, or kept in memory until they are.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.ledger import Ledger, RowLabels
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.rules.changes import DriftRuleConfig
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.alerts.rules.rule import RuleConfig
from costprobe.alerts.settings import AlertingConfig, MaintenanceConfig, matches
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.clock_step import ClockMonitor, ClockStep
from costprobe.core.incident import Alert, Fault, Notice, Silence, silence_document
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.schema import LOAD_CURVE, event_point
from costprobe.delivery.contract import NotifierConfig
from costprobe.drift.settings import DetectionConfig

if TYPE_CHECKING:
    from costprobe.drift.monitor import DriftMonitor

logger = logging.getLogger(__name__)


REFRESH_NS = 60 * NS_PER_S
MAX_WAITING = 10_000


class IncidentStore:
    """Stores what evaluations of the rules produce; while the store fails, it waits in memory.

    What waits is bounded; the oldest is dropped first, and dropped notices are counted. It is kept
    across reloads.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._points: list[Point] = []
        self._notices: list[Notice] = []
        self._states: Mapping[str, Any] = {}
        self._dropped_notices = 0
        self._committed_ns = 0
        self._fault: str | None = None

    @property
    def waiting_points(self) -> int:
        """Number of rows in memory."""
        return len(self._points)

    def add(self, points: Sequence[Point], notices: Sequence[Notice]) -> None:
        """Add rows and notices, which the next commit stores."""
        self._points += points
        self._notices += notices
        del self._points[:-MAX_WAITING]
        dropped = max(0, len(self._notices) - MAX_WAITING)
        if dropped:
            del self._notices[:dropped]
            self._dropped_notices += dropped

    def is_due(self, now_ns: int) -> bool:
        """Return whether something waits, or the stored state is old.

        Args:
            now_ns: UTC in ns.
        """
        is_recent = 0 <= now_ns - self._committed_ns < REFRESH_NS
        return bool(self._points or self._notices) or not is_recent

    def commit(self, states: Mapping[str, Any], now_ns: int) -> bool:
        """Store states, rows and notices in one transaction; return whether it stored notices.

        Args:
            states: Documents by name.
            now_ns: UTC in ns.
        """
        notices = [(notice.notifier, notice.alert.to_document()) for notice in self._notices]
        try:
            self._store.commit_alerts(self._points, states, notices)
        except StoreError as error:
            if self._fault is None:
                logger.error("incidents wait in memory: %s", error)  # noqa: TRY400 - no traceback: the text has the cause
            self._fault, self._states = str(error), states
            return False
        self._fault, self._states = None, {}
        self._committed_ns = now_ns
        self._points, self._notices = [], []
        return bool(notices)

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """Return the newest state of a name, also while it cannot be stored; None if there is none."""
        return self._states.get(name) or self._store.state(name)

    def unstored(self) -> Sequence[Notice]:
        """Return and remove the notices that could not be stored."""
        if self._fault is None:
            return ()
        notices, self._notices = self._notices, []
        return notices

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `fault` is None while incidents are stored."""
        return {
            "fault": self._fault,
            "waiting_notices": len(self._notices),
            "dropped_notices": self._dropped_notices,
        }


# A detector without a stored state is trained with this much of its series' history.
LEARN_NS = 21 * 86_400 * NS_PER_S
# A row's time is computed from CLOCK_MONOTONIC: it may be slightly later than now.
AHEAD_NS = 60 * NS_PER_S
# Detector states are stored once an hour, one after the other.
OVERLAP_NS = 3600 * NS_PER_S
# How often the smallest detectable changes are computed.
DETECTABLE_NS = 300 * NS_PER_S
ENGINE_STATE = "alerting"
PUBLIC_STATE = "alerts"


@dataclass(frozen=True, slots=True)
class WatchedSections:
    """What rules and detectors use of a configuration.

    Attributes:
        rules: The configured rules.
        alerting: The section [alerting].
        maintenance: Times without notices.
        notifiers: The configured notifiers.
        detection: The section [detection].
        probes: Names of the probes; incidents of others end.
        services: Names of the configured services, likewise.
        budgets: Names of the budgets, likewise.
        has_pods: Whether containers of a Kubernetes node are services, too.
        unmeasured: Devices that are not measured by design; their incidents end.
    """

    rules: Sequence[RuleConfig]
    alerting: AlertingConfig
    maintenance: Sequence[MaintenanceConfig]
    notifiers: Sequence[NotifierConfig]
    detection: DetectionConfig
    probes: Collection[str] = ()
    services: Collection[str] = ()
    budgets: Collection[str] = ()
    has_pods: bool = False
    unmeasured: Collection[str] = ()


class Watching:
    """The detectors, rules and incidents of a configuration.

    Their state survives a restart: incidents and their notices are committed together, and
    detectors process the rows after their last stored state again.

    Args:
        sections: What is used of the configuration.
        store: Stores incidents, and notices until they are delivered.
        ledger: Stores events.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        steps: Detects steps of the wall clock.
        incidents: What a previous configuration could not store; None for nothing.
        labels: The operator's labels of series; None for none.
        sensor_ns: CLOCK_MONOTONIC ns of the start of the sensors; None without sensors.
    """

    def __init__(  # noqa: PLR0913 - the parts that it combines
        self,
        sections: WatchedSections,
        store: Store,
        ledger: Ledger,
        clock: Clock,
        tags: Mapping[str, str],
        steps: ClockMonitor,
        *,
        incidents: IncidentStore | None = None,
        labels: RowLabels | None = None,
        sensor_ns: int | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._tags = dict(tags)
        self._lock = Lock()
        self._is_closed = False
        self._steps = steps
        self._monitor = self._drift_monitor(sections)
        self._least_effect = sections.detection.least_effect
        self._labels = labels or RowLabels()
        rules = effective_rules(sections.rules, use_defaults=sections.alerting.defaults)
        probes = {None, *sections.probes}
        budgets = {None, *sections.budgets}
        self._services = frozenset(sections.services)
        # Those that hold devices of a Kubernetes node; None while they are not known yet.
        self._containers: frozenset[str] | None = None if sections.has_pods else frozenset()
        self._engine = AlertEngine(
            rules,
            sections.alerting,
            sections.maintenance,
            sections.notifiers,
            self._tags,
            is_current=lambda labels: (
                labels.get("probe") in probes
                and labels.get("device") not in sections.unmeasured
                and self._is_served(labels.get("service"))
                and labels.get("budget") in budgets
            ),
            labels_of=self._labels.of,
        )
        self._drift_rules = [
            rule for rule in sections.rules if isinstance(rule, DriftRuleConfig) and rule.enabled
        ]
        self._detectable: Sequence[dict[str, Any]] = ()
        self._noisy: Sequence[dict[str, Any]] = ()
        self._detectable_ns = 0
        self._incidents = incidents or IncidentStore(store)
        self._resume(None if sensor_ns is None else utc_ns(clock, sensor_ns))
        self._listing = self._listed(clock.time_ns())
        steps.subscribe(self._clock_was_stepped)

    def set_containers(self, services: Iterable[str]) -> None:
        """Set the services that are containers of a Kubernetes node; incidents of others end."""
        self._containers = frozenset(services)

    def take(self, points: Sequence[Point]) -> list[Point]:
        """Pass rows that were stored together to rules and detectors; return the events' rows."""
        self._steps.check()
        with self._lock:
            now_ns = self._clock.time_ns()
            for point in points:
                self._engine.observe(point)
            if self._monitor is None:
                return []
            # Rows measured before the wall clock was set back are in the detectors' future.
            past = [point for point in points if point.time_ns <= now_ns + AHEAD_NS]
            return [self._reported(event) for event in self._monitor.update(past)]

    def tick(self, faults: Collection[Fault]) -> bool:
        """Evaluate every rule and store the outcome; return whether there are new notices."""
        # Before the rules are evaluated: a duration that includes the step could fire an incident.
        self._steps.check()
        with self._lock:
            if self._is_closed:  # the parts that replace these have resumed from the stored state
                return False
            now_ns = self._clock.time_ns()
            outcome = self._engine.tick(now_ns, faults)
            for row in outcome.points:
                _log(row)
            self._incidents.add(outcome.points, outcome.notices)
            if outcome.changed or self._incidents.is_due(now_ns):
                return self._commit(now_ns)
        return False

    def unstored(self) -> Sequence[Notice]:
        """Return and remove the notices that could not be stored, for direct delivery.

        They are not delivered again when the store works, because the incidents in memory record them.
        After a crash before that, the next process delivers them again.
        """
        with self._lock:
            return self._incidents.unstored()

    def close(self) -> None:
        """Store the states for the next start, and evaluate no more; a failing store is logged."""
        self._steps.unsubscribe(self._clock_was_stepped)
        with self._lock:
            self._is_closed = True
        try:
            self.keep_detectors()
        except StoreError as error:
            logger.warning("the detectors' states are not stored: %s", error)

    def keep_detectors(self) -> None:
        """Store the detectors' states for a restart.

        Incidents are stored first: a later detector state does not detect a reported drift again.
        """
        with self._lock:
            self._commit(self._clock.time_ns())
            documents = self._monitor.documents() if self._monitor is not None else {}
        for name, document in documents.items():
            self._store.put_state(name, document)

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `fault` is None while incidents are stored."""
        return self._incidents.status()

    def alerts(self) -> Mapping[str, Any]:
        """Return pending and firing incidents and the silences, also while they cannot be stored.

        Takes no lock: an answer must not wait for a store that is locked.
        """
        return self._listing

    def firing_for(self, notifier: str) -> Sequence[Alert]:
        """Return the firing alerts that were sent to a notifier."""
        with self._lock:
            return self._engine.firing_for(notifier, self._clock.time_ns())

    def add_silence(self, silence: Silence) -> None:
        """Add a silence.

        Raises:
            ValueError: There are too many.
        """
        with self._lock:
            self._engine.silencing.add(silence)
            self._commit(self._clock.time_ns())

    def end_silence(self, silence_id: str) -> Silence:
        """End a silence.

        Raises:
            KeyError: No active silence has that id.
        """
        with self._lock:
            ended = self._engine.silencing.end(silence_id, self._clock.time_ns())
            self._commit(self._clock.time_ns())
        return ended

    def _is_served(self, service: str | None) -> bool:
        containers = self._containers
        return (
            service is None
            or service in self._services
            or containers is None
            or service in containers
        )

    def _resume(self, sensor_ns: int | None) -> None:
        """Continue from the stored state; damaged state is discarded."""
        stored = self._incidents.state(ENGINE_STATE)
        since_ns = 0
        if isinstance(stored, dict):
            try:
                now_ns = self._clock.time_ns()
                self._engine.restore(stored, now_ns, sensor_ns)
                since_ns = int(stored.get("time_ns", 0))
                ahead_ns = stored.get("time_ns", 0) - now_ns
                if ahead_ns > 0:
                    self._engine.clock_was_stepped(ClockStep(-ahead_ns, now_ns))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                logger.error("the stored incidents are damaged: %r", error)  # noqa: TRY400 - no traceback: the state is discarded
        # Load curves are measured by a command, also while no daemon runs.
        with closing(StoreReader.open(self._store.path)) as reader:
            tags = {"kind": "drift", "metric": LOAD_CURVE}
            for row in reader.points("event", since_ns, self._clock.time_ns(), tags):
                self._engine.observe(row)
        if self._monitor is not None:
            self._catch_up(self._monitor, self._clock.time_ns())

    def _drift_monitor(self, sections: WatchedSections) -> DriftMonitor | None:
        if not (sections.probes or sections.services or sections.has_pods):
            return None
        # Imported here: a daemon without a probe or a service does without the memory.
        from costprobe.drift.monitor import DriftMonitor  # noqa: PLC0415

        return DriftMonitor(sections.detection, self._history)

    def _history(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        tags = {name: value for name, value in (("device", device), ("probe", probe)) if value}
        with closing(StoreReader.open(self._store.path)) as reader:
            return reader.newest(measurement, *span_ns, tags, limit=limit)

    def _catch_up(self, monitor: DriftMonitor, now_ns: int) -> None:
        """Restore the stored states, add the rows after them, and report the events of these rows.

        An event that was reported before is reported again with the same identity, which has no
        effect. Rows older than the states only update the detectors.
        """
        from costprobe.drift.monitor import STATE_PREFIXES  # noqa: PLC0415 - as above

        with closing(StoreReader.open(self._store.path)) as reader:
            kept = {
                name: state
                for name, state in reader.states().items()
                if name.startswith(STATE_PREFIXES) and state[0] is not None
            }
            for problem in monitor.restore(document for document, _ in kept.values()):
                logger.warning("%s", problem)
            monitor.rewind(now_ns)
            report_after_ns = min([*(time_ns for _, time_ns in kept.values()), now_ns])
            stored = {(s.tags["device"], s.tags["probe"]) for s in reader.series("probe")}
            served = {
                s.tags["service"] for s in reader.series("cost") if s.tags.get("basis") == "serving"
            }
            since_ns = now_ns - LEARN_NS
            if stored <= monitor.probes() and served <= monitor.services():
                since_ns = max(since_ns, report_after_ns - OVERLAP_NS)
            rows = heapq.merge(
                # Detectors learn from samples only, not from rolled-up medians.
                *(
                    reader.points(name, since_ns, now_ns + 1, with_hours=False)
                    for name in ("probe", "cost")
                ),
                key=attrgetter("time_ns"),
            )
            for _, together in groupby(rows, key=attrgetter("time_ns")):
                for event in monitor.update(together):
                    if event.time_ns > report_after_ns:
                        self._ledger.append([self._reported(event)])

    def _clock_was_stepped(self, step: ClockStep) -> None:
        """Shift the timing state of rules and detectors after a wall-clock step."""
        with self._lock:
            self._engine.clock_was_stepped(step)
            if self._monitor is not None:
                self._monitor.clock_was_stepped(step)

    def _reported(self, event: Event) -> Point:
        """Log an event and pass it to the rules; return its row, which the ledger stores."""
        level = logging.WARNING if event.severity != "info" else logging.INFO
        logger.log(level, "%s", event.text)
        row = event_point(event, self._tags)
        self._engine.observe(row)
        return row

    def _commit(self, now_ns: int) -> bool:
        """Store incidents, their rows and their notices in one transaction."""
        self._listing = self._listed(now_ns)
        states = {
            ENGINE_STATE: {**self._engine.document(), "time_ns": now_ns},
            PUBLIC_STATE: self._listing,
        }
        return self._incidents.commit(states, now_ns)

    def _listed(self, now_ns: int) -> dict[str, Any]:
        is_recent = 0 <= now_ns - self._detectable_ns < DETECTABLE_NS
        if self._monitor is not None and not is_recent:
            self._detectable = [
                self._detectable_of(dict(zip(("device", "probe", "metric"), key, strict=True)), pct)
                for key, pct in self._monitor.min_detectable_pct().items()
            ]
            self._noisy = [
                {"service": service, "noise_pct": noise_pct}
                for service, noise_pct in sorted(self._monitor.noisy_services().items())
            ]
            self._detectable_ns = now_ns
        return {
            "detectable": self._detectable,
            "noisy_services": self._noisy,
            "alerts": [alert.to_document() for alert in self._engine.alerts()],
            "silenced": [alert.id for alert in self._engine.silenced(now_ns)],
            "silences": [
                silence_document(silence) for silence in self._engine.silencing.present(now_ns)
            ],
        }

    def _detectable_of(self, series: dict[str, str], least_pct: float | None) -> dict[str, Any]:
        """Return the smallest change that a series shows now, and the rule that asks for the smallest, as JSON."""
        labels = {**self._tags, **series, **self._labels.of(series)}
        asking = [
            rule
            for rule in self._drift_rules
            if series["metric"] in rule.metrics and matches(rule.match, labels)
        ]
        first = min(asking, key=lambda rule: rule.at_least, default=None)
        asked_pct = None if first is None else 100 * max(first.at_least, self._least_effect)
        return {
            **series,
            "min_detectable_pct": least_pct,
            "rule": first and first.name,
            "at_least_pct": asked_pct,
        }


def _log(row: Point) -> None:
    """Log that an incident fires or has ended."""
    state, name = row.tags["state"], row.tags["rule"]
    if state == "firing":
        logger.warning("%s fires: %s", name, row.fields["summary"])
    elif state == "resolved":
        logger.info("%s is resolved: %s", name, row.fields["summary"])
