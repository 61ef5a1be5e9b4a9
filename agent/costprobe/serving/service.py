"""Services scraped, windows closed, and the cost of their devices allocated for each window.

Services that share devices have one window for all of them. The rolling cost of a service is
computed here as well.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from costprobe import __version__
from costprobe.adapters.engines.scrape import MetricsFetcher, ModelNames
from costprobe.adapters.kubernetes.api_server import KubernetesConfig
from costprobe.adapters.store.ledger import restored
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import row_ns
from costprobe.core.columns import number
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S, Device, Event, Point, Reading
from costprobe.core.statistics import WINDOWS_S
from costprobe.devices.settings import TelemetryConfig
from costprobe.devices.use import DeviceLog, longest_gap_s
from costprobe.serving.allocation import DeviceBill
from costprobe.serving.cost import (
    RollingRatio,
    ServiceCost,
    busy_share,
    service_cost,
)
from costprobe.serving.device_costs import (
    Claimant,
    DeviceCosts,
    Grouping,
    ProcessOwners,
    Surroundings,
    grouped,
)
from costprobe.serving.meter import (
    MAX_AT_ONCE,
    Scrape,
    ServedWindow,
    ServiceMeter,
    TenantNames,
    tenants_endpoint,
    tenants_engine,
)
from costprobe.serving.pods import Pods
from costprobe.serving.rows import (
    allocation_points,
    last_window,
    window_document,
    window_points,
)
from costprobe.serving.settings import ServiceConfig, size_of
from costprobe.serving.tokens import (
    CalibrationInForce,
    StoredCalibration,
    TokenWeighing,
    Weights,
    decode_batch,
    stored_calibration,
)

if TYPE_CHECKING:  # apscheduler takes time, and commands run no jobs
    from costprobe.adapters.host.schedule import Schedule

logger = logging.getLogger(__name__)

MAX_PENDING = 100
# Longest wait for a probe that was running when the window ended.
PROBE_PATIENCE_NS = 120 * NS_PER_S
# A window below this share of the usual length, as after a start, is merged into the next.
SHORT_SHARE = 0.1
# Interval of the check for windows that the sensors' readings cover.
SETTLE_S = 5.0
MIN_SETTLE_S = 0.25
SPARE_PATIENCE_S = 5.0


def _newest(rows: Sequence[Point]) -> Point | None:
    return max(rows, key=lambda row: row.time_ns, default=None)


class ServedService:
    """One service: a meter that one thread uses at a time, and its last window.

    Attributes:
        config: The service.
        name: Its name.
        lock: Held while its servers are scraped.

    Args:
        config: The service.
        around: The host's clocks, and what receives events and the last window.
        edge_ns: CLOCK_MONOTONIC ns of the start of the current window, the same for all services
            that share a device.
    """

    def __init__(
        self,
        config: ServiceConfig,
        around: Surroundings,
        edge_ns: Callable[[], int],
    ) -> None:
        self.config = config
        self.name = config.name
        self._state = f"service {self.name}"
        self._clock = clock = around.clock
        self._on_event = around.on_event
        self._store_path = around.store_path
        self._calibration = CalibrationInForce(config, self._calibrated)
        self._meter = ServiceMeter(
            config,
            MetricsFetcher(config),
            edge_ns,
            clock.time_ns,
            ModelNames(clock.time_ns, self._known("serving", "served_model")),
        )
        self._tenants: ServiceMeter | None = None
        if config.tenants is not None:
            endpoint = tenants_endpoint(config, config.tenants)
            self._tenants = ServiceMeter(
                endpoint,
                MetricsFetcher(endpoint),
                edge_ns,
                clock.time_ns,
                TenantNames(config.tenants, clock.time_ns, self._known("tenant", "tenant")),
                tenants_engine(config.tenants),
            )
        self.lock = Lock()
        self._scrape: Scrape | None = None
        # UTC ns of the last scrape without problems.
        self._read_ns: int | None = None
        self._rolling: dict[str, RollingRatio] = {}
        self._ledger = around.ledger
        self._last = restored(self._ledger, self._state, last_window)
        self._is_stopped = False

    def scrape(self) -> None:
        """Scrape its servers, unless its window is being closed."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self._take_scrape(self._meter.scrape())
            if self._tenants is not None:
                # A failure is a problem of the window, in which no cost can be attributed.
                self._tenants.scrape()
        finally:
            self.lock.release()

    def close_window(self) -> ServedWindow:
        """Scrape its servers and end its window; the caller holds `lock`."""
        window = self._meter.close_window()
        if self._tenants is None:
            return window
        return replace(window, tenants=self._tenants.close_window())

    def weighing(self, window: ServedWindow, busy_share: float | None) -> TokenWeighing:
        """Return how the tokens of a window are weighed.

        Args:
            window: What it served.
            busy_share: Share of the window in which its devices were busy; None where not known,
                which counts as all of it.
        """
        config = self.config
        length_s = (window.end_ns - window.start_ns) / NS_PER_S
        busy_s = length_s if busy_share is None else length_s * busy_share
        return TokenWeighing(
            configured=None
            if config.weight_out is None
            else Weights(1.0, config.weight_out, config.weight_cached),
            size=None if config.parameters is None else size_of(config.parameters),
            batch=decode_batch(window.total, busy_s, len(config.url)),
            calibrated=self._calibration.for_window(window),
        )

    def stop(self) -> None:
        """Send no further events: a scrape in progress may end after their receivers."""
        self._is_stopped = True

    def complete(self, cost: ServiceCost) -> ServiceCost:
        """Add the rolling cost to a window, and record it for `costprobe status`."""
        rolling, time_ns = self._rolling.get(cost.currency), cost.time_ns
        # Amounts of two currencies are never added. Restarts after the wall clock was set back.
        if rolling is None or rolling.newest_ns > time_ns:
            rolling = self._rolling[cost.currency] = self._stored_windows(cost.currency, time_ns)
        if cost.total is not None:
            inferred = 0.0 if self.config.is_part else cost.total.counts.inferred or 0.0
            rolling.add(time_ns, cost.length_s, float(cost.total.cost), inferred)
        cost = replace(cost, rolled=rolling.summaries(time_ns))
        self._last = window_document(cost)
        self._ledger.put_state(self._state, {"version": __version__, "last": self._last})
        return cost

    def status(self) -> dict[str, Any]:
        """Return its status for `costprobe status`."""
        config, scrape = self.config, self._scrape
        return {
            "service": config.name,
            "engine": config.engine,
            "group": config.group,
            "role": config.role,
            "devices": list(config.devices),
            "window_s": config.window_s,
            "read_ns": self._read_ns,
            "missing": list(scrape.missing) if scrape else [],
            "fault": "; ".join(scrape.problems) or None if scrape else None,
            "calibration": self._calibration.status(),
            "last": self._last,
        }

    def _stored_windows(self, currency: str, time_ns: int) -> RollingRatio:
        """Return the rolling windows, filled from the stored rows."""
        rolling = RollingRatio()
        since_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        tags = {"service": self.name, "basis": "serving", "currency": currency}
        with closing(StoreReader.open(self._store_path)) as reader:
            points = reader.points("cost", since_ns, END_OF_TIME_NS, tags)
            rows = [row for row in points if "served_model" not in row.tags]
        for row in sorted(rows, key=lambda row: row.time_ns):
            cost, length_s = number(row, "cost_total"), number(row, "window_s")
            if cost is not None and length_s is not None and row.time_ns < time_ns:
                rolling.add(row.time_ns, length_s, cost, number(row, "inferences") or 0.0)
        return rolling

    def _known(self, measurement: str, tag: str) -> Mapping[str, int]:
        """Return the values of a tag, of models or tenants, and UTC in ns of their newest rows."""
        with closing(StoreReader.open(self._store_path)) as reader:
            rows = reader.last(measurement, self._clock.time_ns(), {"service": self.name})
        return {row.tags.get(tag, ""): row.time_ns for row in rows}

    def _calibrated(self, service: str) -> tuple[StoredCalibration | None, str | None]:
        """Return the newest calibration of the service, and the newest fingerprint of its probe."""
        now_ns = self._clock.time_ns()
        with closing(StoreReader.open(self._store_path)) as reader:
            row = _newest(reader.last("calibration", now_ns, {"service": service}))
            found = None if row is None else stored_calibration(row)
            if found is None:
                return None, None
            run = _newest(reader.last("probe", now_ns, {"probe": found.probe}))
        fingerprint = None if run is None else run.fields.get("fingerprint")
        return found, fingerprint if isinstance(fingerprint, str) else None

    def _take_scrape(self, scrape: Scrape) -> None:
        if self._is_stopped:
            return
        before, self._scrape = self._scrape, scrape
        now_ns = self._clock.time_ns()
        if not scrape.problems:
            self._read_ns = now_ns
        if bool(before and before.problems) == bool(scrape.problems):
            return
        title, detail = f"service {self.name}: its counters can be read again", ""
        if scrape.problems:
            problems = "; ".join(scrape.problems)
            logger.warning("service %s: %s", self.name, problems)
            title = f"service {self.name}: its counters cannot be read"
            detail = f"{problems}. The window has no cost, because its requests are unknown."
        self._on_event(
            Event(
                kind="fault",
                severity="warning" if scrape.problems else "info",
                title=title,
                time_ns=now_ns,
                detail=detail,
                subject={"service": self.name},
                cause="serving endpoint" if scrape.problems else "",
            )
        )


