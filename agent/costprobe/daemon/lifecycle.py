"""The daemon's life cycle: start the parts, run, reload, stop them in order."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costprobe import __version__
from costprobe.adapters.cloud.detect import InstanceDetector
from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.health import quarantined
from costprobe.adapters.system.host_name import host_tag
from costprobe.adapters.system.signal_event import SignalFlag, SignalWakeUp
from costprobe.app.accounting.ledger import StoreLedger
from costprobe.app.configuration import Config
from costprobe.app.measuring.listeners import Listeners
from costprobe.app.watching.incident_store import IncidentStore
from costprobe.core.clock import Clock
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.control_protocol import control_path
from costprobe.core.records import NS_PER_S, Device, Event
from costprobe.core.units import counted
from costprobe.daemon.control.requests import ControlRequests
from costprobe.daemon.control.server import ControlServer
from costprobe.daemon.current_runtime import CurrentRuntime
from costprobe.daemon.device_watch import DeviceWatch
from costprobe.daemon.http.http_pages import HttpPages, Sources
from costprobe.daemon.reload import ReloadError, needs_new_sensor, refusal_event, reloaded
from costprobe.daemon.sd_notify import SystemdNotifier
from costprobe.daemon.self_observation import gap_event
from costprobe.daemon.shared_parts import SharedParts
from costprobe.daemon.store_opening import open_store
from costprobe.daemon.watchdog import Watchdog, job_liveness
from costprobe.domain.pricing.book import Terms

logger = logging.getLogger(__name__)

# Interval at which new devices and clock steps are detected; a stop or a reload wakes the loop.
# Shorter if systemd's watchdog requires it.
TICK_S = 10.0


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
            lambda report: self._notify_and_store_status(listeners.on_report, report),
            lambda *fault: self._notify_and_store_status(listeners.on_fault, *fault),
        )
        self._stop = SignalFlag()
        self._reload = SignalFlag()
        self._woken = SignalWakeUp()
        self._started_ns = clock.time_ns()
        self._store, damage = open_store(store_path, clock)
        self._ledger = StoreLedger(self._store)
        self._incidents = IncidentStore(self._store)
        self._watch = DeviceWatch(config.sensor_settings, self._on_event, clock, self._stop)
        shared = SharedParts(
            self._store,
            self._ledger,
            self._incidents,
            self._watch.sensor,
            clock,
            self._steps,
            self._listeners,
            InstanceDetector(),
        )
        self._current = CurrentRuntime(shared, self._status, [damage] if damage else ())
        self._unstored_points = 0
        requests = ControlRequests(lambda: self._current.runtime, self._current.status)
        self._control = ControlServer(
            control_path(store_path, os.environ), requests.handlers(), self._stop
        )
        self._notifier = notifier
        self._watchdog = Watchdog(notifier, self._liveness)
        self._http = HttpPages(
            Sources(
                store_path,
                self._liveness,
                self._current.status,
                self._current.agent_point,
                self._current.annotate,
            ),
            clock,
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """The discovered devices."""
        return self._watch.devices

    def stop_summary(self) -> str:
        """Return one sentence on where the measurements are, after `run`."""
        if not self._unstored_points:
            return f"stopped; the measurements stay in {self._store_path}"
        lost = counted(self._unstored_points, "point")
        reason = self._ledger.fault or "the store is not writable"
        return f"stopped; {lost} could not be stored and are lost: {reason}"

    def terms_now(self, device: str) -> Terms | None:
        """Return the price terms in force for a device; None without a price."""
        runtime = self._current.runtime
        return runtime.prices.terms_now(device) if runtime else None

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
            self._watch.start()
            self._control.open()
            self._http.serve(self._config.http)
            self._current.build(self._config, self._watch)
            on_ready(self)
            self._current.start()
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

    def _tick(self) -> None:
        self._watchdog.beat()
        if self._reload.is_set():
            self._reload.clear()
            self._notifier.reloading()
            self._reload_config()
            self._notifier.ready(self._summary())
        if self._watch.changed():
            self._current.rebuild(self._config, self._watch)
        self._steps.check()
        for gap in self._steps.gaps():
            self._on_event(gap_event(gap))

    def _liveness(self) -> dict[str, bool]:
        """Return whether each part with a thread or process of its own is alive."""
        self._steps.check()
        runtime = self._current.runtime
        parts = {
            "sensors": self._watch.sensor.is_alive(),
            "control socket": self._control.is_alive(),
            "http": self._http.is_alive(),
        }
        if runtime is not None:
            parts |= {**runtime.delivery.liveness(), **runtime.notifying.liveness()}
            parts |= job_liveness(runtime.schedule)
        return parts

    def _summary(self) -> str:
        """Return one line for `systemctl status`."""
        devices = counted(len(self._watch.devices), "device")
        return f"measuring {devices} with {counted(len(self._config.probe), 'probe')}"

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
            self._watch.replace(config.sensor_settings)
        self._http.serve(config.http)
        self._current.rebuild(self._config, self._watch)
        logger.info("%s: reloaded", self._config_path)

    def _on_event(self, event: Event) -> None:
        self._current.take_event(event)

    def _notify_and_store_status(self, listener: Callable[..., None], *news: object) -> None:
        """Call a listener, and store the status, which has changed."""
        listener(*news)
        self._current.store_status()

    def _status(self) -> dict[str, Any]:
        """Return the status of the process, without that of its parts."""
        return {
            "state": "running",
            "version": __version__,
            "pid": os.getpid(),
            "host": host_tag(self._config.host),
            "started_ns": self._started_ns,
            "config": str(self._config_path) if self._config_path else None,
            "config_fault": self._config_fault,
            "devices": [
                {"name": device.name, "kind": device.kind, "model": device.model}
                for device in self._watch.devices
            ],
            "sensor": self._watch.sensor.status(),
            "store": {
                "path": str(self._store_path),
                "fault": self._ledger.fault,
                "replaced": [str(path) for path in quarantined(self._store_path)],
            },
            "control": self._control.status(),
            "http": self._http.status(),
        }

    def _close(self) -> None:
        """Stop the parts in the order of the data flow."""
        self._notifier.stopping()
        self._stop.set()
        self._control.close()
        self._http.close()
        self._current.stop()
        self._watch.stop()
        self._current.close()
        self._ledger.flush()
        self._unstored_points = self._ledger.unstored_points + self._incidents.waiting_points
        try:
            self._store.close()
        except StoreError as error:
            logger.error("%s", error)  # noqa: TRY400 - no traceback: the text has the cause
