"""Serving cost: scrapes services, and allocates their devices' cost for each window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costprobe.adapters.serving.device_checks import board_of
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.accounting.device_charges import DeviceCharges
from costprobe.app.accounting.device_log import DeviceLog, longest_gap_s
from costprobe.app.accounting.ledger import Ledger
from costprobe.app.accounting.price_files import EVERY_S, PriceFile
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.app.accounting.serving_devices import DeviceCosts
from costprobe.app.accounting.serving_group import ServingGroup
from costprobe.app.accounting.serving_processes import ProcessOwners
from costprobe.app.accounting.serving_service import ServedService
from costprobe.app.configuration import Config
from costprobe.core.clock import Clock
from costprobe.core.records import Device, Event, Point, Reading
from costprobe.domain.pricing.carbon import NO_CARBON, CarbonBook

END_OF_TIME_NS = 2**63 - 1
# Interval of the check for windows that the sensors' readings cover.
SETTLE_S = 5.0
MIN_SETTLE_S = 0.25
SPARE_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Job:
    """A periodic job for the schedule.

    Attributes:
        name: Unique name.
        every_s: Period in seconds, aligned to the wall clock.
        run: The work.
        at_once: Whether to run it at the start as well.
    """

    name: str
    every_s: float
    run: Callable[[], None]
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The inputs of the services' cost.

    Attributes:
        charges: What the devices cost, by their readings.
        runs: Probe runs.
        clock: The host's clocks.
        tags: Host and static labels.
        ledger: Stores rows, and the last window of each service.
        on_event: Stores events.
        store_path: The store, from which rolling costs are restored.
        proc: Root of the proc file system.
        carbon: Carbon intensities.
    """

    charges: DeviceCharges
    runs: ProbeRuns
    clock: Clock
    tags: Mapping[str, str]
    ledger: Ledger
    on_event: Callable[[Event], None]
    store_path: Path
    proc: Path = Path("/proc")
    carbon: CarbonBook = NO_CARBON


class Serving:
    """The services of a configuration, and every device of the host.

    Devices that no service claims are included, so that the allocations add up to the cost of the
    host's devices.

    Args:
        config: With at least one service.
        devices: The devices of the host.
        around: The inputs of their cost.
    """

    def __init__(self, config: Config, devices: Sequence[Device], around: Surroundings) -> None:
        services = config.service
        self._around = around
        gap_s = longest_gap_s(config.telemetry.every_s)
        longest_s = max(service.window_s for service in services)
        self._log = DeviceLog(longest_s, gap_s, config.telemetry.every_s)
        self._owners = ProcessOwners(services, around.proc)
        self._settle_s = min(SETTLE_S, max(MIN_SETTLE_S, config.telemetry.aggregate_s / 2))
        patience_s = 2 * config.telemetry.aggregate_s + SPARE_PATIENCE_S
        models = {service.name: service.model for service in services if service.model}
        self._price_files = [
            PriceFile(settings, models, around.store_path, around.clock)
            for settings in config.price_file
        ]
        self._groups = [
            self._group(together, held, services, patience_s)
            for together, held in grouped(services, devices)
        ]

    def record_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Add readings of devices to the log that bills are computed from."""
        for reading, _ in readings:
            self._log.record(reading)
            if reading.busy_by_pid_s:
                self._owners.find_owners(reading.busy_by_pid_s)

    def jobs(self) -> list[Job]:
        """Return the jobs for the schedule."""
        jobs = [Job("serving costs", self._settle_s, self._settle)]
        for group in self._groups:
            jobs += [
                Job(f"service {service.name}", service.config.every_s, service.scrape, at_once=True)
                for service in group.services
            ]
            jobs.append(Job(f"window {group.name}", group.window_s, group.close_window))
        jobs += [Job(file.name, EVERY_S, file.write, at_once=True) for file in self._price_files]
        return jobs

    def begin(self) -> None:
        """Start the first windows now."""
        for group in self._groups:
            group.begin()

    def stop(self) -> None:
        """Allocate the known cost; an incomplete window has no cost per request."""
        for group in self._groups:
            group.stop()

    def status(self) -> list[dict[str, Any]]:
        """Return the status of each service for `costprobe status`."""
        return [service.status() for group in self._groups for service in group.services]

    def _settle(self) -> None:
        for group in self._groups:
            group.settle()

    def _group(
        self,
        together: Sequence[ServiceConfig],
        devices: Sequence[Device],
        services: Sequence[ServiceConfig],
        patience_s: float,
    ) -> ServingGroup:
        around = self._around
        costs = DeviceCosts(
            devices,
            together,
            charges=around.charges,
            log=self._log,
            runs=around.runs,
            owners=self._owners,
            clock=around.clock,
            carbon=around.carbon,
        )
        group = ServingGroup(
            costs,
            window_s=min(service.window_s for service in together or services),
            patience_s=patience_s,
            clock=around.clock,
            tags=around.tags,
            keep=around.ledger.append,
        )
        group.services = tuple(
            ServedService(
                service,
                around.clock,
                lambda: group.edge_ns,
                around.on_event,
                self._history,
                self._served(service.name),
                ledger=around.ledger,
            )
            for service in together
        )
        return group

    def _served(self, service: str) -> Mapping[str, int]:
        """Return the served models with rows of a service, and UTC in ns of the newest."""
        with closing(StoreReader.open(self._around.store_path)) as reader:
            rows = reader.last("serving", self._around.clock.time_ns(), {"service": service})
        return {row.tags.get("served_model", ""): row.time_ns for row in rows}

    def _history(self, service: str, currency: str, since_ns: int) -> Sequence[Point]:
        tags = {"service": service, "basis": "serving", "currency": currency}
        with closing(StoreReader.open(self._around.store_path)) as reader:
            rows = reader.points("cost", since_ns, END_OF_TIME_NS, tags)
            return [row for row in rows if "served_model" not in row.tags]


def grouped(
    services: Sequence[ServiceConfig], devices: Sequence[Device]
) -> list[tuple[list[ServiceConfig], list[Device]]]:
    """Group services that share devices or boards; the last group is the unclaimed devices.

    Args:
        services: The services.
        devices: The host's devices.
    """
    groups: list[tuple[list[ServiceConfig], set[str]]] = []
    for service in services:
        boards = {board_of(name) for name in service.devices}
        joined = [group for group in groups if group[1] & boards]
        groups = [group for group in groups if not group[1] & boards]
        members = [member for group in joined for member in group[0]]
        groups.append(([*members, service], boards.union(*(group[1] for group in joined))))
    grouped_services = [
        (together, [device for device in devices if board_of(device.name) in boards])
        for together, boards in groups
    ]
    claimed = {device.name for _, held in grouped_services for device in held}
    unclaimed = [device for device in devices if device.name not in claimed]
    return [*grouped_services, ([], unclaimed)] if unclaimed else grouped_services
