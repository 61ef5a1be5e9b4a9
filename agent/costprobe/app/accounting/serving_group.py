"""Services that share devices: one window for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock

from costprobe.app.accounting.device_bill import DeviceBill
from costprobe.app.accounting.serving_devices import DeviceCosts
from costprobe.app.accounting.serving_service import ServedService
from costprobe.core.clock import Clock, row_ns
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S, Point
from costprobe.domain.costing.serving.served import ServedWindow
from costprobe.domain.costing.serving.serving_basis import service_cost
from costprobe.domain.costing.serving.serving_carbon import served_emission
from costprobe.domain.costing.serving.serving_energy import service_energy
from costprobe.domain.costing.serving.serving_points import (
    allocation_points,
    serving_cost_points,
    serving_points,
    tenant_points,
)
from costprobe.domain.costing.serving.tenants import tenant_split

MAX_AT_ONCE = 8
MAX_PENDING = 100
# Longest wait for a probe that was running when the window ended.
PROBE_PATIENCE_NS = 120 * NS_PER_S
# A window below this share of the usual length, as after a start, is merged into the next.
SHORT_SHARE = 0.1


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
        window_s: Length of the windows in s, aligned to the wall clock.
        patience_s: Longest wait for the readings, in s.
        clock: The host's clocks.
        tags: Host and static labels.
        keep: Stores rows.
        since_ns: CLOCK_MONOTONIC ns until which the devices' cost is allocated by other groups.
    """

    def __init__(
        self,
        costs: DeviceCosts,
        *,
        window_s: float,
        patience_s: float,
        clock: Clock,
        tags: Mapping[str, str],
        keep: Callable[[Sequence[Point]], None],
        since_ns: int = 0,
    ) -> None:
        self.window_s = window_s
        self.edge_ns = since_ns or clock.monotonic_ns()
        self.services: tuple[ServedService, ...] = ()
        self._costs = costs
        self._patience_ns = int(patience_s * NS_PER_S)
        self._clock = clock
        self._tags = dict(tags)
        self._keep = keep
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
        if len(self.services) <= 1:
            windows = [service.close_window() for service in self.services]
        else:
            with ThreadPoolExecutor(min(MAX_AT_ONCE, len(self.services))) as pool:
                windows = list(pool.map(ServedService.close_window, self.services))
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
        bill = self._costs.bill(pending.start_ns, pending.end_ns, time_ns - pending.end_ns)
        self._allocated_ns = pending.end_ns
        points += self._allocated(bill, time_ns)
        for service in self.services:
            points += self._served(service, pending.served[service.name], bill, time_ns)
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

    def _allocated(self, bill: DeviceBill, time_ns: int) -> list[Point]:
        lines = [line for allocation in bill.allocations.values() for line in allocation.lines]
        return allocation_points(lines, self._tags, time_ns)

    def _served(
        self, service: ServedService, window: ServedWindow, bill: DeviceBill, time_ns: int
    ) -> list[Point]:
        """Return the rows of one service."""
        devices = service.config.devices
        known_shares = [bill.busy_shares[name] for name in devices if name in bill.busy_shares]
        busy_share = (
            sum(known_shares) / len(known_shares) if len(known_shares) == len(devices) else None
        )
        weighing = service.weighing(window, busy_share)
        cost = service_cost(window, devices, bill.allocations, weighing)
        currency = bill.currency_of(devices)
        rolled = service.rolled(cost, currency, time_ns)
        plans = dict.fromkeys(bill.plans[name] for name in devices if name in bill.plans)
        emitted = served_emission(cost, bill.energy_shares, bill.emitted)
        drawn = service_energy(cost, bill.energy_shares, bill.drawn)
        split = None
        if window.tenants is not None and cost.total is not None:
            split = tenant_split(cost.total, window.tenants)
        service.record_window(cost, rolled, currency, busy_share, time_ns, drawn=drawn, split=split)
        paid = {**self._tags, "service": service.name, "currency": currency}
        return [
            *([] if split is None else tenant_points(split, paid, time_ns, drawn)),
            *serving_points(cost, busy_share, self._tags, time_ns),
            *serving_cost_points(
                cost,
                "+".join(plans),
                currency,
                rolled,
                self._tags,
                time_ns,
                emitted=emitted,
                drawn=drawn,
            ),
        ]
