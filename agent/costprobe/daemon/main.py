"""The daemon's life cycle: start the parts, run, reload, stop them in order.

A reload rejects an invalid configuration file. A damaged store is renamed, so that measuring
continues in a new one. The liveness of the parts is reported to systemd's watchdog.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from costprobe import __version__
from costprobe.adapters.host.announced import Announcement, service_users
from costprobe.adapters.host.host_name import host_tag, host_tags
from costprobe.adapters.host.processes import SignalFlag, SignalWakeUp
from costprobe.adapters.host.schedule import Schedule
from costprobe.adapters.sensors.messages import SensorSettings
from costprobe.adapters.store.database import StoreError, StoreLock, prepare, translated
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.upkeep import is_damaged, quarantine, quarantined
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config, load
from costprobe.core.clock import Clock
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.config.load import ConfigError
from costprobe.core.records import NS_PER_S, Device, Event
from costprobe.core.schema import event_point
from costprobe.core.units import counted
from costprobe.daemon.control import ControlServer, control_requests
from costprobe.daemon.control_protocol import control_path
from costprobe.daemon.device_watch import DeviceWatch, kept_boards
from costprobe.daemon.pages import HttpPages
from costprobe.daemon.parts import HostParts, gap_event
from costprobe.daemon.systemd import SystemdNotifier
from costprobe.pricing.book import Terms
from costprobe.probing.run import Listeners

logger = logging.getLogger(__name__)


def open_store(path: Path, clock: Clock) -> tuple[Store, Event | None]:
    """Return the store, locked, and the event of a damaged file that was replaced by a new one.

    Args:
        path: The store's file.
        clock: The host's clocks.

    Raises:
        StoreError: It cannot be opened, another daemon uses it, or a damaged file cannot be renamed.
    """
    with translated("open", path):
        prepare(path)
    lock, event = StoreLock(path), None
    try:
        if is_damaged(path):
            event = _replaced(path, clock.time_ns())
    except BaseException:
        lock.release()
        raise
    return Store.open(path, clock, lock=lock), event


def _replaced(path: Path, now_ns: int) -> Event:
    renamed = quarantine(path, now_ns)
    logger.error("%s is damaged: it is kept as %s, and a new store is created", path, renamed)
    return Event(
        kind="fault",
        severity="critical",
        title="the store was damaged: a new one was created",
        time_ns=now_ns,
        detail=f"the old one is kept as {renamed}; `sqlite3 FILE .recover` saves what it can",
        cause="damaged store",
    )


# If no run of a ten-second job has ended for this time, in s, the thread pool or the store hangs.
# A disk that is slow for a minute does not require a restart.
JOBS_SILENT_S: Final = 120.0
# Less frequent jobs may miss one or two runs.
PERIODS_SILENT: Final = 3
# Time in s for a run that waits for a busy device, searches for a batch size or compiles a model;
# its own deadlines end it long before.
LONG_RUN_S: Final = 3600.0
LONG_RUNNING: Final = ("probe ",)


def job_liveness(schedule: Schedule) -> dict[str, bool]:
    """Return whether each periodic job ended a run within its own limit, by name."""
    lives = {}
    for name, record in schedule.records.items():
        own_s = LONG_RUN_S if name.startswith(LONG_RUNNING) else 0.0
        limit_s = max(JOBS_SILENT_S, PERIODS_SILENT * record.every_s) + own_s
        lives[f"job {name}"] = not schedule.is_silent(name, limit_s)
    return lives


# Interval at which new devices and clock steps are detected; a stop or a reload wakes the loop.
# Shorter if systemd's watchdog requires it.
TICK_S = 10.0
SERVICE_ACCOUNT = "costprobe"


class Service(ABC):
    """A process that measures or watches until it is stopped, and reloads its configuration file.

    Args:
        config: The configuration.
        config_path: Its file; None in demo mode, which cannot be reloaded.
        store_path: The store.
        clock: The host's clocks.
        notifier: Sends notifications to systemd.

    Raises:
        StoreError: The store cannot be opened, or another process uses it.
    """

    def __init__(
        self,
        config: Config,
        config_path: Path | None,
        store_path: Path,
        clock: Clock,
        notifier: SystemdNotifier,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._config_fault: str | None = None
        self.store_path = store_path
        self._clock = clock
        self._steps = ClockMonitor(clock)
        self._notifier = notifier
        self._dead: tuple[str, ...] = ()
        self._stop, self._reload, self._woken = SignalFlag(), SignalFlag(), SignalWakeUp()
        self._store, self._damage = open_store(store_path, clock)
        self._ledger = StoreLedger(self._store)

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

    @abstractmethod
    def _liveness(self) -> dict[str, bool]:
        """Return whether each part with a thread or process of its own is alive."""

    @abstractmethod
    def _summary(self) -> str:
        """Return one line for `systemctl status`."""

    @abstractmethod
    def _replace(self, config: Config) -> None:
        """Replace the configuration in force by a valid one."""

    def _problem(self, config: Config) -> str:  # noqa: ARG002 - for those that override it
        """Return what a valid configuration lacks for this process; empty for nothing."""
        return ""

    def _tick(self) -> None:
        """Do what is due between two jobs."""
        self._steps.check()

    def _reload_config(self) -> None:
        """Reload the configuration file, or report why it is rejected."""
        path = self._config_path
        if path is None:
            logger.warning("there is no configuration file to reload")
            return
        try:
            config = load(path)
        except ConfigError as error:
            self._config_fault = str(error)
        else:
            self._config_fault = self._refusal(path, config)
            if self._config_fault is None:
                self._replace(config)
                logger.info("%s: reloaded", path)
                return
        for line in self._config_fault.splitlines():
            logger.error("not reloaded, the old configuration stays in force: %s", line)
        event = Event(
            kind="fault",
            severity="warning",
            title="the new configuration was rejected; the old one stays in force",
            time_ns=self._clock.time_ns(),
            detail=self._config_fault,
            cause="configuration",
        )
        self._take_event(event)

    def _refusal(self, path: Path, config: Config) -> str | None:
        """Return what a valid configuration of the file lacks, or what needs a restart; None for nothing."""
        if config.store.path != self._config.store.path:
            return f"{path}: store.path: needs a restart of the service"
        problem = self._problem(config)
        return f"{path}: {problem}" if problem else None

    def _take_event(self, event: Event) -> None:
        """Store an event."""
        self._ledger.append([event_point(event, host_tags(self._config.host))])

    def _store_status(self) -> dict[str, Any]:
        """Return the section `store` of the status document."""
        return {
            "path": str(self.store_path),
            "fault": self._ledger.fault,
            "replaced": [str(path) for path in quarantined(self.store_path)],
        }

    def _close_store(self) -> None:
        try:
            self._store.close()
        except StoreError as error:
            logger.error("%s", error)  # noqa: TRY400 - no traceback: the text has the cause

    def _beat(self) -> None:
        """Notify systemd's watchdog while every part is alive, or log the dead ones.

        Without a notification systemd restarts the daemon. Every measurement is in the store.
        """
        dead = tuple(sorted(name for name, is_alive in self._liveness().items() if not is_alive))
        if dead != self._dead:
            self._dead = dead
            if dead:
                logger.error("dead parts: %s; the watchdog is not notified", ", ".join(dead))
                self._notifier.status(f"dead parts: {', '.join(dead)}")
            else:
                logger.info("every part is alive again")
                self._notifier.status("measuring")
        if not dead:
            self._notifier.alive()

    def _serve(self) -> None:
        """Wait for signals, and do what is due, until a stop is requested."""
        self._notifier.ready(self._summary())
        tick_s = min(TICK_S, self._notifier.feed_every_s or TICK_S)
        while not self._stop.is_set():
            self._beat()
            if self._reload.is_set():
                self._reload.clear()
                self._notifier.reloading()
                self._reload_config()
                self._notifier.ready(self._summary())
            self._tick()
            # Jobs start at whole multiples: waking with them wakes the host once.
            wait_s = tick_s - self._clock.time_ns() / NS_PER_S % tick_s
            self._steps.expect(wait_s)
            self._woken.wait(wait_s)
            self._steps.woke()


class Daemon(Service):
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
        super().__init__(config, config_path, store_path, clock, notifier)
        self._listeners = Listeners(
            listeners.on_progress,
            lambda report: self._notify_and_store_status(listeners.on_report, report),
            lambda *fault: self._notify_and_store_status(listeners.on_fault, *fault),
        )
        # Of CLOCK_BOOTTIME, which no step of the wall clock changes.
        self._started_ns = clock.boottime_ns()
        self._announcement = Announcement(
            store_path, clock.monotonic_ns(), service_users([SERVICE_ACCOUNT]), os.environ
        )
        self._parts = HostParts(
            self._store,
            self._ledger,
            clock,
            self._steps,
            self._listeners,
            self._status,
            early=[self._damage] if self._damage else (),
        )
        self._watch = DeviceWatch(
            self._sensor_settings(config),
            self._parts.take_event,
            clock,
            self._stop,
            self._announcement,
        )
        self._unstored_points = 0
        requests = control_requests(lambda: self._parts.runtime, self._parts.status)
        self._control = ControlServer(control_path(store_path, os.environ), requests, self._stop)
        self._http = HttpPages(self._parts, self._liveness)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The discovered devices."""
        return self._watch.devices

    def stop_summary(self) -> str:
        """Return one sentence on where the measurements are, after `run`."""
        if not self._unstored_points:
            return f"stopped; the measurements stay in {self.store_path}"
        lost = counted(self._unstored_points, "point")
        reason = self._ledger.fault or "the store is not writable"
        return f"stopped; {lost} could not be stored and are lost: {reason}"

    def terms_now(self, device: str) -> Terms | None:
        """Return the price terms in force for a device; None without a price."""
        runtime = self._parts.runtime
        return runtime.prices.terms_now(device) if runtime else None

    def run(self, on_ready: Callable[[Daemon], None]) -> None:
        """Run until `request_stop`.

        Args:
            on_ready: Called once, when the devices are known and before the first probe.
        """
        try:
            self._announcement.open()
            self._watch.start()
            self._control.open()
            self._http.serve(self._config.http)
            self._parts.build(self._config, self._watch)
            on_ready(self)
            if self._parts.runtime is not None:
                self._parts.runtime.start()
            self._serve()
        finally:
            self._close()

    def _tick(self) -> None:
        if self._watch.changed():
            self._parts.rebuild(self._config, self._watch)
        self._steps.check()
        for gap in self._steps.gaps():
            self._parts.take_event(gap_event(gap))

    def _liveness(self) -> dict[str, bool]:
        """Return whether each part with a thread or process of its own is alive."""
        self._steps.check()
        runtime = self._parts.runtime
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

    def _replace(self, config: Config) -> None:
        before, self._config = self._config, config
        if before.sensor_settings != config.sensor_settings:
            self._watch.replace(self._sensor_settings(config))
        self._http.serve(config.http)
        self._parts.rebuild(config, self._watch)

    def _take_event(self, event: Event) -> None:
        self._parts.take_event(event)

    def _sensor_settings(self, config: Config) -> SensorSettings:
        models = sorted({board.model for board in kept_boards(self._ledger).values()})
        return replace(config.sensor_settings, known_models=models)

    def _notify_and_store_status(self, listener: Callable[..., None], *news: object) -> None:
        """Call a listener, and store the status, which has changed."""
        listener(*news)
        self._parts.store_status()

    def _status(self) -> dict[str, Any]:
        """Return the status of the process, without that of its parts."""
        return {
            "state": "running",
            "version": __version__,
            "pid": os.getpid(),
            "host": host_tag(self._config.host),
            "started_ns": self._clock.time_ns() - (self._clock.boottime_ns() - self._started_ns),
            "config": str(self._config_path) if self._config_path else None,
            "config_fault": self._config_fault,
            "devices": [
                {"name": device.name, "kind": device.kind, "model": device.model}
                for device in self._watch.devices
            ],
            "sensor": self._watch.sensor.status(),
            "store": self._store_status(),
            "control": self._control.status(),
            "http": self._http.status(),
        }

    def _close(self) -> None:
        """Stop the parts in the order of the data flow."""
        self._notifier.stopping()
        self._stop.set()
        self._announcement.close()
        self._control.close()
        self._http.close()
        if self._parts.runtime is not None:
            self._parts.runtime.stop()
        self._watch.stop()
        self._parts.close()
        self._ledger.flush()
        self._unstored_points = self._ledger.unstored_points + self._parts.incidents.waiting_points
        self._close_store()
