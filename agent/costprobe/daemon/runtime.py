"""The parts of one configuration on one set of devices; a reload builds new ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

from costprobe.adapters.system.host_name import host_tags
from costprobe.app.accounting.accounts import Accounts
from costprobe.app.accounting.assumed_prices import HostPricing
from costprobe.app.accounting.carbon_feed import CarbonFeed
from costprobe.app.accounting.device_charges import DeviceCharges
from costprobe.app.accounting.device_log import longest_gap_s
from costprobe.app.accounting.ledger import StoreLedger
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.app.accounting.remembered_prices import RememberedPrices
from costprobe.app.accounting.row_labels import RowLabels
from costprobe.app.accounting.spot_feeds import SpotFeeds
from costprobe.app.accounting.stored_history import StoredHistory
from costprobe.app.accounting.surroundings import Surroundings
from costprobe.app.accounting.timed_feed import RETRY_S
from costprobe.app.configuration import Config
from costprobe.app.delivery.notifying import Notifying
from costprobe.app.delivery.sink_delivery import SinkDelivery
from costprobe.app.schedule import Schedule
from costprobe.app.secret_places import learn_secrets
from costprobe.app.watching.annotations import Annotations
from costprobe.app.watching.watching import WatchedSections, Watching
from costprobe.core.clock_step import ClockStep
from costprobe.core.incident import Fault
from costprobe.core.records import Device, Event
from costprobe.daemon import optional_parts
from costprobe.daemon.shared_parts import SharedParts
from costprobe.domain.pricing.book import PriceBook
from costprobe.domain.pricing.carbon import CarbonBook
from costprobe.domain.pricing.source import SourceConfig

if TYPE_CHECKING:  # loaded with a service only
    from costprobe.app.accounting.claimant import Claimant

SPARE_WORKERS = 3
# For the scrapes and windows of pods.
POD_WORKERS = 8
BUDGETS_EVERY_S = 600.0
FILE_EVERY_S = 10.0


class Runtime:
    """The jobs, prices, sinks, rules and notifiers of one configuration.

    Args:
        config: The configuration.
        devices: The discovered devices.
        parts: The parts that are kept across reloads.
        lock_folder: Folder of the devices' lock files.
    """

    def __init__(
        self, config: Config, devices: Sequence[Device], parts: SharedParts, lock_folder: Path
    ) -> None:
        learn_secrets(config, os.environ)
        self._parts = parts
        self._history = StoredHistory(parts.store.path, parts.clock)
        self._stop = Flag()
        self.tags = host_tags(config.host)
        self.spots = SpotFeeds(config.price, parts.ledger, parts.clock, self._take_event)
        self.carbon = CarbonFeed(config.carbon, parts.ledger, parts.clock, self._take_event)
        self._pricing = HostPricing(
            config.price,
            config.host,
            parts.store.path,
            parts.detector,
            parts.ledger,
            parts.clock,
            on_event=self._take_event,
        )
        assumed = self._pricing.assumed
        book = PriceBook(config.price, config.electricity, devices, assumed, self.spots.current)
        self._labels = RowLabels(config.probe, config.service)
        self.watching = Watching(
            watched_sections(config),
            parts.store,
            parts.ledger,
            parts.clock,
            self.tags,
            parts.steps,
            incidents=parts.incidents,
            labels=self._labels,
        )
        self.annotations = Annotations(
            {
                "device": [device.name for device in devices],
                "probe": [probe.name for probe in config.probe],
                "service": [service.name for service in config.service],
            },
            self.tags,
            parts.ledger,
            parts.clock,
        )
        parts.ledger.observe(self.watching.take)
        parts.ledger.label_with(self._labels)
        carbon = CarbonBook(config.carbon, config.electricity, devices, self.carbon.current)
        charges = DeviceCharges(
            book,
            config.longest_window_s,
            longest_gap_s(config.telemetry.every_s),
        )
        self.prices = RememberedPrices(book, parts.ledger, parts.clock, carbon)
        self.accounts = Accounts(self.prices, parts.ledger, parts.clock, self.tags, charges=charges)
        self._budgets = optional_parts.budget_tracker(
            config, parts, self.tags, self._take_event, self._stop
        )
        runs = ProbeRuns()
        self._probes = optional_parts.host_probes(
            config,
            devices,
            parts,
            self.prices,
            history=self._history,
            runs=runs,
            lock_folder=lock_folder,
            stop=self._stop,
        )
        around = Surroundings(
            charges=charges,
            runs=runs,
            clock=parts.clock,
            tags=self.tags,
            ledger=parts.ledger,
            on_event=self._take_event,
            store_path=parts.store.path,
            carbon=carbon,
            on_containers=self._take_containers,
        )
        self._serving = optional_parts.serving(config, devices, around)
        self._price_files = optional_parts.price_file_jobs(config, parts.store.path, parts.clock)
        probe_jobs = len(self._probes.jobs) if self._probes is not None else 0
        # A service's scrape and the end of its window may be due together.
        workers = probe_jobs + 2 * len(config.service) + SPARE_WORKERS
        workers += POD_WORKERS if config.kubernetes is not None else 0
        self.schedule = Schedule(workers, parts.clock, parts.steps.is_stepped)
        self.delivery = SinkDelivery(
            config.sink, parts.store, parts.clock, self._stop, self.tags["host"]
        )
        self.notifying = Notifying(
            config.notifier,
            parts.store,
            parts.clock,
            self._stop,
            self.watching.firing_for,
            self.tags,
        )
        self._add_jobs()

    def _add_jobs(self) -> None:
        """Schedule the configuration's probes, budgets, services and feeds."""
        if self._probes is not None:
            self._probes.schedule_on(self.schedule, self.tags["host"], self._history)
        if self._budgets is not None:
            self.schedule.add("budgets", BUDGETS_EVERY_S, self._budgets.refresh, at_once=True)
        if self._serving is not None:
            self._serving.schedule_on(self.schedule)
        for name, every_s, run in self._price_files:
            self.schedule.add(name, every_s, run, at_once=True)
        for name, every_s, run in self._pricing.jobs():
            self.schedule.add(name, every_s, run, at_once=True)
        for plan in self.spots.plans:
            refresh, retry = (partial(f, plan.name) for f in (self.spots.refresh, self.spots.retry))
            self._watch_source(f"spot price {plan.name}", plan, refresh, retry)
        if (source := self.carbon.source) is not None:
            self._watch_source("carbon intensity", source, self.carbon.refresh, self.carbon.retry)

    @property
    def ledger(self) -> StoreLedger:
        """The ledger, which stores rows."""
        return self._parts.ledger

    @property
    def store_path(self) -> Path:
        """Path of the store."""
        return self._parts.store.path

    def _watch_source(
        self,
        name: str,
        source: SourceConfig,
        refresh: Callable[[], None],
        retry: Callable[[], None],
    ) -> None:
        # A file is read often: it is cheap, and a change by the operator takes effect early.
        every_s = source.every_s if source.file is None else min(source.every_s, FILE_EVERY_S)
        self.schedule.add(name, every_s, refresh, at_once=True)
        if every_s > RETRY_S:
            self.schedule.add(f"{name}, after a failure", RETRY_S / 2, retry)

    def _take_event(self, event: Event) -> None:
        self.accounts.take_event(event)

    def start(self) -> None:
        """Start measuring and delivering."""
        consumers = [self.accounts.record_readings]
        if self._serving is not None:
            consumers.append(self._serving.record_readings)
        self._parts.sensor.deliver_to(*consumers)
        self._parts.steps.subscribe(self._clock_was_stepped)
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
        self._parts.steps.unsubscribe(self._clock_was_stepped)
        self.schedule.stop()
        if self._probes is not None:
            self._probes.close()
        self.watching.close()
        self._parts.ledger.observe(None)
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
            self.accounts.take_event(event)

    def evaluate(self, faults: Sequence[Fault]) -> None:
        """Evaluate the alert rules, and deliver the resulting notices.

        Args:
            faults: The current faults.
        """
        if self.watching.tick(faults):
            self.notifying.wake()
        self.notifying.send_unstored(self.watching.unstored())

    def status(self) -> dict[str, Any]:
        """Return the status of each part; the same keys as EMPTY_STATUS of `current_runtime`."""
        return {
            "probes": self._probes.status(self.schedule) if self._probes is not None else [],
            "services": self._serving.status() if self._serving else [],
            "kubernetes": self._serving.pods_status() if self._serving else {},
            "jobs": {name: record.document() for name, record in self.schedule.records.items()},
            "sinks": self.delivery.status(),
            "notifiers": self.notifying.status(),
            "alerting": self.watching.status(),
            "spot_prices": self.spots.status(),
            "carbon": self.carbon.status(),
            "budgets": self._budgets.status() if self._budgets is not None else [],
        }

    def _take_containers(self, containers: Sequence[Claimant]) -> None:
        """Label the rows of the containers of this node, and let alerts concern them."""
        for container in containers:
            self._labels.add_service(container.name, container.labels)
        self.watching.set_containers([container.name for container in containers])


def watched_sections(config: Config) -> WatchedSections:
    """Return what rules and detectors use of a configuration."""
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
    )
