"""The daemon's life cycle: start the parts, run, reload, stop them in order."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costprobe import __version__
from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.adapters.sensors.protocol.backoff import Backoff
from costprobe.adapters.sensors.supervisor.supervisor import CHILD_COMMAND, SensorSupervisor
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.health import quarantined
from costprobe.adapters.system.signal_event import SignalFlag, SignalWakeUp
from costprobe.app.accounting.ledger import StoreLedger
from costprobe.app.configuration import Config
from costprobe.app.delivery.retention import RETENTION_EVERY_S, Retention
from costprobe.app.measuring.probe_jobs import Listeners
from costprobe.app.watching.faults import disk_of, present_faults
from costprobe.app.watching.incident_store import IncidentStore
from costprobe.core.clock import Clock
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.control_protocol import control_path
from costprobe.core.records import NS_PER_S, Device, Event, Point
from costprobe.core.units import counted
from costprobe.daemon.control.requests import ControlRequests
from costprobe.daemon.control.server import ControlServer
from costprobe.daemon.http.http_pages import HttpPages, Sources
from costprobe.daemon.reload import ReloadError, needs_new_sensor, refusal_event, reloaded
from costprobe.daemon.runtime import EMPTY_STATUS, Runtime, SharedParts
from costprobe.daemon.sd_notify import SystemdNotifier
from costprobe.daemon.self_observation import agent_point, gap_event
from costprobe.daemon.store_opening import open_store
from costprobe.daemon.watchdog import Watchdog, job_liveness
from costprobe.domain.pricing.book import Terms

logger = logging.getLogger(__name__)

# Interval at which new devices and clock steps are detected; a stop or a reload wakes the loop.
# Shorter if systemd's watchdog requires it.
TICK_S = 10.0
# Devices' rows end at whole multiples, too: rules are evaluated after the rows of that instant.
EVALUATE_AFTER_S = 0.1
AGENT_EVERY_S = 60.0
DETECTORS_EVERY_S = 3600.0
# The longest age of the stored status.
STATUS_EVERY_S = 10.0
DEVICES_TIMEOUT_S = 8.0
DEVICES_POLL_S = 0.2
# Shortest time between two rebuilds for changed devices; it doubles while they keep changing.
REBUILD_FIRST_S = 5.0
REBUILD_MAX_S = 300.0
MAX_EARLY_EVENTS = 100
SENSOR_STOP_S = 1.0


class Daemon:
    """All parts of costprobe on one host.

    Args:
        config: The configuration.
        config_path: Its file; None in demo mode, which cannot be reloaded.
        store_path: The store.
        clock: The host's clocks.
        listeners: Callbacks for probe runs.
        notifier: Sends notifications to systemd.
    """

    def __init__(
        self,
        config: Config,
        config_path: Path | None,
        store_path: Path,
        clock: Clock,
        listeners: Listeners,
        notifier: SystemdNotifier,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._config_fault: str | None = None
        self._store_path = store_path
        self._clock = clock
        self._steps = ClockMonitor(clock)
        self._listeners = Listeners(
            listeners.on_progress,
            lambda report: self._then_status(listeners.on_report, report),
            lambda *fault: self._then_status(listeners.on_fault, *fault),
        )
        self._stop = SignalFlag()
        self._reload = SignalFlag()
        self._woken = SignalWakeUp()
        self._detector = InstanceDetector()
        self._started_ns = clock.time_ns()
        self._store, damage = open_store(store_path, clock)
        self._early_events: deque[Event] = deque([damage] if damage else (), MAX_EARLY_EVENTS)
        self._ledger = StoreLedger(self._store)
        self._incidents = IncidentStore(self._store)
        self._retention = Retention(self._store, self._ledger, clock)
        self._sensor = self._new_sensor()
        self._devices: tuple[Device, ...] = ()
        self._rebuilds = Backoff(REBUILD_FIRST_S, REBUILD_MAX_S, reset_after_s=REBUILD_MAX_S)
        self._rebuild_ns = 0
        self._runtime: Runtime | None = None
        self._unstored_points = 0
        requests = ControlRequests(lambda: self._runtime, self._status)
        self._control = ControlServer(
            control_path(store_path, os.environ), requests.handlers(), self._stop
        )
        self._notifier = notifier
        self._watchdog = Watchdog(notifier, self._liveness)
        self._http = HttpPages(
            Sources(store_path, self._liveness, self._status, self._agent_point, self._annotate),
            clock,
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """The discovered devices."""
        return self._devices

    def stop_summary(self) -> str:
        """Return one sentence on where the measurements are, after `run`."""
        if not self._unstored_points:
            return f"stopped; the measurements stay in {self._store_path}"
        lost = counted(self._unstored_points, "point")
        reason = self._ledger.fault or "the store is not writable"
        return f"stopped; {lost} could not be stored and are lost: {reason}"

    def terms_now(self, device: str) -> Terms | None:
        """Return the price terms in force for a device; None without a price."""
        return self._runtime.accounts.terms_now(device) if self._runtime else None

    @property
    def wake_fd(self) -> int:
        """For `signal.set_wakeup_fd`: a signal ends the wait between two jobs."""
        return self._woken.fd

    def request_stop(self) -> None:
        """End `run`; safe in a signal handler."""
        self._stop.set()
        self._woken.set()

    def request_reload(self) -> None:
        """Make `run` reload the configuration file; safe in a signal handler."""
        self._reload.set()
        self._woken.set()

    def run(self, on_ready: Callable[[Daemon], None]) -> None:
        """Run until `request_stop`.

        Args:
            on_ready: Called once, when the devices are known and before the first probe.
        """
        try:
            self._sensor.start()
            self._devices = self._found_devices()
            self._control.open()
            self._http.serve(self._config.http)
            self._build()
            on_ready(self)
            self._start_runtime()
            self._notifier.ready(self._summary())
            tick_s = min(TICK_S, self._notifier.feed_every_s or TICK_S)
            while not self._stop.is_set():
                self._tick()
                # Jobs start at whole multiples: waking with them wakes the host once.
                wait_s = tick_s - self._clock.time_ns() / NS_PER_S % tick_s
                self._steps.expect(wait_s)
                self._woken.wait(wait_s)
                self._steps.woke()
        finally:
            self._close()

    def _found_devices(self) -> tuple[Device, ...]:
        """Wait for the sensor child's discovery, and return the devices known by then."""
        ends_ns = self._clock.monotonic_ns() + int(DEVICES_TIMEOUT_S * NS_PER_S)
        while self._clock.monotonic_ns() < ends_ns and not self._stop.is_set():
            devices = self._sensor.wait_for_devices(DEVICES_POLL_S)
            if self._sensor.has_looked():
                return devices
        return self._sensor.devices()

    def _tick(self) -> None:
        self._watchdog.beat()
        if self._reload.is_set():
            self._reload.clear()
            self._notifier.reloading()
            self._reload_config()
            self._notifier.ready(self._summary())
        self._follow_devices()
        self._steps.check()
        for gap in self._steps.gaps():
            self._on_event(gap_event(gap))

    def _follow_devices(self) -> None:
        """Rebuild the parts for changed devices, less often while they keep changing.

        A rebuild ends running probes, and MIG devices may be created and destroyed every second.
        """
        devices, now_ns = self._sensor.devices(), self._clock.monotonic_ns()
        if devices == self._devices or now_ns < self._rebuild_ns:
            return
        logger.info("the devices changed: %s", ", ".join(device.name for device in devices))
        self._rebuild_ns = now_ns + int(self._rebuilds.next_s(now_ns) * NS_PER_S)
        self._devices = devices
        self._rebuild()

    def _liveness(self) -> dict[str, bool]:
        """Return whether each part with a thread or process of its own is alive."""
        self._steps.check()
        runtime = self._runtime
        parts = {
            "sensors": self._sensor.is_alive(),
            "control socket": self._control.is_alive(),
            "http": self._http.is_alive(),
        }
        if runtime is not None:
            parts |= {**runtime.delivery.liveness(), **runtime.notifying.liveness()}
            parts |= job_liveness(runtime.schedule)
        return parts

    def _summary(self) -> str:
        """Return one line for `systemctl status`."""
        devices = counted(len(self._devices), "device")
        return f"measuring {devices} with {counted(len(self._config.probe), 'probe')}"

    def _build(self) -> None:
        """Build the parts of the configuration in force, and add the daemon's own jobs."""
        shared = SharedParts(
            self._store,
            self._ledger,
            self._incidents,
            self._sensor,
            self._clock,
            self._steps,
            self._listeners,
            self._detector,
        )
        runtime = Runtime(self._config, self._devices, shared, self._store_path.parent)
        self._runtime = runtime
        schedule = runtime.schedule
        schedule.add("self-observation", AGENT_EVERY_S, self._write_agent_point, at_once=True)
        schedule.add("retention", RETENTION_EVERY_S, self._retain)
        every_s = self._config.alerting.evaluate_every_s
        schedule.add(
            "alerting",
            every_s,
            self._evaluate,
            offset_s=min(EVALUATE_AFTER_S, every_s / 2),
            at_once=True,
        )
        if every_s > STATUS_EVERY_S:
            schedule.add("status", STATUS_EVERY_S, self._store_status)
        schedule.add("detectors", DETECTORS_EVERY_S, runtime.watching.keep_detectors)
        while self._early_events:
            runtime.accounts.take_event(self._early_events.popleft())
        self._store_status()

    def _start_runtime(self) -> None:
        if self._runtime is not None:
            self._runtime.start()

    def _rebuild(self) -> None:
        before = self._runtime
        if before is not None:
            before.stop()
        self._build()
        self._start_runtime()
        if before is not None:
            before.close()

    def _reload_config(self) -> None:
        if self._config_path is None:
            logger.warning("there is no configuration file to reload")
            return
        before = self._config
        try:
            config = reloaded(self._config_path, before)
        except ReloadError as error:
            self._config_fault = str(error)
            for line in self._config_fault.splitlines():
                logger.error("not reloaded, the old configuration stays in force: %s", line)  # noqa: TRY400 - the text is the operator's
            self._on_event(refusal_event(self._config_fault, self._clock.time_ns()))
            return
        self._config, self._config_fault = config, None
        if needs_new_sensor(before, config):
            self._sensor.stop(SENSOR_STOP_S)
            self._sensor = self._new_sensor()
            self._sensor.start()
            self._devices = self._found_devices()
        self._http.serve(config.http)
        self._rebuild()
        logger.info("%s: reloaded", self._config_path)

    def _new_sensor(self) -> SensorSupervisor:
        settings = self._config.sensor_settings
        return SensorSupervisor(CHILD_COMMAND, settings, self._on_event, self._clock)

    def _on_event(self, event: Event) -> None:
        logger.log(
            logging.INFO if event.severity == "info" else logging.WARNING,
            "%s%s",
            event.title,
            f" ({event.detail})" if event.detail else "",
        )
        if self._runtime is None:
            self._early_events.append(event)
        else:
            self._runtime.accounts.take_event(event)

    def _then_status(self, listener: Callable[..., None], *news: object) -> None:
        """Call a listener, and store the status that follows."""
        listener(*news)
        self._store_status()

    def _evaluate(self) -> None:
        """Evaluate the alert rules with the present faults, and store the status that follows."""
        runtime = self._runtime
        if runtime is None:
            return
        try:
            disk = disk_of(self._store_path)
        except OSError:
            disk = None
        try:
            runtime.refresh_faults()
            runtime.evaluate(present_faults(self._status(), disk))
        finally:
            self._store_status()

    def _status(self) -> dict[str, Any]:
        runtime = self._runtime
        return {
            "state": "running",
            "version": __version__,
            "pid": os.getpid(),
            "host": self._config.host.tag,
            "started_ns": self._started_ns,
            "config": str(self._config_path) if self._config_path else None,
            "config_fault": self._config_fault,
            "devices": [
                {"name": device.name, "kind": device.kind, "model": device.model}
                for device in self._devices
            ],
            "sensor": self._sensor.status(),
            "store": {
                "path": str(self._store_path),
                "fault": self._ledger.fault,
                "replaced": [str(path) for path in quarantined(self._store_path)],
            },
            **(runtime.status() if runtime else EMPTY_STATUS),
            "control": self._control.status(),
            "http": self._http.status(),
        }

    def _store_status(self, **changes: object) -> None:
        """Store the status, which `costprobe status` shows even if the daemon is dead.

        Args:
            changes: Keys whose values replace those of the document.
        """
        self._ledger.put_state("status", {**self._status(), **changes})

    def _write_agent_point(self) -> None:
        point = self._agent_point()
        if point is not None:
            self._ledger.append([point])

    def _annotate(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        runtime = self._runtime
        return None if runtime is None else runtime.annotations.add(request)

    def _agent_point(self) -> Point | None:
        runtime = self._runtime
        if runtime is None:
            return None
        return agent_point(runtime, self._store, self._sensor.restarts, self._clock.time_ns())

    def _retain(self) -> None:
        self._retention.apply(self._config.store)
        if self._runtime is not None:
            self._runtime.delivery.keep_bounds()

    def _close(self) -> None:
        """Stop the parts in the order of the data flow."""
        self._notifier.stopping()
        self._stop.set()
        self._control.close()
        self._http.close()
        if self._runtime is not None:
            self._runtime.stop()
        self._sensor.stop(SENSOR_STOP_S)
        if self._runtime is not None:
            self._runtime.close()
        self._store_status(state="stopped")
        self._ledger.flush()
        self._unstored_points = self._ledger.unstored_points + self._incidents.waiting_points
        self._runtime = None
        try:
            self._store.close()
        except StoreError as error:
            logger.error("%s", error)  # noqa: TRY400 - no traceback: the text has the cause
