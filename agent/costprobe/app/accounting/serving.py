"""Serving cost: scrapes services, and allocates their devices' cost for each window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from threading import Lock
from typing import Any

from costprobe.adapters.kubernetes.settings import KubernetesConfig
from costprobe.adapters.sensors.settings import TelemetryConfig
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.accounting.claimant import Claimant, Grouping, grouped
from costprobe.app.accounting.device_log import DeviceLog, longest_gap_s
from costprobe.app.accounting.pods import Pods
from costprobe.app.accounting.serving_devices import DeviceCosts
from costprobe.app.accounting.serving_group import ServingGroup
from costprobe.app.accounting.serving_processes import ProcessOwners
from costprobe.app.accounting.serving_service import ServedService, StoredRows
from costprobe.app.accounting.surroundings import Surroundings
from costprobe.app.schedule import Schedule
from costprobe.core.records import END_OF_TIME_NS, Device, Point, Reading
from costprobe.domain.costing.serving.stored_calibration import (
    StoredCalibration,
    stored_calibration,
)

# Interval of the check for windows that the sensors' readings cover.
SETTLE_S = 5.0
MIN_SETTLE_S = 0.25
SPARE_PATIENCE_S = 5.0


class Serving:
    """The services of a configuration and the containers of the node, and every device of the host.

    Devices without a claimant are included, so that the allocations add up to the cost of the
    host's devices.

    Args:
        services: The configured services.
        kubernetes: The section [kubernetes]; None without it.
        telemetry: The section [telemetry].
        devices: The devices of the host.
        around: The inputs of their cost.
        window_s: Length of the longest window in s.
    """

    def __init__(
        self,
        services: Sequence[ServiceConfig],
        kubernetes: KubernetesConfig | None,
        telemetry: TelemetryConfig,
        devices: Sequence[Device],
        around: Surroundings,
        *,
        window_s: float,
    ) -> None:
        self._around = around
        self._devices = tuple(devices)
        self._configured = tuple(Claimant.of(service) for service in services)
        gap_s = longest_gap_s(telemetry.every_s)
        self._window_s = window_s
        self._log = DeviceLog(self._window_s, gap_s, telemetry.every_s)
        self._owners = ProcessOwners(services, around.proc)
        self._settle_s = min(SETTLE_S, max(MIN_SETTLE_S, telemetry.aggregate_s / 2))
        self._patience_s = 2 * telemetry.aggregate_s + SPARE_PATIENCE_S
        self._lock = Lock()
        self._schedule: Schedule | None = None
        self._retired: list[ServingGroup] = []
        self._services: dict[str, ServedService] = {}
        self._group_of: dict[str, ServingGroup] = {}
        self._groups: dict[Grouping, ServingGroup] = {}
        self._form(grouped(self._configured, self._devices), 0)
        self._pods_every_s = kubernetes.every_s if kubernetes else 0.0
        self._pods = (
            Pods(
                kubernetes,
                kubernetes.node or around.tags["host"],
                devices,
                services,
                around.clock,
                on_change=self.replace,
                on_event=around.on_event,
            )
            if kubernetes
            else None
        )

    def record_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Add readings of devices to the log that bills are computed from."""
        for reading, _ in readings:
            self._log.record(reading)
            if reading.busy_by_pid_s:
                self._owners.find_owners(reading.busy_by_pid_s)

    def schedule_on(self, schedule: Schedule) -> None:
        """Add the jobs of the services and their windows to a schedule, also those of later ones."""
        self._schedule = schedule
        schedule.add("serving costs", self._settle_s, self._settle)
        for service in self._services.values():
            self._schedule_scrape(service)
        for group in self._groups.values():
            schedule.add(f"window {group.name}", group.window_s, group.close_window)
        if self._pods is not None:
            schedule.add("pods", self._pods_every_s, self._pods.refresh, at_once=True)

    def begin(self) -> None:
        """Start the first windows now."""
        for group in self._groups.values():
            group.begin()

    def replace(self, containers: Sequence[Claimant]) -> None:
        """Let other containers claim devices from now on.

        The windows of devices whose claimants change end now; all others continue.

        Args:
            containers: Those in addition to the configured services.
        """
        self._around.on_containers(containers)
        with self._lock:
            groupings = grouped([*self._configured, *containers], self._devices)
            old = [self._groups.pop(key) for key in set(self._groups) - set(groupings)]
            with ExitStack() as stack:
                for group in old:
                    stack.enter_context(group.scrapes_locked())
                now_ns = self._around.clock.monotonic_ns()
                for group in old:
                    group.close_at(now_ns)
                    group.retire()
                    self._unschedule(f"window {group.name}")
                self._retired += old
                self._form([key for key in groupings if key not in self._groups], now_ns)

    def stop(self) -> None:
        """Allocate the known cost; an incomplete window has no cost per request."""
        for group in (*self._retired, *self._groups.values()):
            group.stop()

    def status(self) -> list[dict[str, Any]]:
        """Return the status of each service for `costprobe status`."""
        return [service.status() for service in list(self._services.values())]

    def pods_status(self) -> dict[str, Any]:
        """Return the status of the node's pods; empty without [kubernetes]."""
        return self._pods.status() if self._pods is not None else {}

    def _settle(self) -> None:
        with self._lock:
            groups = [*self._retired, *self._groups.values()]
        for group in groups:
            group.settle()
        with self._lock:
            self._retired = [group for group in self._retired if not group.is_settled]

    def _form(self, groupings: Iterable[Grouping], since_ns: int) -> None:
        """Form groups whose windows begin at a CLOCK_MONOTONIC ns; 0 for now."""
        claimed = {claimant.name: claimant for key in self._groups for claimant in key.claimants}
        for key in groupings:
            claimed |= {claimant.name: claimant for claimant in key.claimants}
            group = self._groups[key] = self._group(key, since_ns)
            group.services = tuple(
                self._service(claimant.service, group)
                for claimant in key.claimants
                if claimant.service is not None
            )
            if self._schedule is not None:
                self._schedule.add(f"window {group.name}", group.window_s, group.close_window)
        for name in set(self._services) - set(claimed):
            self._services.pop(name).stop()
            self._unschedule(f"service {name}")

    def _group(self, key: Grouping, since_ns: int) -> ServingGroup:
        around = self._around
        costs = DeviceCosts(
            key.devices,
            key.claimants,
            charges=around.charges,
            log=self._log,
            runs=around.runs,
            owners=self._owners,
            clock=around.clock,
            carbon=around.carbon,
        )
        return ServingGroup(
            costs,
            window_s=min((claimant.window_s for claimant in key.claimants), default=self._window_s),
            patience_s=self._patience_s,
            clock=around.clock,
            tags=around.tags,
            keep=around.ledger.append,
            since_ns=since_ns,
        )

    def _service(self, config: ServiceConfig, group: ServingGroup) -> ServedService:
        """Return the meter of a service: the one that it has, unless its configuration changed."""
        name = config.name
        self._group_of[name] = group
        served = self._services.get(name)
        if served is None or served.config != config:
            served = ServedService(
                config,
                self._around.clock,
                lambda: self._group_of[name].edge_ns,
                self._around.on_event,
                StoredRows(self._history, self._known, self._calibrated),
                ledger=self._around.ledger,
            )
            if name in self._services:
                self._services[name].stop()
                self._unschedule(f"service {name}")
            self._services[name] = served
            if self._schedule is not None:
                self._schedule_scrape(served)
        return served

    def _schedule_scrape(self, service: ServedService) -> None:
        if self._schedule is not None:
            self._schedule.add(
                f"service {service.name}", service.config.every_s, service.scrape, at_once=True
            )

    def _unschedule(self, job: str) -> None:
        if self._schedule is not None:
            self._schedule.remove(job)

    def _known(self, measurement: str, tag: str, service: str) -> Mapping[str, int]:
        """Return the values of a tag with rows of a service, and UTC in ns of the newest."""
        with closing(StoreReader.open(self._around.store_path)) as reader:
            rows = reader.last(measurement, self._around.clock.time_ns(), {"service": service})
        return {row.tags.get(tag, ""): row.time_ns for row in rows}

    def _calibrated(self, service: str) -> tuple[StoredCalibration | None, str | None]:
        """Return the newest calibration of a service, and the newest fingerprint of its probe."""
        now_ns = self._around.clock.time_ns()
        with closing(StoreReader.open(self._around.store_path)) as reader:
            row = _newest(reader.last("calibration", now_ns, {"service": service}))
            found = None if row is None else stored_calibration(row)
            if found is None:
                return None, None
            run = _newest(reader.last("probe", now_ns, {"probe": found.probe}))
        fingerprint = None if run is None else run.fields.get("fingerprint")
        return found, fingerprint if isinstance(fingerprint, str) else None

    def _history(self, service: str, currency: str, since_ns: int) -> Sequence[Point]:
        tags = {"service": service, "basis": "serving", "currency": currency}
        with closing(StoreReader.open(self._around.store_path)) as reader:
            rows = reader.points("cost", since_ns, END_OF_TIME_NS, tags)
            return [row for row in rows if "served_model" not in row.tags]


def _newest(rows: Sequence[Point]) -> Point | None:
    return max(rows, key=lambda row: row.time_ns, default=None)
