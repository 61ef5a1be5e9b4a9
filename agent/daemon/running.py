"""One configuration at work on one set of devices; a reload makes another."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Final

from agent.clock import Clock
from agent.config import Config
from agent.config_probe import ProbeConfig
from agent.config_source import SourceConfig
from agent.daemon.accounts import Accounts
from agent.daemon.carbon_feed import CarbonFeed
from agent.daemon.ledger import StoreLedger
from agent.daemon.measuring import AnyProbe, Measurer, Target
from agent.daemon.notifying import Notifying
from agent.daemon.probe_jobs import FULL_DUTY, DeviceQueue, Listeners, ProbeJob
from agent.daemon.probe_runs import ProbeRuns
from agent.daemon.pushing import Pushing
from agent.daemon.schedule import Schedule, stagger_offset_s
from agent.daemon.spot_feeds import SpotFeeds
from agent.daemon.watching import WatchedLedger, Watching
from agent.model import NS_PER_S, Device, Event, Reading
from agent.pricing.book import PriceBook
from agent.pricing.carbon import CarbonBook
from agent.storage.reader import StoreReader
from agent.storage.writer import Store
from agent.telemetry.supervisor import SensorSupervisor

if TYPE_CHECKING:  # a daemon without a service or a budget shall not carry these
    from agent.daemon.budgets import Budgets
    from agent.daemon.serving import Serving

SPARE_WORKERS = 3
BUDGETS_EVERY_S = 600.0
FILE_EVERY_S = 10.0
END_OF_TIME_NS = 2**63 - 1
# What a daemon says of its parts before they are there, and after.
NOTHING_RUNS: Final[Mapping[str, Any]] = {
    "probes": [],
    "services": [],
    "jobs": {},
    "sinks": {},
    "notifiers": {},
    "alerting": {},
    "spot_prices": {},
    "carbon": {},
    "budgets": [],
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What outlives a reload.

    Attributes:
        store: The one writer; the outbox of the sinks.
        ledger: Rows and documents, buffered.
        sensor: The sensor child's supervisor.
        clock: The host's clocks.
        listeners: Who is told of probe runs.
    """

    store: Store
    ledger: StoreLedger
    sensor: SensorSupervisor
    clock: Clock
    listeners: Listeners


