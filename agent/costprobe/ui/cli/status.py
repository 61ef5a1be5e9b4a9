"""`costprobe status`: the state of each part, last results, sink lag, faults."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from costprobe.adapters.store.database import decoding
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.control_client import current_status
from costprobe.ui.cli.support.option_types import FLEET_OPTION
from costprobe.ui.cli.support.output import Role, echo, echo_json, echo_lines
from costprobe.ui.cli.support.place import (
    NOT_RUNNING,
    BadInputError,
    NotRunningError,
    Settings,
    reader_of,
)
from costprobe.ui.cli.views.status_lines import lines_of, outbox_document
from costprobe.ui.incidents import is_running

_PAINTED: tuple[tuple[str, Role], ...] = (
    ("  FAULT  ", "bad"),
    ("NOT RUNNING", "bad"),
    (" is exceeded", "bad"),
    ("         critical: ", "bad"),
    ("         warning: ", "note"),
    (" will be exceeded", "note"),
    ("late     ", "note"),
    ("missing counter", "note"),
    (": running for ", "good"),
)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe status  # state of each part",
        "costprobe status --json  # the same for scripts",
        "costprobe status --watch  # devices, costs, sinks, budgets and alerts, live until q",
    ),
)
@click.option(
    "--watch",
    "is_live",
    is_flag=True,
    help="Show devices, costs, sinks, budgets and alerts live; without a terminal once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as JSON.")
@FLEET_OPTION
@click.pass_obj
def command(config: str | None, *, is_live: bool, as_json: bool) -> None:
    """Show the daemon's status, or its last one; exit code 3 if it is not running.

    With --watch until q or Ctrl-C: a narrow terminal shows the most important columns; the arrow keys,
    space and tab reach all lines. Its status and alerts are the running daemon's, or else the last stored.
    """
    if is_live:
        # Imported here: the status alone is quicker.
        from costprobe.ui.cli.watch import watch  # noqa: PLC0415

        watch(config, as_json=as_json)
        return
    place = Settings(config)
    with decoding(place.store_path):
        current = current_status(place)
        stored = _stored(place, has_daemon=current is not None)
        # If the store cannot be written, the stored status is old; the daemon returns the current one.
        status = (
            {
                **(stored or {"alerts": [], "detectable": [], "noisy_services": [], "outbox": {}}),
                **current,
            }
            if current
            else stored
        )
        if status is None:
            raise NotRunningError(
                f"{place.store_path}: no daemon has written a status yet; start one: costprobe run"
            )
        lines = [] if as_json else lines_of(status)
    if as_json:
        echo_json(status)
    else:
        echo_lines(lines, _PAINTED)
    sys.exit(0 if status["running"] else NOT_RUNNING)


def _stored(place: Settings, *, has_daemon: bool) -> dict[str, Any] | None:
    """Return the last status in the store; None if there is none.

    Args:
        place: The store.
        has_daemon: Whether a daemon answers, so that an unreadable store is not all that is known.

    Raises:
        click.ClickException: The store cannot be read, and no daemon answers.
    """
    try:
        with reader_of(place) as reader:
            states = reader.states()
            sinks = reader.sinks()
    except BadInputError:
        raise
    except click.ClickException as error:
        if not has_daemon:
            raise
        echo(error.message, err=True)
        return None
    stored = states.get("status")
    if stored is None:
        return None
    status: dict[str, Any] = stored[0]
    written_ns = stored[1]
    status["age_s"] = max(0.0, (time.time_ns() - written_ns) / 1e9)
    status["running"] = is_running(status)
    alerts, _ = states.get("alerts", ({"alerts": []}, 0))
    status["alerts"] = alerts["alerts"]
    status["detectable"] = alerts.get("detectable", [])
    status["noisy_services"] = alerts.get("noisy_services", [])
    status["outbox"] = {sink.sink: outbox_document(sink) for sink in sinks}
    return status
