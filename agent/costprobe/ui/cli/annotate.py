"""`costprobe annotate`: an event that may explain a change of cost, such as a deployment."""

from __future__ import annotations

from typing import Any

import click

from costprobe.core.periods import iso
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.control_client import ask, user_name
from costprobe.ui.cli.support.known_names import (
    STORED_DEVICES,
    STORED_PROBES,
    STORED_SERVICES,
    check_names,
)
from costprobe.ui.cli.support.option_types import MOMENT
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of
from costprobe.ui.text import local


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe annotate 'deployed v42'  # an event on the whole host, now",
        "costprobe annotate 'new batch limit' --probe ranker --at 20m  # of a probe, 20 minutes ago",
    ),
)
@click.argument("text", required=False)
@click.option("--service", shell_complete=STORED_SERVICES, help="Service that it concerns.")
@click.option("--probe", shell_complete=STORED_PROBES, help="Probe that it concerns.")
@click.option("--device", shell_complete=STORED_DEVICES, help="Device that it concerns.")
@click.option(
    "--left", is_flag=True, help="The board with the UUID of --device was removed for good."
)
@click.option("--at", "at_ns", type=MOMENT, help='"5m" ago, or a date and time (default: now).')
@click.option("--json", "as_json", is_flag=True, help="Print the annotation as JSON.")
@click.pass_obj
def command(
    config: str | None,
    /,
    *,
    text: str | None,
    left: bool,
    at_ns: int | None,
    as_json: bool,
    **subject: str | None,
) -> None:
    """Annotate a change: it is shown on charts and examined as a cause of drifts.

    Without --service, --probe and --device it concerns everything on the host. The same text at the
    same time is stored once. An absent board is reported by an alert until it is back, or --left.
    """
    settings = Settings(config)
    if text is None and not left:
        raise bad_input("say what changed: costprobe annotate 'deployed v42'")
    if left and subject["device"] is None:
        raise bad_input("--left needs --device with the UUID of the board: see costprobe status")
    if any(subject.values()) and not left:
        with reader_of(settings) as reader:
            check_names(reader, settings, subject)
    request: dict[str, Any] = {"do": "annotate", "author": user_name(), **subject}
    if text is not None:
        request["text"] = text
    if left:
        request["left"] = left
    if at_ns is not None:
        request["at"] = iso(at_ns)
    added = ask(settings, request)
    done = f"annotated at {local(added['time_ns'])}: {added['text']}"
    echo_answer(added, [done], as_json=as_json)
