"""`costprobe`: one literal table of commands, each loaded only when it is called."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from costprobe import __version__
from costprobe.adapters.host.processes import forbid_core_dumps
from costprobe.core.outside import OutsideError, one_line
from costprobe.ui.cli.support.command_classes import FLEET, LazyGroup
from costprobe.ui.cli.support.fitting import terminal_columns, wrapped
from costprobe.ui.cli.support.output import colour_of
from costprobe.ui.cli.support.place import EXIT_CODES, bad_input
from costprobe.ui.cli.support.store_user import act_as_store_user, explain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Key of the context: the user whose rights the command has instead of root's.
STORE_USER = "costprobe.store_user"
# Click writes it before an error's message.
_ERROR = "Error: "


# Commands by section of the help, each with its line; the module of a command has its name.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Run": {
        "run": "Run the daemon in the foreground.",
        "probe": "Run one probe now, without a daemon.",
        "calibrate": "Measure what a token in and a token out of a service take.",
    },
    "Look": {
        "status": "Show each part's state, last results and faults.",
        "trend": "Show a field over time, as a table and a plot.",
        "compare": "Compare models, and find the cheapest within limits.",
        "dashboard": "Serve the dashboard: costs, devices, alerts, live.",
        "fleet": "Find outliers and effects of updates on all hosts.",
        "export": "Export the series as line protocol, CSV, JSON or FOCUS.",
    },
    "Money": {
        "spend": "Show cost by tenant, namespace, service or model.",
        "report": "Write a cost report of a period.",
        "savings": "Compare what each workload costs a month on every supply.",
        "where": "Predict a measured model's cost on other GPUs.",
        "budget": "Show spend and forecast of each budget.",
        "forecast": "Forecast spend, load, its cost, and when capacity ends.",
        "reconcile": "Compare a cloud's bill with the measured cost.",
        "price": "Show prices in force, and stored changes.",
    },
    "Alerts": {
        "alerts": "List incidents, and test notifiers.",
        "explain": "Explain a change of cost between two periods.",
        "annotate": "Annotate a change, such as a deployment, as a possible cause.",
        "silence": "Silence matching alerts for a period.",
        "replay": "Run the rules over stored rows.",
    },
    "Set up": {
        "config": "Write, check and show the configuration.",
        "doctor": "Check every prerequisite, with a fix for each.",
        "install": "Install or upgrade the systemd service.",
        "uninstall": "Remove the systemd service.",
        "influx": "Set up the database of a sink.",
        "grafana": "Write Grafana dashboards and provisioning files.",
        "prometheus": "Print recording and alerting rules for Prometheus.",
        "completion": "Print the completion script of a shell.",
    },
    "Maintain": {
        "sink": "Show rejected points of sinks, and retry.",
        "store": "Check, back up and compact the store.",
        "debug": "Write a support bundle, without secrets.",
    },
}
COMMANDS: Mapping[str, str] = {
    name: line for commands in SECTIONS.values() for name, line in commands.items()
}
# Commands that open no store and run no code of the operator keep root's rights, as questions about a
# fleet do; all others give them up if the store belongs to another user.
KEEPS_ROOT = frozenset(
    {"fleet", "config", "install", "uninstall", "influx", "grafana", "prometheus", "completion"}
)
# Where the same question about all hosts is, asked with --fleet.
OF_FLEET: Mapping[str, str] = {
    **{
        name: f"fleet_questions:{name}"
        for name in ("status", "spend", "compare", "savings", "forecast")
    },
    "report": "fleet_report:report",
    "budget": "fleet_watch:budget",
    "dashboard": "dashboard:fleet_dashboard",
    "reconcile": "reconcile:fleet",
    "where": "where:fleet",
}
# What to do instead of a command or an option that is gone.
REMOVED: Mapping[str, str] = {
    "top": "write: costprobe status --watch",
    "allocation": "write: costprobe spend",
    **{
        f"fleet {name}": f"write: costprobe {name} --fleet"
        for name in ("status", "spend", "compare", "savings", "report", "forecast", "dashboard")
    },
    "dashboard --amount": "add a [[fleet.watch.budget]]",
    "dashboard --currency": "add a [[fleet.watch.budget]]",
    "sink status": "write: costprobe status",
    "silence list": "write: costprobe alerts",
    "influx tasks": "write: costprobe influx setup --tasks FOLDER",
    "trend --basis": "write: --label basis=probe, or basis=serving",
    "trend --exact": "--json and --csv have every value",
    "debug bundle --force": "name another file",
    "config show --json": "it prints TOML, which a program can read",
    **{
        f"{name} --json": "the exit code says whether it worked"
        for name in (
            *("config init", "grafana export", "grafana provision", "influx setup"),
            *("install", "uninstall", "debug bundle", "store backup", "store compact"),
            *("sink retry", "silence end", "price update", "alerts test"),
        )
    },
}


def _refuse_removed(args: Sequence[str]) -> None:
    """Refuse a command or an option that is gone.

    Raises:
        click.ClickException: With exit code 2, and what to type instead.
    """
    for count in (1, 2):
        path = " ".join(args[:count])
        for name in (path, *(f"{path} {arg.partition('=')[0]}" for arg in args[count:])):
            if name in REMOVED:
                raise bad_input(f"`costprobe {name}` is gone; {REMOVED[name]}")


class MainGroup(LazyGroup):
    """All commands, in sections; most of them give up root's rights before they start."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names from the table, without loading a command, and options."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell needs it

        names = [
            CompletionItem(name, help=line)
            for name, line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; no file, name or text can contain a NUL."""
        if any("\0" in str(arg) for arg in args):
            ctx.fail("an argument contains a NUL character; remove it")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, for a run or a completion, and give up root's rights before it starts."""
        if not ctx.resilient_parsing:
            _refuse_removed(args)
        twin = f"{args[0]}{FLEET}"
        if FLEET.strip() in args and twin in self.modules:
            args = [twin, *(arg for arg in args[1:] if arg != FLEET.strip())]
        name, command, arguments = super().resolve_command(ctx, args)
        if name in COMMANDS and name not in KEEPS_ROOT:
            try:
                ctx.meta[STORE_USER] = act_as_store_user(ctx.params.get("config_path"))
            except click.ClickException:
                if not ctx.resilient_parsing:
                    raise
                # No completion of values: the store refuses to be opened by root.
        return name, command, arguments

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command; a file, a pipe or a stored document that fails ends it with one line.

        Click itself ends a command whose output is not read any more, such as `export | head`.
        """
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except click.ClickException as error:
            explain(error.message, ctx.meta.get(STORE_USER))
            hint = ""
            if isinstance(error, click.NoSuchOption) and any(
                error.option_name in option.opts for option in self.params
            ):
                hint = f" It goes before the command: costprobe {error.option_name} ... {ctx.invoked_subcommand}"
                vars(error)["possibilities"] = None
            # A message may quote a server, a module or the store.
            columns = terminal_columns(err=True)
            shown = [one_line(line) for line in f"{_ERROR}{error.message}{hint}".split("\n")]
            fitted = "\n".join(part for line in shown for part in wrapped(line, columns))
            vars(error)["message"] = fitted.removeprefix(_ERROR)
            raise
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            explain(str(error), ctx.meta.get(STORE_USER))
            prefix = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{prefix}{error.strerror or error}") from error
        except OutsideError as error:
            raise bad_input(one_line(str(error))) from error
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands from the table by section, without loading them."""
        width = max(map(len, COMMANDS))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(f"{name:{width}}", line) for name, line in commands.items()])


