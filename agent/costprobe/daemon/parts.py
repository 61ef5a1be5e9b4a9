"""The parts of the daemon for one configuration and one set of devices, built and replaced.

A reload, or other devices, build new parts; the shared parts are kept. Parts that only some
configurations need are imported when they are constructed: a daemon without them does not load
their modules.

What costprobe stores about itself is the `agent` series, and events for the gaps in its
operation.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Final

from costprobe import __version__
from costprobe.adapters.clouds.instance import InstanceDetector
from costprobe.adapters.host.host_name import host_tags
from costprobe.adapters.host.processes import cpu_s, rss_bytes
from costprobe.adapters.host.schedule import Schedule
from costprobe.adapters.http.access import learn_secrets
from costprobe.adapters.store.ledger import RowLabels, StoreLedger
from costprobe.adapters.store.upkeep import RETENTION_EVERY_S, Retention
from costprobe.adapters.store.write import Store
from costprobe.alerts.faults import disk_of, present_faults
from costprobe.alerts.watching import IncidentStore, WatchedSections, Watching
from costprobe.configuration import Config
from costprobe.core.clock import Clock
from costprobe.core.clock_step import ClockMonitor, ClockStep, Gap
from costprobe.core.incident import Fault
from costprobe.core.records import HOST_DEVICE, Device, Event, FieldValue, Point
from costprobe.core.schema import event_point, make_point
from costprobe.core.units import duration_words
from costprobe.daemon.device_watch import DeviceWatch, HostBoards
from costprobe.delivery.delivery import Notifying, SinkDelivery
from costprobe.devices.charges import DeviceCharges
from costprobe.devices.readings import Accounts
from costprobe.devices.use import DeviceWindows, ProbeRuns, longest_gap_s
from costprobe.drift.annotations import Annotations
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import CarbonBook
from costprobe.pricing.prices import RETRY_S, Feeds, HostPricing, RememberedPrices
from costprobe.probing.jobs import HostProbes, ProbeAccounts, StoredHistory
from costprobe.probing.rows import terms_document
from costprobe.probing.run import Listeners
from costprobe.serving.device_costs import (
    Claimant,
    Surroundings,
    allocate_rest,
    begin_allocation,
)

if TYPE_CHECKING:
    from costprobe.devices.server import ServerPower
    from costprobe.serving.service import Serving
    from costprobe.spend.evaluate import BudgetTracker


logger = logging.getLogger(__name__)


def price_file_jobs(
    config: Config, store_path: Path, clock: Clock
) -> Sequence[tuple[str, float, Callable[[], None]]]:
    """Return name, period in s and function of the job of each price file; empty without services.

    Args:
        config: The configuration.
        store_path: The store that costs are read from.
        clock: The host's clocks.
    """
    if not config.price_file or not (config.service or config.kubernetes):
        return ()
    from costprobe.unit_costs.price_files import EVERY_S, PriceFile  # noqa: PLC0415 - only a daemon with price files

    models = {service.name: service.model for service in config.service if service.model}
    files = [PriceFile(settings, models, store_path, clock) for settings in config.price_file]
    return [(file.name, EVERY_S, file.write) for file in files]


SPARE_WORKERS = 3
# For the scrapes and windows of pods.
POD_WORKERS = 8
BUDGETS_EVERY_S = 30.0
FILE_EVERY_S = 10.0


class Runtime:
    """The jobs, prices, sinks, rules and notifiers of one configuration and one set of devices.

    Args:
        config: The configuration.
        watch: The devices, and the sensor child.
        host: The parts that are kept across reloads.
    """

    def __init__(self, config: Config, watch: DeviceWatch, host: HostParts) -> None:
        learn_secrets(config)
        devices, ledger, clock = watch.devices, host.ledger, host.clock
        self._host, self._sensor = host, watch.sensor
        self.ledger, self.store_path = ledger, host.store.path
        self._stop = Flag()
        self.tags = host_tags(config.host)
        self.feeds = Feeds(config.price, config.carbon, ledger, clock, self.take_event)
        self._pricing = HostPricing(
            config.price,
            config.host,
            self.store_path,
            host.detector,
            ledger,
            clock,
            on_event=self.take_event,
        )
        assumed = self._pricing.assumed
        book = PriceBook(config.price, config.electricity, devices, assumed, self.feeds.spots)
        self._labels = RowLabels(config.probe, config.service)
        self.watching = Watching(
            watched_sections(config, unmeasured(config, devices)),
            host.store,
            ledger,
            clock,
            self.tags,
            host.steps,
            incidents=host.incidents,
            labels=self._labels,
            sensor_ns=watch.sensor.since_ns,
        )
        names = {"device": devices, "probe": config.probe, "service": config.service}
        self.annotations = Annotations(
            {kind: [each.name for each in those] for kind, those in names.items()},
            self.tags,
            ledger,
            clock,
            lambda uuid: host.boards.leave(uuid).name,
        )
        ledger.observe(self.watching.take)
        ledger.label_with(self._labels)
        carbon = CarbonBook(config.carbon, config.electricity, devices, self.feeds.intensities)
        longest_s = longest_gap_s(config.telemetry.every_s)
        charges = self.charges = DeviceCharges(book, config.longest_window_s, longest_s)
        self.prices = RememberedPrices(book, ledger, clock, carbon)
        self._devices = [device.name for device in devices]
        self.accounts = Accounts(self.prices, ledger, clock, self.tags, charges=charges)
        self._budgets = self._budget_tracker(config)
        runs = ProbeRuns()
        history = StoredHistory(self.store_path, clock)
        self.probes = HostProbes(
            config.probing,
            config.probe,
            devices,
            DeviceWindows(watch.sensor, clock),
            ProbeAccounts(self.prices, ledger, clock, self.tags, history.costs),
            ledger,
            clock=clock,
            listeners=host.listeners,
            runs=runs,
            missing=host.missing,
            lock_folder=self.store_path.parent,
            stop=self._stop,
        )
        around = Surroundings(
            charges=charges,
            runs=runs,
            clock=clock,
            tags=self.tags,
            ledger=ledger,
            on_event=self.take_event,
            store_path=self.store_path,
            carbon=carbon,
            on_containers=self._take_containers,
        )
        # A service's scrape and the end of its window may be due together.
        workers = len(self.probes.jobs) + 2 * len(config.service) + SPARE_WORKERS
        workers += POD_WORKERS if config.kubernetes is not None else 0
        workers += 1 if config.server_power is not None else 0
        self.schedule = Schedule(workers, clock, host.steps.is_stepped)
        self.delivery = SinkDelivery(config.sink, host.store, clock, self._stop, self.tags["host"])
        self.notifying = Notifying(
            config.notifier, host.store, clock, self._stop, self.watching.firing_for, self.tags
        )
        self._serving = self._services(config, devices, around)
        self._server = self._server_power(config, devices, book)
        self._add_jobs(config, history)

    def _budget_tracker(self, config: Config) -> BudgetTracker | None:
        """Return the tracker of the budgets; None without a budget."""
        if not config.budget:
            return None
        from costprobe.spend.evaluate import BudgetTracker  # noqa: PLC0415 - only a daemon with budgets

        return BudgetTracker(
            config.budget,
            config.telemetry.aggregate_s,
            self.ledger,
            self.store_path,
            self._host.clock,
            self.tags,
            on_event=self.take_event,
        )

    def _server_power(
        self, config: Config, devices: Sequence[Device], book: PriceBook
    ) -> ServerPower | None:
        """Return the reading of the server's power; None without it."""
        if config.server_power is None:
            return None
        from costprobe.devices.server import ServerPower  # noqa: PLC0415 - only a daemon that reads it

        return ServerPower(
            config.server_power,
            config.telemetry,
            devices,
            book,
            self.ledger,
            self._host.clock,
            tags=self.tags,
            missing=self._host.missing,
        )

    def _services(
        self, config: Config, devices: Sequence[Device], around: Surroundings
    ) -> Serving | None:
        """Return the services and containers; None without a service and Kubernetes."""
        if not self.allocates(config):
            return None
        from costprobe.serving.service import Serving  # noqa: PLC0415 - only a daemon with services

        return Serving(
            config.service,
            config.kubernetes,
            config.telemetry,
            devices,
            around,
            self.schedule,
            window_s=config.longest_window_s,
        )

    def _add_jobs(self, config: Config, history: StoredHistory) -> None:
        """Schedule the configuration's probes, budgets, services and feeds, and the daemon's own jobs."""
        schedule, host = self.schedule, self._host
        self.probes.schedule_on(schedule, history)
        if self._budgets is not None:
            schedule.add("budgets", BUDGETS_EVERY_S, self._budgets.refresh, at_once=True)
        files = price_file_jobs(config, self.store_path, host.clock)
        for name, every_s, run in (*files, *self._pricing.jobs()):
            schedule.add(name, every_s, run, at_once=True)
        for feed in filter(None, (*self.feeds.prices.values(), self.feeds.carbon)):
            name, source = feed.kind.title, feed.source
            # A file is read often: it is cheap, and a change by the operator takes effect early.
            every_s = source.every_s if source.file is None else min(source.every_s, FILE_EVERY_S)
            schedule.add(name, every_s, feed.refresh, at_once=True)
            if every_s > RETRY_S:
                schedule.add(f"{name}, after a failure", RETRY_S / 2, feed.retry)
        if self._server is not None:
            schedule.add("server power", self._server.every_s, self._server.poll, at_once=True)
        schedule.add("self-observation", AGENT_EVERY_S, host.write_agent_point, at_once=True)
        kept_s = config.store.outbox_retention_s
        schedule.add("retention", RETENTION_EVERY_S, partial(host.retention.apply, kept_s))
        every_s = config.alerting.evaluate_every_s
        after_s = min(EVALUATE_AFTER_S, every_s / 2)
        schedule.add("alerting", every_s, host.evaluate, offset_s=after_s, at_once=True)
        if every_s > STATUS_EVERY_S:
            schedule.add("status", STATUS_EVERY_S, host.store_status)
        schedule.add("detectors", DETECTORS_EVERY_S, self.watching.keep_detectors)

    def take_event(self, event: Event) -> None:
        """Store an event."""
        self.ledger.append([event_point(event, self.tags)])

    @staticmethod
    def allocates(config: Config) -> bool:
        """Return whether the devices' cost is allocated to services."""
        return bool(config.service) or config.kubernetes is not None

    def start(self) -> None:
        """Start measuring and delivering."""
        consumers = [self.accounts.record_readings]
        if self._serving is not None:
            consumers.append(self._serving.record_readings)
        if self._server is not None:
            consumers.append(self._server.record_readings)
        self._sensor.deliver_to(*consumers)
        self._host.steps.subscribe(self._clock_was_stepped)
        self.delivery.start()
        self.notifying.start()
        if self._serving is not None:
            self._serving.begin()
        self.schedule.start()

    def stop(self) -> None:
        """Stop the parts; probe children are killed, unsent rows stay in the store.

        Readings are stored until `close`, or until another runtime is started.
        """
        self._stop.set()
        self._host.steps.unsubscribe(self._clock_was_stepped)
        self.schedule.stop()
        self.probes.close()
        self.watching.close()
        self.ledger.observe(None)
        self.notifying.stop()
        self.delivery.stop()

    def close(self) -> None:
        """Store and allocate the last readings, once `stop` was called and no more come."""
        self.accounts.close()
        if self._serving is not None:
            self._serving.stop()

    def _clock_was_stepped(self, _: ClockStep) -> None:
        self.schedule.realign()

    def refresh_faults(self) -> None:
        """Update the faults that the store shows, and store their events."""
        for event in self.delivery.new_rejections():
            self.take_event(event)

    def evaluate(self, faults: Sequence[Fault]) -> None:
        """Evaluate the alert rules, and deliver the resulting notices.

        Args:
            faults: The current faults.
        """
        if self.watching.tick(faults):
            self.notifying.wake()
        self.notifying.send_unstored(self.watching.unstored())

    def status(self) -> dict[str, Any]:
        """Return the status of each part; the same keys as EMPTY_STATUS, and of what is configured."""
        terms = {name: self.prices.terms_now(name) for name in self._devices}
        return {
            "prices": [
                {"device": name, **terms_document(known)} for name, known in terms.items() if known
            ],
            "probes": self.probes.status(self.schedule),
            "services": self._serving.status() if self._serving else [],
            "kubernetes": self._serving.pods_status() if self._serving else {},
            "jobs": {name: record.document() for name, record in self.schedule.records.items()},
            "sinks": self.delivery.status(),
            "notifiers": self.notifying.status(),
            "alerting": self.watching.status(),
            "spot_prices": {name: feed.status() for name, feed in self.feeds.prices.items()},
            "carbon": self.feeds.carbon.status() if self.feeds.carbon else {},
            **({"server_power": self._server.status()} if self._server is not None else {}),
            "budgets": self._budgets.status() if self._budgets is not None else [],
        }

    def _take_containers(self, containers: Sequence[Claimant]) -> None:
        """Label the rows of the containers of this node, and let alerts concern them."""
        for container in containers:
            service_tags = container.service.row_tags if container.service else {}
            self._labels.add_service(container.name, {**container.labels, **service_tags})
        self.watching.set_containers([container.name for container in containers])


