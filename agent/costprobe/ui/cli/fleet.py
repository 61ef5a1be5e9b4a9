"""`costprobe fleet`: questions about all hosts that a single host does not have."""

from __future__ import annotations

import click

from costprobe.ui.cli.support.command_classes import LazyGroup


@click.group(
    cls=LazyGroup,
    modules={
        "outliers": "costprobe.ui.cli.fleet_peers:outliers",
        "change": "costprobe.ui.cli.fleet_peers:change",
        "watch": "costprobe.ui.cli.fleet_watch:watch",
    },
)
def command() -> None:
    """Find outliers and effects of updates on all hosts, and watch them.

    The database of [fleet] answers: InfluxDB, VictoriaMetrics or a Prometheus. It aggregates the rows
    itself; nothing is read from the store of this host, and no daemon is needed. So it does with --fleet:
    status, spend, compare, savings, budget, forecast, report and dashboard.
    """