@dataclass(frozen=True, slots=True)
class _Pending:
    """A window whose readings are not complete yet.

    `time_ns` is the UTC ns of its end by the wall clock of that moment, which may be stepped
    before the window is allocated.
    """

    start_ns: int
    end_ns: int
    time_ns: int
    served: Mapping[str, ServedWindow]


class ServingGroup:
    """Close the windows of services that share devices at one instant, and allocate their cost.

    A window's cost is known some seconds after its end, when the sensors' readings cover it.

    Args:
        costs: Cost of the devices.
        around: The host's clocks, tags of rows, and the ledger.
        window_s: Length of the windows in s, aligned to the wall clock.
        patience_s: Longest wait for the readings, in s.
        since_ns: CLOCK_MONOTONIC ns until which the devices' cost is allocated by other groups.
    """

    def __init__(
        self,
        costs: DeviceCosts,
        around: Surroundings,
        *,
        window_s: float,
        patience_s: float,
        since_ns: int = 0,
    ) -> None:
        self.window_s = window_s
        self.edge_ns = since_ns or around.clock.monotonic_ns()
        self.services: tuple[ServedService, ...] = ()
        self._costs = costs
        self._patience_ns = int(patience_s * NS_PER_S)
        self._clock = around.clock
        self._tags = around.tags
        self._keep = around.ledger.append
        self._pending: deque[_Pending] = deque()
        # Until this CLOCK_MONOTONIC ns the devices' charges are allocated.
        self._allocated_ns = since_ns
        self._outside_until_ns = END_OF_TIME_NS
        self._is_stopped = False
        self._lock = Lock()

    @property
    def name(self) -> str:
        """Names of its services, or its devices if there are none."""
        names = "+".join(service.name for service in self.services)
        return names or "+".join(device.name for device in self._costs.devices)

    def begin(self) -> None:
        """Start the first window now."""
        self.edge_ns = self._clock.monotonic_ns()

    def close_window(self) -> None:
        """End the window of all services at one instant; its cost is allocated once it is known."""
        with self.scrapes_locked():
            now_ns = self._clock.monotonic_ns()
            if now_ns - self.edge_ns < SHORT_SHARE * self.window_s * NS_PER_S:
                return
            self.close_at(now_ns)
        self.settle()

    @contextmanager
    def scrapes_locked(self) -> Iterator[None]:
        """Wait for scrapes in progress, and start none: a slow one would delay a window's end."""
        with ExitStack() as stack:
            for service in self.services:
                stack.enter_context(service.lock)
            yield

    def close_at(self, now_ns: int) -> None:
        """End the window at a CLOCK_MONOTONIC ns; the caller holds `scrapes_locked`."""
        start_ns, self.edge_ns = self.edge_ns, now_ns
        served = self._close_all()
        with self._lock:
            self._pending.append(_Pending(start_ns, now_ns, row_ns(self._clock, now_ns), served))

    def retire(self) -> None:
        """Leave the cost after the last window to other groups."""
        self._outside_until_ns = self.edge_ns

    @property
    def is_settled(self) -> bool:
        """Whether the cost of all ended windows is allocated."""
        return not self._pending

    def settle(self) -> None:
        """Allocate the windows whose cost is known, oldest first."""
        with self._lock:
            while self._pending and not self._is_stopped and self._is_ready(self._pending[0]):
                self._bill(self._pending.popleft())

    def stop(self) -> None:
        """Allocate the known cost before the process ends.

        An incomplete window has no requests, but the devices' cost until their last reading is
        stored.
        """
        for service in self.services:
            service.stop()
        with self._lock:
            # A scrape in progress may end after this: its result is discarded.
            self._is_stopped = True
            while self._pending:
                pending = self._pending.popleft()
                if self._costs.seen_ns() < pending.end_ns:
                    self._pending.clear()
                else:
                    self._bill(pending)
            self._keep(self._outside(self._outside_until_ns))

    def _close_all(self) -> dict[str, ServedWindow]:
        """End the windows of all services concurrently, so that a slow endpoint delays no other."""
        with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
            windows = pool.map(ServedService.close_window, self.services)
            return {window.service: window for window in windows}

    def _is_ready(self, pending: _Pending) -> bool:
        age_ns = self._clock.monotonic_ns() - pending.end_ns
        is_covered = self._costs.seen_ns() >= pending.end_ns or age_ns > self._patience_ns
        is_probed = age_ns > PROBE_PATIENCE_NS or not self._costs.is_probing_before(pending.end_ns)
        return len(self._pending) > MAX_PENDING or (is_covered and is_probed)

    def _bill(self, pending: _Pending) -> None:
        """Compute the rows of a window and store them together."""
        time_ns = pending.time_ns
        points = self._outside(pending.start_ns)
        bills = self._costs.bill(pending.start_ns, pending.end_ns, time_ns - pending.end_ns)
        self._allocated_ns = pending.end_ns
        points += self._allocated(bills, time_ns)
        for service in self.services:
            window, devices = pending.served[service.name], service.config.devices
            weighing = service.weighing(window, busy_share(devices, bills))
            role = service.config.role
            cost = service_cost(window, devices, bills, weighing, time_ns, role)
            points += window_points(service.complete(cost), self._tags)
        self._keep(points)

    def _outside(self, until_ns: int) -> list[Point]:
        """Return the allocation of what was charged before a window, after the one before it.

        These are the seconds before the first window of a start, and those after the last.
        """
        charged = self._costs.charged_ns()
        if charged is None:
            return []
        start_ns, end_ns = max(charged[0], self._allocated_ns), min(charged[1], until_ns)
        if end_ns <= start_ns:
            return []
        self._allocated_ns = end_ns
        return self._allocated(self._costs.bill(start_ns, end_ns), row_ns(self._clock, end_ns))

    def _allocated(self, bills: Mapping[str, DeviceBill], time_ns: int) -> list[Point]:
        lines = [line for bill in bills.values() for line in bill.allocation.lines]
        return allocation_points(lines, self._tags, time_ns)


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
        schedule: Runs their jobs.
        window_s: Length of the longest window in s.
    """

    def __init__(
        self,
        services: Sequence[ServiceConfig],
        kubernetes: KubernetesConfig | None,
        telemetry: TelemetryConfig,
        devices: Sequence[Device],
        around: Surroundings,
        schedule: Schedule,
        *,
        window_s: float,
    ) -> None:
        self._around = around
        self._devices = tuple(devices)
        self._known = {(device.name, device.uuid) for device in devices}
        self._configured = tuple(Claimant.of(service) for service in services)
        gap_s = longest_gap_s(telemetry.every_s)
        self._window_s = window_s
        self._log = DeviceLog(self._window_s, gap_s, telemetry.every_s)
        self._owners = ProcessOwners(services, around.proc)
        settle_s = min(SETTLE_S, max(MIN_SETTLE_S, telemetry.aggregate_s / 2))
        self._patience_s = 2 * telemetry.aggregate_s + SPARE_PATIENCE_S
        self._lock = Lock()
        self._schedule = schedule
        self._retired: list[ServingGroup] = []
        self._services: dict[str, ServedService] = {}
        self._group_of: dict[str, ServingGroup] = {}
        self._groups: dict[Grouping, ServingGroup] = {}
        schedule.add("serving costs", settle_s, self._settle)
        self._form(grouped(self._configured, self._devices), 0)
        self._pods = (
            Pods(
                kubernetes,
                kubernetes.node or around.tags["host"],
                devices,
                services,
                around.clock,
                on_change=self.replace,
                on_containers=self._owners.name_containers,
                on_event=around.on_event,
            )
            if kubernetes
            else None
        )
        if kubernetes and self._pods is not None:
            schedule.add("pods", kubernetes.every_s, self._pods.refresh, at_once=True)

    def record_readings(self, readings: Iterable[tuple[Reading, Device]]) -> None:
        """Add readings of known devices to the log that bills are computed from."""
        for reading, device in readings:
            if (device.name, device.uuid) not in self._known:
                continue  # another device has the name now: these parts are about to be replaced
            by_pid_s = reading.busy_by_pid_s
            if by_pid_s:
                numbers = self._owners.find_owners(by_pid_s)
                by_pid_s = {numbers[pid]: busy_s for pid, busy_s in by_pid_s.items()}
            self._log.record(replace(reading, busy_by_pid_s=by_pid_s))

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
                    self._schedule.remove(f"window {group.name}")
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
            self._schedule.add(f"window {group.name}", group.window_s, group.close_window)
        for name in set(self._services) - set(claimed):
            self._services.pop(name).stop()
            self._schedule.remove(f"service {name}")

    def _group(self, key: Grouping, since_ns: int) -> ServingGroup:
        around = self._around
        costs = DeviceCosts(key.devices, key.claimants, around, self._log, self._owners)
        return ServingGroup(
            costs,
            around,
            window_s=min((claimant.window_s for claimant in key.claimants), default=self._window_s),
            patience_s=self._patience_s,
            since_ns=since_ns,
        )

    def _service(self, config: ServiceConfig, group: ServingGroup) -> ServedService:
        """Return the meter of a service: the one that it has, unless its configuration changed."""
        name = config.name
        self._group_of[name] = group
        served = self._services.get(name)
        if served is None or served.config != config:
            served = ServedService(config, self._around, lambda: self._group_of[name].edge_ns)
            if name in self._services:
                self._services[name].stop()
                self._schedule.remove(f"service {name}")
            self._services[name] = served
            self._schedule.add(f"service {name}", config.every_s, served.scrape, at_once=True)
        return served