def unmeasured(config: Config, devices: Sequence[Device]) -> Collection[str]:
    """Return the processors' name where they are not measured, as a GPU is or they need not be."""
    is_left = config.telemetry.cpu is False or any(device.is_board for device in devices)
    return {HOST_DEVICE} if is_left and not any(device.is_host for device in devices) else ()


def watched_sections(config: Config, without: Collection[str] = ()) -> WatchedSections:
    """Return what rules and detectors use of a configuration.

    Args:
        config: The configuration.
        without: Devices that are not measured by design.
    """
    return WatchedSections(
        rules=config.rule,
        alerting=config.alerting,
        maintenance=config.maintenance,
        notifiers=config.notifier,
        detection=config.detection,
        probes=[probe.name for probe in config.probe],
        services=[service.name for service in config.service],
        budgets=[budget.name for budget in config.budget],
        has_pods=config.kubernetes is not None,
        unmeasured=without,
    )


INSTANCE_STATE = "instance"


def gap_event(gap: Gap) -> Event:
    """Return the event of a time in which the daemon did not run."""
    what = "the host was suspended" if gap.is_suspension else "the daemon was stopped"
    return Event(
        kind="fault",
        severity="info",
        title=f"{what} for {duration_words(gap.length_s)}",
        time_ns=gap.end_ns,
        detail="Rows of this time may be missing, and results of probes that include it are discarded.",
        cause="gap",
        since_ns=gap.start_ns,
    )


