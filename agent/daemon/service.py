"""The daemon itself: it builds the parts from the configuration, starts, reloads, stops them."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent import __version__
from agent.clock import Clock
from agent.config import Config
from agent.config_file import ConfigError, load
from agent.control_wire import control_path
from agent.daemon.asked import Asked
from agent.daemon.control import ControlServer
from agent.daemon.control_requests import handlers
from agent.daemon.faults import disk_of, present_faults
from agent.daemon.http_pages import HttpPages, Sources
from agent.daemon.ledger import StoreLedger
from agent.daemon.liveness import Heart, job_lives
from agent.daemon.notify import Notifier
from agent.daemon.probe_jobs import Listeners
from agent.daemon.retention import RETENTION_EVERY_S, Retention
from agent.daemon.running import NOTHING_RUNS, Parts, Running, host_name
from agent.daemon.schedule import ClockStep
from agent.daemon.self_observation import agent_point
from agent.daemon.sensing import sensor_settings
from agent.model import NS_PER_S, Device, Event, Point, Reading
from agent.pricing.book import Terms
from agent.signal_flag import SignalFlag
from agent.storage.buffer import BufferedWriter
from agent.storage.health import is_damaged, set_aside
from agent.storage.writer import Store
from agent.telemetry.supervisor import CHILD_COMMAND, SensorSupervisor

logger = logging.getLogger(__name__)

# How soon a new device or a step of the clock is noticed; a stop or a reload is at once. Sooner where
# systemd's watchdog has to be fed more often.
TICK_S = 10.0
STATUS_EVERY_S = 10.0
# Devices' rows end at whole multiples too: rules see those of the same instant.
EVALUATE_AFTER_S = 0.1
AGENT_EVERY_S = 60.0
DETECTORS_EVERY_S = 3600.0
DEVICES_TIMEOUT_S = 15.0
DEVICES_POLL_S = 0.2
MAX_EARLY_EVENTS = 100
SENSOR_STOP_S = 1.0


class Daemon:
    """All parts of infercost on one host.

    Args:
        config: What the operator said.
        config_path: The file it came from; None in a try-out, which cannot be reloaded.
        store_path: The store.
        clock: The host's clocks.
        listeners: Who is told of probe runs.
        notifier: Tells systemd.
    """

    def __init__(
        self,
        config: Config,
        config_path: Path | None,
        store_path: Path,
        clock: Clock,
        listeners: Listeners,
        notifier: Notifier,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._config_fault: str | None = None
        self._store_path = store_path
        self._clock = clock
        self._listeners = Listeners(
            listeners.on_progress,
            lambda report: self._then_status(listeners.on_report, report),
            lambda *fault: self._then_status(listeners.on_fault, *fault),
        )
        self._stop = SignalFlag()
        self._reload = SignalFlag()
        self._woken = SignalFlag()
        self._started_ns = clock.time_ns()
        self._status_due_ns = 0
        set_aside_as = self._healed(store_path)
        self._store = Store.open(store_path, clock)
        self._buffer = BufferedWriter(self._store)
        self._ledger = StoreLedger(self._store, self._buffer)
        self._retention = Retention(self._store, self._ledger, clock)
        self._sensor = self._new_sensor()
        self._devices: tuple[Device, ...] = ()
        self._running: Running | None = None
        self._early_events: deque[Event] = deque(maxlen=MAX_EARLY_EVENTS)
        self._control = ControlServer(
            control_path(store_path, os.environ),
            handlers(Asked(lambda: self._running, lambda: self._status("running"))),
            self._stop,
        )
        self._control_fault: str | None = None
        if set_aside_as is not None:
            self._early_events.append(set_aside_as)
        self._notifier = notifier
        self._heart = Heart(notifier, self._lives)
        self._http = HttpPages(
            Sources(store_path, self._lives, lambda: self._status("running"), self._agent_point),
            clock,
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that were found."""
        return self._devices

    def terms_now(self, device: str) -> Terms | None:
        """The price terms in force for a device; None where nothing prices it."""
        return self._running.accounts.terms_now(device) if self._running else None

    def request_stop(self) -> None:
        """Ends `run`; safe in a signal handler."""
        self._stop.set()
        self._woken.set()

    def request_reload(self) -> None:
        """Makes `run` read the file again; safe in a signal handler."""
        self._reload.set()
        self._woken.set()

    def run(self, on_ready: Callable[[Daemon], None]) -> None:
        """Runs until `request_stop`.

        Args:
            on_ready: Told once, when the devices are known and before the first probe.
        """
        try:
            self._sensor.start()
            self._devices = self._found_devices()
            self._open_control()
            self._http.serve(self._config.http)
            self._build()
            on_ready(self)
            self._resume()
            self._notifier.ready(self._summary())
            step = ClockStep(self._clock.time_ns(), self._clock.monotonic_ns())
            tick_s = min(TICK_S, self._notifier.feed_every_s or TICK_S)
            while not self._stop.is_set():
                self._tick(step)
                # With the jobs, all of which begin at whole multiples: that wakes the host once.
                self._woken.wait(tick_s - self._clock.time_ns() / NS_PER_S % tick_s)
                self._woken.clear()
        finally:
            self._close()

    def _healed(self, path: Path) -> Event | None:
        """Sets a damaged store aside, so that measuring goes on in a new one; what to tell of it.

        Raises:
            StoreError: It cannot be looked at, or not be renamed.
        """
        if not is_damaged(path):
            return None
        now_ns = self._clock.time_ns()
        aside = set_aside(path, now_ns)
        logger.error("%s is damaged: it is kept as %s, and a new store is begun", path, aside)
        return Event(
            kind="fault",
            severity="critical",
            title="the store was damaged: a new one was begun",
            time_ns=now_ns,
            detail=f"the old one is kept as {aside}; `sqlite3 FILE .recover` saves what it can",
            cause="damaged store",
        )

    def _open_control(self) -> None:
        """Opens the control socket; without one everything goes on but silences and tests."""
        try:
            self._control.start()
        except OSError as error:
            self._control_fault = str(error)
            logger.warning("no control socket: %s", error)

    def _found_devices(self) -> tuple[Device, ...]:
        """The devices, once the sensor child has looked; what is known after a while, or a stop."""
        ends_ns = self._clock.monotonic_ns() + int(DEVICES_TIMEOUT_S * NS_PER_S)
        while self._clock.monotonic_ns() < ends_ns and not self._stop.is_set():
            devices = self._sensor.wait_for_devices(DEVICES_POLL_S)
            if self._sensor.has_looked():
                return devices
        return self._sensor.devices()

    def _tick(self, step: ClockStep) -> None:
        self._heart.beat()
        if self._reload.is_set():
            self._reload.clear()
            self._notifier.reloading()
            self._reload_config()
            self._notifier.ready(self._summary())
        devices = self._sensor.devices()
        if devices != self._devices:
            logger.info("devices are now: %s", ", ".join(device.name for device in devices))
            self._devices = devices
            self._rebuild()
        step_s = step.step_s(self._clock.time_ns(), self._clock.monotonic_ns())
        if step_s is not None and self._running is not None:
            logger.warning("the wall clock was stepped by %+.1f s; jobs are aligned anew", step_s)
            self._running.schedule.realign()

    def _lives(self) -> dict[str, bool]:
        """Whether each part that has a life of its own has it."""
        running = self._running
        parts = {
            "sensors": self._sensor.is_alive(),
            "control socket": self._control.is_alive(),
            "http": self._http.is_alive(),
        }
        if running is not None:
            parts |= {**running.pushing.lives(), **running.notifying.lives()}
            parts |= job_lives(running.schedule)
        return parts

    def _summary(self) -> str:
        """One line for `systemctl status`."""
        devices, probes = len(self._devices), len(self._config.probe)
        return f"measuring {devices} devices with {probes} probes"

    def _build(self) -> None:
        parts = Parts(self._store, self._ledger, self._sensor, self._clock, self._listeners)
        self._running = Running(self._config, self._devices, parts, self._store_path.parent)
        schedule = self._running.schedule
        schedule.add("self-observation", AGENT_EVERY_S, self._write_agent_point, at_once=True)
        schedule.add("retention", RETENTION_EVERY_S, self._retain)
        every_s = self._config.alerting.evaluate_every_s
        schedule.add(
            "alerting", every_s, self._evaluate, offset_s=min(EVALUATE_AFTER_S, every_s / 2)
        )
        if every_s > STATUS_EVERY_S:
            schedule.add("status", STATUS_EVERY_S, self._write_status)
        schedule.add("detectors", DETECTORS_EVERY_S, self._running.watching.keep_detectors)
        while self._early_events:
            self._running.accounts.take_event(self._early_events.popleft())
        self._write_status()

    def _resume(self) -> None:
        if self._running is not None:
            self._running.start()

    def _rebuild(self) -> None:
        if self._running is not None:
            self._running.stop()
        self._build()
        self._resume()

    def _reload_config(self) -> None:
        if self._config_path is None:
            logger.warning("there is no configuration file to reload")
            return
        try:
            config = load(self._config_path)
        except ConfigError as error:
            self._refuse(str(error))
            return
        if config.store.path != self._config.store.path:
            self._refuse(f"{self._config_path}: store.path: needs a restart of the service")
            return
        before = self._config
        sensor_changed = sensor_settings(config.telemetry, config.service) != sensor_settings(
            before.telemetry, before.service
        )
        self._config, self._config_fault = config, None
        if sensor_changed:
            self._sensor.stop(SENSOR_STOP_S)
            self._sensor = self._new_sensor()
            self._sensor.start()
            self._devices = self._found_devices()
        self._http.serve(config.http)
        self._rebuild()
        logger.info("%s: reloaded", self._config_path)

    def _refuse(self, reason: str) -> None:
        """Keeps the old configuration and says so, in the log, the status and the series."""
        self._config_fault = reason
        for line in reason.splitlines():
            logger.error("not reloaded, the old configuration stays: %s", line)
        self._on_event(
            Event(
                kind="fault",
                severity="warning",
                title="the new configuration was refused; the old one stays in force",
                time_ns=self._clock.time_ns(),
                detail=reason,
                cause="configuration",
            )
        )

    def _new_sensor(self) -> SensorSupervisor:
        settings = sensor_settings(self._config.telemetry, self._config.service)
        return SensorSupervisor(
            CHILD_COMMAND, settings, self._on_readings, self._on_event, self._clock
        )

    def _on_readings(self, readings: Sequence[Reading]) -> None:
        devices = {device.name: device for device in self._devices}
        known = [(found, devices[found.device]) for found in readings if found.device in devices]
        if self._running is not None:
            self._running.take_readings(known)

    def _on_event(self, event: Event) -> None:
        logger.log(
            logging.INFO if event.severity == "info" else logging.WARNING,
            "%s%s",
            event.title,
            f" ({event.detail})" if event.detail else "",
        )
        if self._running is None:
            self._early_events.append(event)
        else:
            self._running.accounts.take_event(event)

    def _then_status(self, listener: Callable[..., None], *news: object) -> None:
        """Tells a listener, and brings the status up to date with what it was told."""
        listener(*news)
        self._write_status()

    def _evaluate(self) -> None:
        """Evaluates the rules, with the faults that are there now, and keeps the status."""
        running = self._running
        if running is None:
            return
        try:
            disk = disk_of(self._store_path)
        except OSError:
            disk = None
        status = self._status("running")
        try:
            if running.watching.tick(present_faults(status, disk)):
                running.notifying.wake()
            running.notifying.tell_unstored(running.watching.unstored())
        finally:
            if self._clock.monotonic_ns() >= self._status_due_ns:
                self._keep_status({**status, "alerting": running.watching.status()})

    def _write_status(self, state: str = "running") -> None:
        self._keep_status(self._status(state))

    def _keep_status(self, status: dict[str, Any]) -> None:
        # A little early, so that an evaluation every ten seconds keeps each one.
        self._status_due_ns = self._clock.monotonic_ns() + int(0.9 * STATUS_EVERY_S * NS_PER_S)
        self._ledger.put_state("status", status)

    def _status(self, state: str) -> dict[str, Any]:
        running = self._running
        return {
            "state": state,
            "version": __version__,
            "pid": os.getpid(),
            "host": host_name(self._config),
            "started_ns": self._started_ns,
            "config": str(self._config_path) if self._config_path else None,
            "config_fault": self._config_fault,
            "devices": [
                {"name": device.name, "kind": device.kind, "model": device.model}
                for device in self._devices
            ],
            "sensor": self._sensor.status(),
            "store": {"path": str(self._store_path), "fault": self._buffer.fault},
            **(running.status() if running else NOTHING_RUNS),
            "control": {"path": str(self._control.path), "fault": self._control_fault},
            "http": self._http.status(),
        }

    def _write_agent_point(self) -> None:
        point = self._agent_point()
        if point is not None:
            self._ledger.append([point])

    def _agent_point(self) -> Point | None:
        running = self._running
        if running is None:
            return None
        return agent_point(running, self._store, self._sensor.restarts, self._clock.time_ns())

    def _retain(self) -> None:
        self._retention.apply(self._config.store)
        if self._running is not None:
            self._running.pushing.keep_bounds()

    def _close(self) -> None:
        """Stops the parts in the order in which they feed each other."""
        self._notifier.stopping()
        self._stop.set()
        self._control.close()
        self._http.close()
        if self._running is not None:
            self._running.stop()
        self._sensor.stop(SENSOR_STOP_S)
        self._write_status("stopped")
        self._running = None
        self._buffer.flush()
        self._store.close()
