"""A progress bar on stderr, if it is a terminal."""

from __future__ import annotations

import os
import sys
from threading import Lock

import click

from costprobe.adapters.probe_child.results import ProbeProgress
from costprobe.core.outside import one_line
from costprobe.ui.cli.support.fitting import terminal_columns
from costprobe.ui.cli.support.output import echo

BAR_WIDTH = 30


class ProgressBar:
    """The phase of the most recent run, redrawn in place."""

    def __init__(self) -> None:
        # A dumb terminal would show each redraw on a new line.
        self._interactive = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False
        self._lock = Lock()

    def show(self, title: str, progress: ProbeProgress) -> None:
        """Redraw the bar."""
        if not self._interactive:
            return
        full = int(BAR_WIDTH * progress.done)
        bar = "#" * full + "-" * (BAR_WIDTH - full)
        with self._lock:
            text = one_line(f"{title} [{bar}] {progress.phase} {progress.note}")
            width = (terminal_columns(err=True) or 80) - 1
            click.echo(f"\r\033[K{text[:width]}", err=True, nl=False)
            self._shown = True

    def clear(self) -> None:
        """Remove the bar."""
        with self._lock:
            if self._shown:
                click.echo("\r\033[K", err=True, nl=False)
                self._shown = False

    def line(self, text: str) -> None:
        """Write a line to stdout, after clearing the bar."""
        self.clear()
        with self._lock:
            echo(text)
            sys.stdout.flush()
