"""The parts of the configuration in force: they are built, replaced, evaluated, and their status stored."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from costprobe.app.configuration import Config
from costprobe.app.delivery.retention import RETENTION_EVERY_S, Retention
from costprobe.app.watching.faults import disk_of, present_faults
from costprobe.core.records import Event, Point
from costprobe.daemon.device_watch import DeviceWatch
from costprobe.daemon.runtime import Runtime
from costprobe.daemon.self_observation import agent_point
from costprobe.daemon.shared_parts import SharedParts

logger = logging.getLogger(__name__)

# Devices' rows end at whole multiples, too: rules are evaluated after the rows of that instant.
EVALUATE_AFTER_S = 0.1
AGENT_EVERY_S = 60.0
DETECTORS_EVERY_S = 3600.0
# The longest age of the stored status.
STATUS_EVERY_S = 10.0
MAX_EARLY_EVENTS = 100
# The status before the parts are built.
EMPTY_STATUS: Final[Mapping[str, Any]] = {
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
}


class CurrentRuntime:
    """Builds the parts of a configuration, and replaces them when it or the devices change.

    Args:
        parts: The parts that are kept.
        process_status: Returns the status of the process itself.
        early: Events of the start, which are stored with the first parts.

    Attributes:
        runtime: The parts; None before the first `build`, and after `close`.
    """

    def __init__(
        self,
        parts: SharedParts,
        process_status: Callable[[], dict[str, Any]],
        early: Iterable[Event] = (),
    ) -> None:
        self.runtime: Runtime | None = None
        self._parts = parts
        self._process_status = process_status
        self._early_events = deque(early, MAX_EARLY_EVENTS)
        self._retention = Retention(parts.store, parts.ledger, parts.clock)

    def build(self, config: Config, watch: DeviceWatch) -> None:
        """Build the parts of a configuration, and add the daemon's own jobs."""
        self._parts = replace(self._parts, sensor=watch.sensor)
        runtime = Runtime(config, watch.devices, self._parts, self._parts.store.path.parent)
        self.runtime = runtime
        schedule = runtime.schedule
        schedule.add("self-observation", AGENT_EVERY_S, self._write_agent_point, at_once=True)
        schedule.add("retention", RETENTION_EVERY_S, lambda: self._retain(config))
        every_s = config.alerting.evaluate_every_s
        schedule.add(
            "alerting",
            every_s,
            self._evaluate,
            offset_s=min(EVALUATE_AFTER_S, every_s / 2),
            at_once=True,
        )
        if every_s > STATUS_EVERY_S:
            schedule.add("status", STATUS_EVERY_S, self.store_status)
        schedule.add("detectors", DETECTORS_EVERY_S, runtime.watching.keep_detectors)
        while self._early_events:
            runtime.accounts.take_event(self._early_events.popleft())
        self.store_status()

    def start(self) -> None:
        """Start the parts."""
        if self.runtime is not None:
            self.runtime.start()

    def rebuild(self, config: Config, watch: DeviceWatch) -> None:
        """Replace the parts; no reading is lost."""
        before = self.runtime
        if before is not None:
            before.stop()
        self.build(config, watch)
        self.start()
        if before is not None:
            before.close()

    def stop(self) -> None:
        """Stop the parts; readings are stored until `close`."""
        if self.runtime is not None:
            self.runtime.stop()

    def close(self) -> None:
        """Store what the parts still hold, and the last status."""
        if self.runtime is not None:
            self.runtime.close()
        self.store_status(state="stopped")
        self.runtime = None

    def take_event(self, event: Event) -> None:
        """Log an event, and store it."""
        logger.log(
            logging.INFO if event.severity == "info" else logging.WARNING,
            "%s%s",
            event.title,
            f" ({event.detail})" if event.detail else "",
        )
        if self.runtime is None:
            self._early_events.append(event)
        else:
            self.runtime.accounts.take_event(event)

    def status(self) -> dict[str, Any]:
        """Return the status of the process and of each part."""
        of_parts = self.runtime.status() if self.runtime else EMPTY_STATUS
        return {**self._process_status(), **of_parts}

    def store_status(self, **changes: object) -> None:
        """Store the status, which `costprobe status` shows even if the daemon is dead.

        Args:
            changes: Keys whose values replace those of the document.
        """
        self._parts.ledger.put_state("status", {**self.status(), **changes})

    def annotate(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Store an annotation; None while there are no parts."""
        return None if self.runtime is None else self.runtime.annotations.add(request)

    def agent_point(self) -> Point | None:
        """Return what the daemon measures of itself now; None while there are no parts."""
        if self.runtime is None:
            return None
        parts = self._parts
        return agent_point(self.runtime, parts.store, parts.sensor.restarts, parts.clock.time_ns())

    def _write_agent_point(self) -> None:
        point = self.agent_point()
        if point is not None:
            self._parts.ledger.append([point])

    def _evaluate(self) -> None:
        """Evaluate the alert rules with the present faults, and store the status that follows."""
        runtime = self.runtime
        if runtime is None:
            return
        try:
            disk = disk_of(self._parts.store.path)
        except OSError:
            disk = None
        try:
            runtime.refresh_faults()
            runtime.evaluate(present_faults(self.status(), disk))
        finally:
            self.store_status()

    def _retain(self, config: Config) -> None:
        self._retention.apply(config.store, config.telemetry.aggregate_s)
        if self.runtime is not None:
            self.runtime.delivery.keep_bounds()
