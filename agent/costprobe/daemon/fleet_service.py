"""The process of `costprobe fleet watch`: runs the watcher of a configuration file, and reloads the file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from costprobe.adapters.system.signal_event import SignalFlag, SignalWakeUp
from costprobe.app.configuration import Config
from costprobe.core.clock import Clock
from costprobe.daemon.fleet_watch import FleetWatcher
from costprobe.daemon.reload import ReloadError, reloaded
from costprobe.daemon.sd_notify import SystemdNotifier
from costprobe.daemon.watchdog import Watchdog

logger = logging.getLogger(__name__)

TICK_S: Final = 10.0


def watch_problem(config: Config) -> str:
    """Return what a configuration lacks for a watcher that runs, with the fix; empty for nothing."""
    if config.fleet is None:
        return "no [fleet] is configured; add url and kind of the database (docs/fleet.md)"
    if config.store.path is None:
        return (
            "store.path: the watcher needs a store of its own; add"
            ' path = "/var/lib/costprobe-fleet/fleet.db" to [store]'
        )
    if len(config.sink) > 1:
        return (
            "sink: the lease is written to one database; keep the [[sink]] of the database of"
            " [fleet]"
        )
    return ""


class FleetService:
    """Runs a watcher until it is stopped; a reload replaces it by one of the new configuration.

    Args:
        config: The configuration, in which `watch_problem` finds nothing.
        config_path: Its file.
        clock: The host's clocks.
        notifier: Sends notifications to systemd.

    Raises:
        StoreError: The store cannot be opened, or another process uses it.
    """

    def __init__(
        self, config: Config, config_path: Path, clock: Clock, notifier: SystemdNotifier
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._clock = clock
        self._stop, self._reload, self._woken = SignalFlag(), SignalFlag(), SignalWakeUp()
        self._notifier = notifier
        self._watcher = FleetWatcher(config, clock, notifier)
        self._watchdog = Watchdog(notifier, self._liveness)

    @property
    def wake_fd(self) -> int:
        """For `signal.set_wakeup_fd`."""
        return self._woken.fd

    def request_stop(self) -> None:
        """End `run`; safe in a signal handler."""
        self._stop.set()
        self._woken.set()

    def request_reload(self) -> None:
        """Make `run` reload the configuration file; safe in a signal handler."""
        self._reload.set()
        self._woken.set()

    def run(self, on_ready: Callable[[], None]) -> None:
        """Run until `request_stop`.

        Args:
            on_ready: Called once, before the first evaluation.
        """
        try:
            self._watcher.open()
            on_ready()
            self._watcher.start()
            self._notifier.ready(self._watcher.summary())
            tick_s = min(TICK_S, self._notifier.feed_every_s or TICK_S)
            while not self._stop.is_set():
                self._watchdog.beat()
                if self._reload.is_set():
                    self._reload.clear()
                    self._notifier.reloading()
                    self._reload_config()
                    self._notifier.ready(self._watcher.summary())
                self._watcher.steps.check()
                self._watcher.steps.expect(tick_s)
                self._woken.wait(tick_s)
                self._watcher.steps.woke()
        finally:
            self._notifier.stopping()
            self._watcher.close()

    def _liveness(self) -> dict[str, bool]:
        return self._watcher.liveness()

    def _reload_config(self) -> None:
        config, problem = self._config, ""
        try:
            config = reloaded(self._config_path, self._config)
        except ReloadError as error:
            problem = str(error)
        else:
            if missing := watch_problem(config):
                problem = f"{self._config_path}: {missing}"
        if problem:
            self._watcher.config_fault = problem
            for line in problem.splitlines():
                logger.error("not reloaded, the old configuration stays in force: %s", line)
            return
        self._config = config
        # What the new one continues is in the store.
        self._watcher.close()
        self._watcher = FleetWatcher(config, self._clock, self._notifier)
        self._watcher.open()
        self._watcher.start()
        logger.info("%s: reloaded", self._config_path)
