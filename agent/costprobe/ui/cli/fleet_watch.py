"""`costprobe fleet watch`: checks of the whole fleet, again and again; and `costprobe budget --fleet`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import click

from costprobe.adapters.databases.kinds import fleet_reader
from costprobe.adapters.host.log import line_head, start_logging
from costprobe.adapters.http.errors import DeliveryError
from costprobe.adapters.store.database import StoreError
from costprobe.configuration import Config
from costprobe.core.clock import SystemClock
from costprobe.core.incident import Fault
from costprobe.core.outside import one_line
from costprobe.core.records import NS_PER_S
from costprobe.core.units import counted
from costprobe.fleet.settings import FleetSection
from costprobe.fleet.watch import FleetBudgets, FleetQuery, FleetWatch, PartialAnswerError
from costprobe.spend.budget import forecast_words
from costprobe.ui.cli.budget import echo_budgets
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fleet_options import fleet_config, no_fleet
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, unusable_store
from costprobe.ui.cli.support.signals import handle_signals


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet watch --once  # check once, print what would be reported, and exit",
        "costprobe -c /etc/costprobe/fleet.toml fleet watch --once --json  # the same for a program",
    ),
)
@click.option("--once", is_flag=True, help="Check once, print what is found, and notify nobody.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print JSON.")
@click.pass_obj
def watch(config: str | None, *, once: bool, as_json: bool) -> None:
    """Watch all hosts and notify: silent hosts, outliers, drift, budgets.

    Runs until Ctrl-C or SIGTERM, as the service costprobe-fleet does; SIGHUP reloads the file. It needs a
    configuration file and a store of its own. Of several watchers of one fleet that write to its database, one notifies.
    """
    settings = Settings(config)
    fleet = settings.config.fleet
    if fleet is None:
        raise no_fleet(settings)
    if once:
        _once(settings.config, fleet, as_json=as_json)
        return
    if as_json:
        raise bad_input("--json: add --once")
    _run(settings)


@click.command(
    cls=ExampleCommand,
    examples=("costprobe budget --fleet  # spend of all hosts and each [[fleet.watch.budget]]",),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def budget(config: str | None, *, as_json: bool) -> None:
    """Show spend and forecast of each budget of the fleet, [[fleet.watch.budget]], for its period."""
    fleet = fleet_config(config)
    if not fleet.watched.budget:
        raise bad_input(
            "no budget of the fleet is configured; add a [[fleet.watch.budget]], see docs/fleet.md"
        )
    budgets = FleetBudgets(fleet.watched.budget, {})
    with closing(fleet_reader(fleet, SystemClock())) as reader:
        try:
            budgets.evaluate(FleetQuery(reader, time.time_ns()))
        except (DeliveryError, PartialAnswerError) as error:
            raise click.ClickException(str(error)) from error
    echo_budgets(budgets.statuses, as_json=as_json)


def _run(settings: Settings) -> None:
    # Imported here: other commands of this group do not need the daemon's parts.
    from costprobe.daemon.fleet_watch import FleetWatcher, watch_problem  # noqa: PLC0415
    from costprobe.daemon.systemd import SystemdNotifier  # noqa: PLC0415

    problem = watch_problem(settings.config)
    if problem or settings.path is None:
        raise bad_input(f"{settings.path}: {problem}")
    clock = SystemClock()
    notifier = SystemdNotifier.taken_from(os.environ, clock)
    log = start_logging(os.environ, sys.stderr)
    try:
        service = FleetWatcher(settings.config, settings.path, clock, notifier)
        handle_signals(service)
        url = settings.config.fleet.url if settings.config.fleet else ""
        ready = f"watching the fleet of {url}; store: {settings.store_path}"
        service.run(on_ready=lambda: echo(f"{line_head(sys.stdout, time.time())}{ready}"))
    except StoreError as error:
        raise unusable_store(error) from error
    finally:
        log.close()


def _once(config: Config, fleet: FleetSection, *, as_json: bool) -> None:
    """Run all checks, and print what they find."""
    with closing(fleet_reader(fleet, SystemClock())) as reader:
        found = FleetWatch(fleet, reader, config.host.labels)
        found.evaluate(time.time_ns() // NS_PER_S * NS_PER_S)
    faults = found.faults()
    if as_json:
        echo_json(
            {
                "hosts": found.hosts.hosts,
                "silent": found.hosts.silent,
                "is_partial": bool(found.failing),
                "problems": [f"{name}: {reason}" for name, reason in found.failing.items()],
                "found": [_document(fault) for fault in faults if fault.name != "fleet_unread"],
                "budgets": [
                    {
                        "budget": status.budget.name,
                        "currency": status.budget.currency,
                        "amount": status.amount,
                        "spent": status.spent,
                        "forecast": status.expected,
                        "verdict": status.verdict(status.amount),
                    }
                    for status in found.budgets.statuses
                ],
            }
        )
    else:
        echo_lines(_lines(found, faults), [("critical", "bad"), ("warning", "note")])
    if found.failing:
        raise click.ClickException("; ".join(f"{n}: {r}" for n, r in found.failing.items()))


def _document(fault: Fault) -> dict[str, object]:
    return {
        "kind": fault.name,
        "severity": fault.severity,
        "labels": dict(fault.labels),
        "text": fault.words,
        "cause": fault.cause or None,
        "detail": fault.detail or None,
        "value": fault.value,
    }


def _lines(found: FleetWatch, faults: Sequence[Fault]) -> Iterator[str]:
    yield f"{counted(found.hosts.hosts, 'host')}, {found.hosts.silent:,} silent"
    for fault in faults:
        if fault.name != "fleet_unread":
            yield f"{fault.severity}: {one_line(fault.words)}"
            if fault.detail:
                yield f"  {one_line(fault.detail)}"
    severities = {"exceeded": "critical: ", "will be exceeded": "warning: "}
    for status in found.budgets.statuses:
        yield f"{severities.get(status.verdict(status.amount), '')}{forecast_words(status)}"
