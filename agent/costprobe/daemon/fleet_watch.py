"""The process of `costprobe fleet watch`: checks, incidents, and notices while it holds the lease.

It runs the watcher of a configuration file, and reloads the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event as Flag
from threading import Lock

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.host.host_name import host_tag, host_tags
from costprobe.adapters.host.schedule import Schedule
from costprobe.adapters.http.access import learn_secrets
from costprobe.adapters.http.errors import DeliveryError
from costprobe.adapters.store.upkeep import RETENTION_EVERY_S, Retention
from costprobe.alerts.faults import disk_of, present_faults
from costprobe.alerts.watching import IncidentStore, WatchedSections, Watching
from costprobe.configuration import Config
from costprobe.core.clock import Clock
from costprobe.core.clock_step import ClockStep
from costprobe.core.incident import Fault
from costprobe.core.records import NS_PER_S
from costprobe.core.units import counted
from costprobe.daemon.control import ControlServer, alerting_requests
from costprobe.daemon.control_protocol import control_path
from costprobe.daemon.main import Service, job_liveness
from costprobe.daemon.parts import EMPTY_STATUS
from costprobe.daemon.systemd import SystemdNotifier
from costprobe.delivery.alertmanager import AlertmanagerConfig
from costprobe.delivery.contract import NotifierConfig
from costprobe.delivery.delivery import Notifying
from costprobe.fleet.watch import STATE, FleetWatch, Lease, PartialAnswerError

logger = logging.getLogger(__name__)

_LEASE = "lease"
# Most notices of one notifier that are withdrawn at an evaluation.
_WITHDRAWN_MAX = 1000


class FleetWatcher(Service):
    """Watches a fleet until it is stopped; a reload replaces its parts.

    With a sink, several watchers of one fleet agree by a lease in its database who notifies. All of them
    evaluate; a passive one keeps its notices until the active one, which evaluates the same rows, has lived an
    interval longer.

    Args:
        config: The configuration, in which `watch_problem` finds nothing.
        config_path: Its file.
        clock: The host's clocks.
        notifier: Sends notifications to systemd.

    Raises:
        StoreError: The store cannot be opened, or another process uses it.
    """

    def __init__(
        self, config: Config, config_path: Path, clock: Clock, notifier: SystemdNotifier
    ) -> None:
        if config.store.path is None:
            raise ValueError("no path of a store")
        super().__init__(config, config_path, config.store.path, clock, notifier)
        self._incidents = IncidentStore(self._store)
        self._retention = Retention(self._store, self._ledger, clock)
        # No part is replaced while an evaluation writes to the store.
        self._storing = Lock()
        path, requests = control_path(self.store_path, os.environ), alerting_requests(lambda: self)
        self._control = ControlServer(path, requests, self._stop)
        self._build(config)

    def _build(self, config: Config) -> None:
        """Make the parts of a configuration; what they continue is in the store."""
        fleet = config.fleet
        if fleet is None:
            raise ValueError("no [fleet]")
        learn_secrets(config)
        self._every_s = fleet.watched.every_s
        self._ending = Flag()
        self._reader = fleet_reader(fleet, self._clock)
        self._watch = FleetWatch(fleet, self._reader, config.host.labels, self._ending.is_set)
        name = host_tag(config.host)
        self._lease = (
            Lease(config.sink[0], name, self._every_s, self._clock) if config.sink else None
        )
        self._restore()
        sections = WatchedSections(
            rules=config.rule,
            alerting=config.alerting,
            maintenance=config.maintenance,
            notifiers=config.notifier,
            detection=config.detection,
            budgets=[budget.name for budget in fleet.watched.budget],
        )
        self.watching = Watching(
            sections,
            self._store,
            self._ledger,
            self._clock,
            config.host.labels,
            self._steps,
            incidents=self._incidents,
        )
        self.notifying = self._notifiers()
        self._is_notifying = False
        self._schedule = Schedule(2, self._clock, self._steps.is_stepped)
        # Other watchers evaluate at the same multiples of the interval.
        at_once = self._lease is None
        self._schedule.add("fleet", self._every_s, self.evaluate, at_once=at_once)
        self._schedule.add("retention", RETENTION_EVERY_S, self._retain)

    def run(self, on_ready: Callable[[], None]) -> None:
        """Run until `request_stop`.

        Args:
            on_ready: Called once, before the first evaluation.
        """
        try:
            self._control.open()
            on_ready()
            self._steps.subscribe(self._clock_was_stepped)
            self._schedule.start()
            self._serve()
        finally:
            self._notifier.stopping()
            self.close()

    def evaluate(self) -> None:
        """Run the checks, evaluate the rules, and deliver or keep the notices."""
        every_ns = int(self._every_s * NS_PER_S)
        now_ns = self._clock.time_ns() // every_ns * every_ns
        points = self._watch.evaluate(now_ns)
        if not self._ending.is_set():
            self._renew(now_ns)
        with self._storing:
            if self._ending.is_set():
                return
            self.watching.take(points)
            self.watching.tick([*self._watch.faults(), *self._own_faults()])
            self._deliver()
            self._store.put_state(STATE, {**self._watch.document(), "is_active": self._is_active()})
        self._notifier.status(self._summary())

    def _renew(self, now_ns: int) -> None:
        if self._lease is None:
            return
        before = self._lease.is_held
        try:
            self._lease.renew(self._watch.query(now_ns))
        except (DeliveryError, PartialAnswerError) as error:
            self._watch.fail(_LEASE, str(error))
        else:
            self._watch.succeed(_LEASE)
        if self._lease.is_held != before:
            logger.warning("this watcher is %s now", "active" if self._is_active() else "passive")

    def _deliver(self) -> None:
        """Deliver the notices while this watcher is active; else withdraw those that the active one sent."""
        if self._is_active():
            if not self._is_notifying:
                self.notifying.start()
                self._is_notifying = True
            self.notifying.wake()
            self.notifying.send_unstored(self.watching.unstored())
            return
        if self._is_notifying:
            self.notifying.stop()
            self.notifying = self._notifiers()
            self._is_notifying = False
        # What the active watcher queued an interval before its last heartbeat, it had time to send.
        sent_ns = (self._lease.others_ns if self._lease else 0) - int(self._every_s * NS_PER_S)
        for notifier in self._config.notifier:
            queued = self._store.notices(notifier.name, _WITHDRAWN_MAX)
            sent = [notice.id for notice in queued if notice.queued_ns <= sent_ns]
            if sent:
                self._store.notices_sent(sent)

    def _is_active(self) -> bool:
        return self._lease is None or self._lease.is_held

    def _notifiers(self) -> Notifying:
        return Notifying(
            _lasting(self._config.notifier, self._every_s if self._lease else 0.0),
            self._store,
            self._clock,
            Flag(),
            self.watching.firing_for,
            host_tags(self._config.host),
        )

    def _own_faults(self) -> list[Fault]:
        """Return the faults of this process: notifiers, store, disk."""
        status = {
            **EMPTY_STATUS,
            "sensor": {"state": "stopped"},
            "notifiers": self.notifying.status() if self._is_notifying else {},
            "store": {**self._store_status(), "fault": self.watching.status()["fault"]},
            "config_fault": self._config_fault,
        }
        return present_faults(status, disk_of(self.store_path))

    def _summary(self) -> str:
        role = "active" if self._is_active() else "passive: another watcher notifies"
        hosts = f"{counted(self._watch.hosts.hosts, 'host')}, {self._watch.hosts.silent:,} silent"
        failing = f"; no complete answer: {', '.join(self._watch.failing)}"
        return f"{role}; {hosts}{failing if self._watch.failing else ''}"

    def _liveness(self) -> dict[str, bool]:
        return {
            "control socket": self._control.is_alive(),
            **self.notifying.liveness(),
            **job_liveness(self._schedule),
        }

    def _restore(self) -> None:
        stored = self._store.state(STATE)
        if isinstance(stored, dict):
            self._watch.restore(stored)
            if self._lease is not None:
                # It stays active while the database does not answer.
                self._lease.is_held = stored.get("is_active") is True

    def _retain(self) -> None:
        self._retention.apply(self._config.store.outbox_retention_s)

    def _clock_was_stepped(self, _: ClockStep) -> None:
        self._schedule.realign()

    def _problem(self, config: Config) -> str:
        return watch_problem(config)

    def _replace(self, config: Config) -> None:
        self._end()
        self._config = config
        self._build(config)
        self._schedule.start()

    def _end(self) -> None:
        """Stop the parts of the configuration; queued notices are delivered by the next ones."""
        self._ending.set()
        self._schedule.stop()
        with self._storing:
            self.watching.close()
            self.notifying.stop()
        self._reader.close()
        if self._lease is not None:
            self._lease.close()

    def close(self) -> None:
        """Stop all parts; queued notices are delivered after the next start."""
        self._stop.set()
        self._control.close()
        self._end()
        self._close_store()


def _lasting(notifiers: Sequence[NotifierConfig], every_s: float) -> list[NotifierConfig]:
    """Return the notifiers such that no Alertmanager expires an alert while another watcher takes over."""
    return [
        notifier.model_copy(update={"resend_every_s": max(notifier.resend_every_s, every_s)})
        if isinstance(notifier, AlertmanagerConfig)
        else notifier
        for notifier in notifiers
    ]


def watch_problem(config: Config) -> str:
    """Return what a configuration lacks for a watcher that runs, with the fix; empty for nothing."""
    if config.fleet is None:
        return "no [fleet] is configured; add url and kind of the database (docs/fleet.md)"
    if config.store.path is None:
        return (
            "store.path: the watcher needs a store of its own; add"
            ' path = "/var/lib/costprobe-fleet/fleet.db" to [store]'
        )
    if len(config.sink) > 1:
        return (
            "sink: the lease is written to one database; keep the [[sink]] of the database of"
            " [fleet]"
        )
    return ""