@click.group(
    cls=MainGroup,
    modules={
        place: f"costprobe.ui.cli.{module}"
        for name in COMMANDS
        for place, module in (
            (name, f"{name}:command"),
            (f"{name}{FLEET}", OF_FLEET.get(name)),
        )
        if module
    },
    epilog=f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        "costprobe run  # run the daemon; without a configuration file in demo mode",
        "costprobe status  # state of the daemon",
        "costprobe trend --since 7d  # cost per inference of the last week",
    ),
)
@click.version_option(__version__, prog_name="costprobe")
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(readable=False),
    envvar="COSTPROBE_CONFIG",
    help="Configuration file (default: /etc/costprobe/costprobe.toml if there is one).",
)
@click.option("--no-color", is_flag=True, help="Never print colours; the same as NO_COLOR.")
@click.pass_context
def main(ctx: click.Context, config_path: str | None, *, no_color: bool) -> None:
    """Measure the cost of one inference on this host, and explain why it changes."""
    _accept_any_text()
    # Most commands, or their child processes, read secrets.
    forbid_core_dumps()
    ctx.obj = config_path
    ctx.color = colour_of(os.environ, refused=no_color)


def _accept_any_text() -> None:
    """Print also what the encoding of the terminal lacks, such as a file's name that is no UTF-8."""
    if sys.stdout is None:
        # Closed by the shell: `>&-`.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