class Running:
    """The jobs, books, sinks, rules and notifiers of one configuration.

    Args:
        config: The configuration.
        devices: The devices that were found.
        parts: What outlives a reload.
        lock_folder: Where the devices' locks live.
    """

    def __init__(
        self, config: Config, devices: Sequence[Device], parts: Parts, lock_folder: Path
    ) -> None:
        self._parts = parts
        self._stop = Flag()
        self.tags = {"host": host_name(config), **config.host.labels}
        self.spots = SpotFeeds(config.price, parts.ledger, parts.clock, self._take_event)
        self.carbon = CarbonFeed(config.carbon, parts.ledger, parts.clock, self._take_event)
        cpus = os.cpu_count() or 1
        book = PriceBook(config.price, config.electricity, devices, cpus, self.spots.current)
        self.watching = Watching(config, parts.store, parts.ledger, parts.clock, self.tags)
        ledger = WatchedLedger(parts.ledger, self.watching.take)
        carbon = CarbonBook(config.carbon, config.electricity, devices, self.carbon.current)
        self.accounts = Accounts(book, ledger, parts.clock, self.tags, self._cost_history, carbon)
        self._budgets = self._budgets_of(config, ledger)
        runs = ProbeRuns()
        self._measurer = Measurer(
            parts.sensor, parts.ledger, lock_folder, self._stop, parts.clock.monotonic_ns, runs
        )
        self._serving = self._serving_of(config, devices, book, carbon, runs)
        self._probe_jobs = self._jobs_of(config, devices)
        # A service's readings and its window may be due together.
        workers = len(self._probe_jobs) + 2 * len(config.service) + SPARE_WORKERS
        self.schedule = Schedule(workers=workers)
        self.pushing = Pushing(config.sink, parts.store, self._stop, self.tags["host"])
        self.notifying = Notifying(
            config.notifier,
            parts.store,
            parts.clock,
            self._stop,
            self.watching.firing_for,
            self.tags,
        )
        self._add_jobs(config)

    def _add_jobs(self, config: Config) -> None:
        """Puts on the schedule what this configuration asks for."""
        for job in self._probe_jobs:
            self.schedule.add(
                job.name,
                job.probe.every_s,
                job,
                offset_s=stagger_offset_s(self.tags["host"], job.probe.stagger_s),
                at_once=config.probing.duty >= FULL_DUTY or not self._ran_lately(job),
            )
        if self._budgets is not None:
            self.schedule.add("budgets", BUDGETS_EVERY_S, self._budgets.refresh, at_once=True)
        for served in self._serving.jobs() if self._serving else ():
            self.schedule.add(served.name, served.every_s, served.run, at_once=served.at_once)
        for plan in self.spots.plans:
            self._follow(f"spot price {plan.name}", plan, partial(self.spots.refresh, plan.name))
        if self.carbon.source is not None:
            self._follow("carbon intensity", self.carbon.source, self.carbon.refresh)

    @property
    def store_path(self) -> Path:
        """The store that everything is kept in."""
        return self._parts.store.path

    def _follow(self, name: str, source: SourceConfig, refresh: Callable[[], None]) -> None:
        # A file is cheap to look at, and an operator who writes one looks at the result.
        every_s = source.every_s if source.file is None else min(source.every_s, FILE_EVERY_S)
        self.schedule.add(name, every_s, refresh, at_once=True)

    def _take_event(self, event: Event) -> None:
        self.accounts.take_event(event)

    def start(self) -> None:
        """Begins to measure and to push."""
        self.pushing.start()
        self.notifying.start()
        if self._serving is not None:
            self._serving.begin()
        self.schedule.start()

    def stop(self) -> None:
        """Ends what runs; children of probes are killed, what is stored stays to be sent."""
        self._stop.set()
        self.schedule.stop()
        self._measurer.close()
        if self._serving is not None:
            self._serving.stop()
        self.watching.close()
        self.notifying.stop()
        self.pushing.stop()

    def take_readings(self, readings: Sequence[tuple[Reading, Device]]) -> None:
        """Keeps devices' readings, in one commit, and bills services by them."""
        self.accounts.take_readings(readings)
        if self._serving is not None:
            for reading, _ in readings:
                self._serving.take_reading(reading)

    def status(self) -> dict[str, Any]:
        """What each part last said; the same keys as NOTHING_RUNS."""
        return {
            "probes": [job.status() for job in self._probe_jobs],
            "services": self._serving.status() if self._serving else [],
            "jobs": {name: record.document() for name, record in self.schedule.records.items()},
            "sinks": self.pushing.status(),
            "notifiers": self.notifying.status(),
            "alerting": self.watching.status(),
            "spot_prices": self.spots.status(),
            "carbon": self.carbon.status(),
            "budgets": self._budgets.status() if self._budgets is not None else [],
        }

    def _budgets_of(self, config: Config, ledger: WatchedLedger) -> Budgets | None:
        if not config.budget:
            return None
        # Here, and not at the top: a daemon without a budget shall not carry it.
        from agent.daemon.budgets import Budgets  # noqa: PLC0415

        return Budgets(
            config,
            ledger,
            self._parts.store.path,
            self._parts.clock,
            self.tags,
            on_event=self._take_event,
            stop=self._stop,
        )

    def _serving_of(
        self,
        config: Config,
        devices: Sequence[Device],
        book: PriceBook,
        carbon: CarbonBook,
        runs: ProbeRuns,
    ) -> Serving | None:
        if not config.service:
            return None
        # Here, and not at the top: a daemon without a service shall not carry it.
        from agent.daemon.serving import Serving, Surroundings  # noqa: PLC0415

        around = Surroundings(
            book=book,
            runs=runs,
            clock=self._parts.clock,
            tags=self.tags,
            keep=self.accounts.keep,
            on_event=self._take_event,
            store_path=self._parts.store.path,
            carbon=carbon,
        )
        return Serving(config, devices, around)

    def _jobs_of(self, config: Config, devices: Sequence[Device]) -> list[ProbeJob]:
        queues = {device.name: DeviceQueue(config.probing.duty) for device in devices}
        return [
            ProbeJob(
                probe,
                target,
                [queues[device.name] for device in target.devices],
                self._measurer,
                self.accounts,
                clock=self._parts.clock,
                listeners=self._parts.listeners,
            )
            for probe in config.probe
            for target in targets(probe, devices)
        ]

    def _ran_lately(self, job: ProbeJob) -> bool:
        """True if a probe's last sample is younger than its period: a restart needs no other."""
        since_ns = self._parts.clock.time_ns() - int(job.probe.every_s * NS_PER_S)
        tags = {"device": job.target.name, "probe": job.probe.name}
        with closing(StoreReader.open(self._parts.store.path)) as reader:
            return any(reader.points("probe", since_ns, END_OF_TIME_NS, tags))

    def _cost_history(
        self, device: str, probe: str, currency: str, since_ns: int
    ) -> Iterable[tuple[int, float]]:
        tags = {"device": device, "probe": probe, "basis": "probe", "currency": currency}
        with closing(StoreReader.open(self._parts.store.path)) as reader:
            found = reader.values("cost", "cost_per_inference", since_ns, END_OF_TIME_NS, tags)
        return sorted(
            (time_ns, value)
            for series in found
            for time_ns, value in zip(series.times_ns, series.values, strict=True)
        )


def targets(probe: AnyProbe, devices: Sequence[Device]) -> list[Target]:
    """What a probe runs on: each of its devices by itself, or for a server all of them as one.

    A board that is divided into MIG devices runs nothing itself.
    """
    divided = {device.parent for device in devices}
    wanted = [
        device
        for device in devices
        if (device.name in probe.devices if probe.devices != "all" else device.name not in divided)
    ]
    if isinstance(probe, ProbeConfig):
        return [Target((device,)) for device in wanted]
    return [Target(tuple(wanted))] if wanted else []


def host_name(config: Config) -> str:
    """The tag `host`: as configured, else the host's own name."""
    return config.host.name or socket.gethostname()