# Devices' rows end at whole multiples, too: rules are evaluated after the rows of that instant.
EVALUATE_AFTER_S = 0.1
AGENT_EVERY_S = 60.0
DETECTORS_EVERY_S = 3600.0
# The longest age of the stored status.
STATUS_EVERY_S = 10.0
MAX_EARLY_EVENTS = 100
# The status before the parts are built.
EMPTY_STATUS: Final[Mapping[str, Any]] = {
    "prices": [],
    "probes": [],
    "services": [],
    "kubernetes": {},
    "jobs": {},
    "sinks": {},
    "notifiers": {},
    "alerting": {},
    "spot_prices": {},
    "carbon": {},
    "budgets": [],
    "absent_boards": {},
    "billed_elsewhere": {},
}


class HostParts:
    """The parts that are kept across reloads, and those of the configuration in force, which they build.

    Args:
        store: The store that this process writes; the outbox of the sinks.
        ledger: Rows and documents, queued in memory while the store rejects writes.
        clock: The host's clocks.
        steps: Detects steps of the wall clock.
        listeners: Callbacks for probe runs.
        process_status: Returns the status of the process itself.
        early: Events of the start, which are stored with the first parts.

    Attributes:
        detector: Detects the cloud instance.
        runtime: The parts of the configuration; None before the first `build`, and after `close`.
        incidents: What evaluations of the rules could not store.
        boards: The boards of the host.
        retention: Deletes old rows.
    """

    def __init__(
        self,
        store: Store,
        ledger: StoreLedger,
        clock: Clock,
        steps: ClockMonitor,
        listeners: Listeners,
        process_status: Callable[[], dict[str, Any]],
        *,
        early: Iterable[Event] = (),
    ) -> None:
        self.runtime: Runtime | None = None
        self._watch: DeviceWatch | None = None
        self.store, self.ledger, self.clock, self.steps = store, ledger, clock, steps
        self.listeners = listeners
        self._process_status = process_status
        self._early_events = deque(early, MAX_EARLY_EVENTS)
        self.detector = InstanceDetector()
        self.incidents = IncidentStore(store)
        self.boards = HostBoards(ledger, store.path, clock)
        self.retention = Retention(store, ledger, clock)

    def build(self, config: Config, watch: DeviceWatch) -> None:
        """Build the parts of a configuration."""
        if self.runtime is None:
            self._allocate_rest(config)
        if config.telemetry.gpus and watch.sensor.has_looked():
            self._early_events.extend(self.boards.take(watch.found))
        self._watch = watch
        absent = {board.uuid: board.name for board in self.boards.absent()}
        config = config.named(absent | {device.uuid: device.name for device in watch.found})
        runtime = self.runtime = Runtime(config, watch, self)
        if runtime.allocates(config):
            begin_allocation(self.ledger, self.store.path)
        while self._early_events:
            runtime.take_event(self._early_events.popleft())
        self.store_status()

    def _allocate_rest(self, config: Config) -> None:
        tags = host_tags(config.host)
        allocate_rest(self.ledger, self.store.path, tags, self.clock.time_ns())

    def missing(self) -> dict[str, str]:
        """Return why devices are not measured, by name."""
        return {board.name: board.absence for board in self.boards.absent()} | self._billed()

    def _billed(self) -> dict[str, str]:
        elsewhere = self._watch.elsewhere if self._watch is not None else {}
        return {
            name: f"{name} is billed by another daemon of this host ({daemon}): it is neither probed"
            " nor billed by this one; stop one of the two"
            for name, daemon in elsewhere.items()
        }

    def rebuild(self, config: Config, watch: DeviceWatch) -> None:
        """Replace the parts, and start the new ones; no reading is lost."""
        before = self.runtime
        moves = self.boards.would_move(watch.found)
        if before is not None:
            before.stop()
            before.probes.wait_for_records()
            if moves:  # what these parts hold has the names until now
                before.close()
                self.runtime = None
        self.build(config, watch)
        if self.runtime is not None:
            self.runtime.start()
        if before is not None and not moves:
            before.close()
            if not Runtime.allocates(config):
                self._allocate_rest(config)

    def close(self) -> None:
        """Store what the stopped parts still hold, and the last status."""
        if self.runtime is not None:
            self.runtime.close()
        self.store_status(state="stopped")
        self.runtime = None

    def take_event(self, event: Event) -> None:
        """Log an event, and store it."""
        level = logging.INFO if event.severity == "info" else logging.WARNING
        logger.log(level, "%s%s", event.title, f" ({event.detail})" if event.detail else "")
        if self.runtime is None:
            self._early_events.append(event)
        else:
            self.runtime.take_event(event)

    def status(self) -> dict[str, Any]:
        """Return the status of the process and of each part."""
        of_parts = self.runtime.status() if self.runtime else EMPTY_STATUS
        absent = {
            board.uuid: {"text": board.absence, "device": board.name, "since_ns": board.absent_ns}
            for board in self.boards.absent()
        }
        return {
            **self._process_status(),
            **of_parts,
            "absent_boards": absent,
            "billed_elsewhere": self._billed(),
        }

    def store_status(self, **changes: object) -> None:
        """Store the status, which `costprobe status` shows even if the daemon is dead.

        Args:
            changes: Keys whose values replace those of the document.
        """
        self.ledger.put_state("status", {**self.status(), **changes})

    def annotate(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Store an annotation; None while there are no parts."""
        return None if self.runtime is None else self.runtime.annotations.add(request)

    def agent_point(self) -> Point | None:
        """Return a row of what the daemon measures of itself now; None while there are no parts."""
        runtime, watch = self.runtime, self._watch
        if runtime is None or watch is None:
            return None
        instance = self.ledger.state(INSTANCE_STATE)
        if not isinstance(instance, str):
            # It tells the rows of two daemons of one host apart.
            instance = secrets.token_hex(4)
            self.ledger.put_state(INSTANCE_STATE, instance)
        fields: dict[str, FieldValue | None] = {
            "rss_bytes": rss_bytes(),
            "cpu_s": cpu_s(),
            **runtime.delivery.totals(),
            "dropped_points": self.store.dropped_points(),
            "late_jobs": runtime.schedule.late_jobs,
            "child_restarts": watch.sensor.restarts,
            "instance": instance,
        }
        tags = {**runtime.tags, "version": __version__}
        return make_point("agent", tags, fields, self.clock.time_ns())

    def write_agent_point(self) -> None:
        """Store a row of what the daemon measures of itself."""
        if point := self.agent_point():
            self.ledger.append([point])

    def evaluate(self) -> None:
        """Evaluate the alert rules with the present faults, and store the status that follows."""
        runtime = self.runtime
        if runtime is None:
            return
        try:
            runtime.refresh_faults()
            runtime.evaluate(present_faults(self.status(), disk_of(self.store.path)))
        finally:
            self.store_status()
