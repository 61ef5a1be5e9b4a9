"""`costprobe fleet`: the same questions over all hosts, answered by the database they push to."""

from __future__ import annotations

import click

from costprobe.ui.cli.support.command_classes import LazyGroup


@click.group(
    cls=LazyGroup,
    modules={
        "status": "costprobe.ui.cli.fleet_questions:status",
        "spend": "costprobe.ui.cli.fleet_questions:spend",
        "compare": "costprobe.ui.cli.fleet_questions:compare",
        "forecast": "costprobe.ui.cli.fleet_questions:forecast",
        "savings": "costprobe.ui.cli.fleet_questions:savings",
        "report": "costprobe.ui.cli.fleet_report:report",
        "outliers": "costprobe.ui.cli.fleet_peers:outliers",
        "dashboard": "costprobe.ui.cli.dashboard:dashboard",
        "change": "costprobe.ui.cli.fleet_peers:change",
        "watch": "costprobe.ui.cli.fleet_watch:watch",
    },
)
def command() -> None:
    """Ask about all hosts: state, spend, unit costs and forecast.

    The database of [fleet] answers: InfluxDB, VictoriaMetrics or a Prometheus. It aggregates the rows
    itself; nothing is read from the store of this host, and no daemon is needed.
    """
