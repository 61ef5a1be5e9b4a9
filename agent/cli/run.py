"""`infercost run`: the daemon in the foreground, under a terminal or under systemd."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

import click

from agent.cli.lines import price_words, probe_line
from agent.cli.progress import ProgressBar
from agent.cli.settings import Settings
from agent.clock import SystemClock
from agent.daemon.accounts import ProbeReport
from agent.daemon.measuring import AnyProbe, Target
from agent.daemon.notify import Notifier
from agent.daemon.probe_jobs import Listeners
from agent.daemon.service import Daemon
from agent.daemon.status import report_document, terms_document
from agent.logs import start_logging
from agent.probing.outcome import ProbeFault, ProbeProgress
from agent.storage.errors import StoreError


@click.command()
@click.pass_obj
def command(config: str | None) -> None:
    """Runs the daemon in the foreground until Ctrl-C or SIGTERM; SIGHUP reloads the file.

    Without a configuration file it is a try-out: it detects the devices, runs the built-in
    probe at once and then every minute, and says which prices it assumed.
    """
    settings = Settings(config)
    log = start_logging(os.environ, sys.stderr)
    console = Console()
    try:
        daemon = Daemon(
            settings.config,
            settings.path,
            settings.store_path,
            SystemClock(),
            Listeners(console.progress, console.report, console.fault),
            Notifier.taken_from(os.environ, SystemClock()),
        )
        _handle_signals(daemon)
        daemon.run(on_ready=lambda ready: console.ready(ready, settings))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    finally:
        log.close()
    console.line("stopped; what was stored stays")


def _handle_signals(daemon: Daemon) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        # A second Ctrl-C ends the process as Python does it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        daemon.request_stop()

    def reload(number: int, frame: FrameType | None) -> None:
        del number, frame
        daemon.request_reload()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, reload)


class Console:
    """What a person sees: readable lines on stdout, a progress bar on a terminal's stderr."""

    def __init__(self) -> None:
        self._bar = ProgressBar()

    def ready(self, daemon: Daemon, settings: Settings) -> None:
        """Says what was found, what is assumed, and where things are kept."""
        if settings.path is None:
            self.line(
                "no configuration file: this is a try-out, which probes every minute and so"
                " exceeds the 1 % of device time that infercost keeps to by default"
            )
        for device in daemon.devices:
            terms = daemon.terms_now(device.name)
            if terms is None:
                price = "no price; set [[price]]"
            else:
                price = f"{price_words(terms_document(terms))}, {terms.rate.source}"
            self.line(f"{device.name}: {device.model}; {price}")
        if not daemon.devices:
            self.line("no device was found; infercost doctor says why")
        self.line(f"store: {settings.store_path}")

    def report(self, report: ProbeReport) -> None:
        """One line per probe run."""
        self.line(probe_line(report_document(report)))

    def fault(self, probe: AnyProbe, target: Target, fault: ProbeFault) -> None:
        """One line per run that came to nothing."""
        self.line(f"{target.name} {probe.name}  no result: {fault.title}")

    def progress(self, probe: AnyProbe, target: Target, progress: ProbeProgress) -> None:
        """The bar of the run that spoke last."""
        self._bar.show(f"{target.name} {probe.name}", progress)

    def line(self, text: str) -> None:
        """A line with the time of day."""
        self._bar.line(f"{time.strftime('%H:%M:%S')}  {text}")
