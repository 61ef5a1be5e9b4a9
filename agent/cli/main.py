"""`infercost`: one literal table of commands, each loaded only when it is called."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from agent import __version__
from agent.cli.colour import colour_of
from agent.core_dumps import forbid_core_dumps


class Entry(NamedTuple):
    """Where a command lives and what it says of itself in the list."""

    module: str
    help: str


COMMANDS: Mapping[str, Entry] = {
    "run": Entry("agent.cli.run", "Run the daemon in the foreground."),
    "probe": Entry("agent.cli.probe", "Run one probe now, without a daemon."),
    "status": Entry("agent.cli.status", "What each part is doing, last results, faults."),
    "trend": Entry("agent.cli.trend", "A field of the series over time: table and plot."),
    "export": Entry("agent.cli.export", "The series as line protocol, CSV or JSON."),
    "dashboard": Entry("agent.cli.dashboard", "Serve the page: costs, devices, alerts, live."),
    "price": Entry("agent.cli.price", "The prices in force, and how they came about."),
    "compare": Entry("agent.cli.compare", "Models side by side, and the cheapest good enough."),
    "advise": Entry("agent.cli.advise", "What would cost less, with evidence and saving."),
    "forecast": Entry("agent.cli.forecast", "What each budget spent, and where it is heading."),
    "report": Entry("agent.cli.report", "What it all cost, for people who decide about money."),
    "top": Entry("agent.cli.top", "A live view of devices, costs, sinks, budgets, alerts."),
    "alerts": Entry("agent.cli.alerts", "Incidents now and before, and a test of notifiers."),
    "silence": Entry("agent.cli.silence", "Tell nobody of matched incidents for a while."),
    "replay": Entry("agent.cli.replay", "What the rules would have said of the past."),
    "sink": Entry("agent.cli.sink", "What sinks got, refused points, and a retry at once."),
    "influx": Entry("agent.cli.influx", "Set up the database of a sink."),
    "grafana": Entry("agent.cli.grafana", "Dashboards, and the files that make Grafana show them."),
    "store": Entry(
        "agent.cli.store", "Check the store, copy it while the daemon runs, compact it."
    ),
    "config": Entry("agent.cli.config", "Write, check and show the configuration."),
    "service": Entry("agent.cli.service", "Put the daemon under systemd, upgrade it, remove it."),
    "doctor": Entry("agent.cli.doctor", "Check every prerequisite and say how to mend it."),
    "debug": Entry("agent.cli.debug", "Gather what explains a fault, without secrets."),
    "completion": Entry("agent.cli.completion", "What a shell needs to complete commands."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Shell completion and `--help` must answer at once, and no command should pay for what
    another needs.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of the commands, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Loads a command; None if there is none of that name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        return cast("click.Command", importlib.import_module(entry.module).command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names from the table, without loading a command, and the options."""
        names = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Lists the commands from the table, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="infercost")
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(),
    envvar="INFERCOST_CONFIG",
    help="Configuration file (default: /etc/infercost/infercost.toml if there is one).",
)
@click.option("--no-color", is_flag=True, help="No colours on a terminal either; so does NO_COLOR.")
@click.pass_context
def main(ctx: click.Context, config_path: str | None, *, no_color: bool) -> None:
    """What does one inference cost on this host, now, and why did that change?"""
    # Most commands read secrets, or start what does.
    forbid_core_dumps()
    ctx.obj = config_path
    ctx.color = colour_of(os.environ, refused=no_color)
