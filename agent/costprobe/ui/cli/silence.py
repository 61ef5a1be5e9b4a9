"""`costprobe silence`: matching incidents send no notifications for a period."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import click

from costprobe.core.records import NS_PER_S
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.control_client import ask, user_name
from costprobe.ui.cli.support.known_names import SILENCES
from costprobe.ui.cli.support.option_types import LABEL_VALUE, TIMESPAN
from costprobe.ui.cli.support.output import echo, echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input
from costprobe.ui.text import ago, labels_text, local


@click.group(
    invoke_without_command=True,
    cls=ExampleGroup,
    examples=(
        "costprobe silence --match device=gpu0 --for 2h --comment 'fan swap'  # silence a device",
    ),
)
@click.option(
    "--match",
    "patterns",
    type=LABEL_VALUE,
    multiple=True,
    metavar="LABEL=PATTERN",
    help="Label and pattern (device, probe, rule, severity, ...); * and ? are wildcards."
    " May be repeated: all must match.",
)
@click.option("--for", "for_s", type=TIMESPAN, help='Duration, such as "2h".')
@click.option("--comment", help="Reason.")
@click.option(
    "--starts-in",
    "starts_in_s",
    type=TIMESPAN,
    default=0.0,
    help='Delay before it starts, such as "30m".',
)
@click.option("--json", "as_json", is_flag=True, help="Print the silence as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    patterns: Sequence[tuple[str, str]],
    for_s: float | None,
    comment: str | None,
    starts_in_s: float,
    as_json: bool,
) -> None:
    """Silence matching incidents: they are still detected and listed, but not sent.

    An incident that is still firing when the silence ends is sent then.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not patterns or for_s is None or not comment:
        raise bad_input(
            "give --match, --for and --comment: costprobe silence --match device=gpu3 --for 2h"
            ' --comment "fan is being replaced"'
        )
    starts_ns = time.time_ns() + int(starts_in_s * NS_PER_S)
    request = {
        "do": "silence",
        "id": secrets.token_hex(4),
        "match": dict(patterns),
        "starts_ns": starts_ns,
        "ends_ns": starts_ns + int(for_s * NS_PER_S),
        "comment": comment,
        "author": user_name(),
    }
    added = ask(Settings(ctx.obj), request)
    lines = [
        f"silence {added['id']} until {local(added['ends_ns'])}: {labels_text(added['match'])}",
        f"end it with: costprobe silence end {added['id']}",
    ]
    echo_answer(added, lines, as_json=as_json)


@command.command(
    "end",
    examples=("costprobe silence end 0a1b2c3d  # end a silence by its ID",),
)
@click.argument("silence_id", metavar="ID", shell_complete=SILENCES)
@click.pass_obj
def end(config: str | None, *, silence_id: str) -> None:
    """End a silence now."""
    ended = ask(Settings(config), {"do": "unsilence", "id": silence_id})
    echo(f"silence {ended['id']} has ended: {labels_text(ended['match'])}")


def silence_line(silence: dict[str, Any], now_ns: int) -> str:
    """Return a silence as a readable line."""
    if silence["starts_ns"] > now_ns:
        when = f"starts in {ago((silence['starts_ns'] - now_ns) / NS_PER_S)}"
    else:
        when = f"{ago((silence['ends_ns'] - now_ns) / NS_PER_S)} left"
    return f"{silence['id']}  {when}  {labels_text(silence['match'])}  {silence['comment']} ({silence['author']})"
