"""One service: scrapes its servers, closes its windows, and computes its rolling cost."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

from costprobe import __version__
from costprobe.adapters.net.secret import credentials_folder
from costprobe.adapters.serving.fetch import MetricsFetcher
from costprobe.adapters.serving.meter import Scrape, ServiceMeter
from costprobe.adapters.serving.model_names import ModelNames
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.serving.tenants import TenantNames, tenants_endpoint, tenants_engine
from costprobe.app.accounting.calibration_in_force import Calibrated, CalibrationInForce
from costprobe.app.accounting.ledger import Ledger, restored
from costprobe.app.accounting.window_document import last_window, window_document
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Energy, Event, Point
from costprobe.domain.costing.probe.rolling import WINDOWS_S
from costprobe.domain.costing.serving.model_size import size_of
from costprobe.domain.costing.serving.served import ServedWindow
from costprobe.domain.costing.serving.serving_basis import ServiceCost
from costprobe.domain.costing.serving.serving_rolling import RolledRatio, RollingRatio
from costprobe.domain.costing.serving.tenants import TenantSplit
from costprobe.domain.costing.serving.token_weights import TokenWeighing, Weights, decode_batch

logger = logging.getLogger(__name__)

# Rows of `cost` of a service in a currency since a UTC ns, in any order.
History = Callable[[str, str, int], Iterable[Point]]
# Values of a tag with rows of a measurement of a service, and UTC in ns of their newest rows.
Known = Callable[[str, str, str], Mapping[str, int]]


class StoredRows(NamedTuple):
    """Questions about stored rows.

    Attributes:
        history: Rows from which the rolling windows are filled after a start.
        known: Served models and tenants that already have series.
        calibrated: The calibration of a service.
    """

    history: History
    known: Known
    calibrated: Calibrated


class ServedService:
    """One service: a meter that one thread uses at a time, and its last window.

    Attributes:
        config: The service.
        lock: Held while its servers are scraped.

    Args:
        config: The service.
        clock: The host's clocks.
        edge_ns: CLOCK_MONOTONIC ns of the start of the current window, the same for all services
            that share a device.
        on_event: Receives the event of an endpoint that cannot be read, and of its recovery.
        stored: Reads the store.
        ledger: Keeps the last window for a restart or a reload.
    """

    def __init__(
        self,
        config: ServiceConfig,
        clock: Clock,
        edge_ns: Callable[[], int],
        on_event: Callable[[Event], None],
        stored: StoredRows,
        *,
        ledger: Ledger,
    ) -> None:
        self.config = config
        self._clock = clock
        self._on_event = on_event
        self._history = stored.history
        self._calibration = CalibrationInForce(config, stored.calibrated)
        credentials = credentials_folder(os.environ)
        self._meter = ServiceMeter(
            config,
            MetricsFetcher(config, credentials),
            edge_ns,
            clock.time_ns,
            ModelNames(clock.time_ns, stored.known("serving", "served_model", config.name)),
        )
        self._tenants: ServiceMeter | None = None
        if config.tenants is not None:
            endpoint = tenants_endpoint(config, config.tenants)
            self._tenants = ServiceMeter(
                endpoint,
                MetricsFetcher(endpoint, credentials),
                edge_ns,
                clock.time_ns,
                TenantNames(
                    config.tenants, clock.time_ns, stored.known("tenant", "tenant", config.name)
                ),
                tenants_engine(config.tenants),
            )
        self.lock = Lock()
        self._scrape: Scrape | None = None
        # UTC ns of the last scrape without problems.
        self._read_ns: int | None = None
        self._rolling: dict[str, RollingRatio] = {}
        self._ledger = ledger
        self._last = restored(ledger, self._state, last_window)
        self._is_stopped = False

    @property
    def name(self) -> str:
        """Name of the service."""
        return self.config.name

    @property
    def _state(self) -> str:
        return f"service {self.name}"

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
            else Weights(config.weight_in, config.weight_out),
            size=None if config.parameters is None else size_of(config.parameters),
            batch=decode_batch(window.total, busy_s, len(config.url)),
            calibrated=self._calibration.for_window(window),
        )

    def stop(self) -> None:
        """Send no further events: a scrape in progress may end after their receivers."""
        self._is_stopped = True

    def rolled(self, cost: ServiceCost, currency: str, time_ns: int) -> Mapping[str, RolledRatio]:
        """Add a window's cost, if it has one, and return the rolling cost.

        Args:
            cost: Cost of the window.
            currency: ISO 4217 code; amounts of two currencies are never added.
            time_ns: UTC in ns of its end.
        """
        rolling = self._rolling.get(currency)
        # Restarts after the wall clock was set back.
        if rolling is None or rolling.newest_ns > time_ns:
            rolling = self._rolling[currency] = self._stored_windows(currency, time_ns)
        if cost.total is not None:
            length_s = (cost.window.end_ns - cost.window.start_ns) / NS_PER_S
            inferred = cost.total.counts.inferred or 0.0
            rolling.add(time_ns, length_s, float(cost.total.cost), inferred)
        return rolling.summaries(time_ns)

    def record_window(
        self,
        cost: ServiceCost,
        rolled: Mapping[str, RolledRatio],
        currency: str,
        busy_share: float | None,
        time_ns: int,
        *,
        drawn: Energy | None,
        split: TenantSplit | None,
    ) -> None:
        """Record a window for `costprobe status`."""
        self._last = window_document(
            cost, rolled, currency, busy_share, time_ns, drawn=drawn, split=split
        )
        self._ledger.put_state(self._state, {"version": __version__, "last": self._last})

    def status(self) -> dict[str, Any]:
        """Return its status for `costprobe status`."""
        config, scrape = self.config, self._scrape
        return {
            "service": config.name,
            "engine": config.engine,
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
        rows = self._history(self.name, currency, since_ns)
        for row in sorted(rows, key=lambda row: row.time_ns):
            cost, length_s, per_inference = (
                row.fields.get(name) for name in ("cost_total", "window_s", "cost_per_inference")
            )
            if isinstance(cost, float) and isinstance(length_s, float) and row.time_ns < time_ns:
                # Without requests there is no cost per inference.
                inferred = (
                    cost / per_inference
                    if isinstance(per_inference, float) and per_inference > 0
                    else 0.0
                )
                rolling.add(row.time_ns, length_s, cost, inferred)
        return rolling

    def _take_scrape(self, scrape: Scrape) -> None:
        if self._is_stopped:
            return
        before, self._scrape = self._scrape, scrape
        now_ns = self._clock.time_ns()
        failed_before = bool(before and before.problems)
        if not scrape.problems:
            self._read_ns = now_ns
            if failed_before:
                self._on_event(
                    Event(
                        "fault",
                        "info",
                        f"service {self.name}: its counters can be read again",
                        now_ns,
                        subject={"service": self.name},
                    )
                )
        elif not failed_before:
            logger.warning("service %s: %s", self.name, "; ".join(scrape.problems))
            self._on_event(
                Event(
                    kind="fault",
                    severity="warning",
                    title=f"service {self.name}: its counters cannot be read",
                    time_ns=now_ns,
                    detail=(
                        f"{'; '.join(scrape.problems)}. The window has no cost, because its"
                        " requests are unknown."
                    ),
                    subject={"service": self.name},
                    cause="serving endpoint",
                )
            )
