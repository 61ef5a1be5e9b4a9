"""`costprobe run`: the daemon in the foreground, under a terminal or under systemd."""

from __future__ import annotations

import os
import sys
import time

import click

from costprobe.adapters.host.log import line_head, start_logging
from costprobe.adapters.probe_child.results import ProbeFault, ProbeProgress
from costprobe.adapters.store.database import StoreError
from costprobe.core.clock import SystemClock
from costprobe.core.config.location import SYSTEM_PATH
from costprobe.daemon.main import Daemon
from costprobe.daemon.systemd import SystemdNotifier
from costprobe.probing.cost import ProbeRun
from costprobe.probing.rows import report_document, terms_document
from costprobe.probing.run import AnyProbe, Listeners, ProbeTarget
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.place import Settings, may_run_service, unusable_store
from costprobe.ui.cli.support.signals import handle_signals
from costprobe.ui.cli.views.progress import ProgressBar
from costprobe.ui.cli.views.status_lines import probe_line, rate_words


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe run  # demo mode if there is no configuration file",
        "costprobe -c costprobe.toml run  # with a configuration file",
    ),
)
@click.pass_obj
def command(config: str | None) -> None:
    """Run the daemon in the foreground until Ctrl-C or SIGTERM; SIGHUP reloads the file.

    Without a configuration file it runs in demo mode: it detects the devices, runs the built-in
    probe at once and then every minute, and prints the assumed prices. It also runs in demo
    mode, with a separate store, for users without write access to the store of the service.
    """
    settings = Settings(config, demo=not config and not may_run_service())
    log = start_logging(os.environ, sys.stderr)
    console = Console()
    try:
        daemon = Daemon(
            settings.config,
            settings.path,
            settings.store_path,
            SystemClock(),
            Listeners(console.progress, console.report, console.fault),
            SystemdNotifier.taken_from(os.environ, SystemClock()),
        )
        handle_signals(daemon)
        daemon.run(on_ready=lambda ready: console.ready(ready, settings))
    except StoreError as error:
        raise unusable_store(error) from error
    finally:
        log.close()
    console.line(daemon.stop_summary())


class Console:
    """Console output: lines on stdout, and a progress bar on stderr if it is a terminal."""

    def __init__(self) -> None:
        self._bar = ProgressBar()

    def ready(self, daemon: Daemon, settings: Settings) -> None:
        """Print the devices with their prices, the assumptions, and the path of the store."""
        if settings.path is None:
            reason = (
                f"this user cannot write the store of {SYSTEM_PATH}"
                if SYSTEM_PATH.exists()
                else "no configuration file"
            )
            self.line(
                f"demo mode ({reason}): probes run every minute, which takes more than the default"
                " limit of 1 % of device time"
            )
        for device in daemon.devices:
            terms = daemon.terms_now(device.name)
            if terms is None:
                price = "no price; set [[price]]"
            else:
                price = f"{rate_words(terms_document(terms))} ({terms.rate.source})"
            self.line(f"{device.name}: {device.model}; {price}")
        if not daemon.devices:
            self.line("no device found; costprobe doctor shows the reason")
        self.line(f"store: {settings.store_path}")

    def report(self, report: ProbeRun) -> None:
        """Print one line for a probe run."""
        self.line(probe_line(report_document(report)))

    def fault(self, probe: AnyProbe, target: ProbeTarget, fault: ProbeFault) -> None:
        """Print one line for a run without a result."""
        self.line(f"{target.name} {probe.name}  no result: {fault.title}")

    def progress(self, probe: AnyProbe, target: ProbeTarget, progress: ProbeProgress) -> None:
        """Show the progress of the most recent run."""
        self._bar.show(f"{target.name} {probe.name}", progress)

    def line(self, text: str) -> None:
        """Print a line with its time, in the format of the log."""
        self._bar.line(f"{line_head(sys.stdout, time.time())}{text}")
