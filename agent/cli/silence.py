"""`infercost silence`: nobody is told of matched incidents for a while."""

from __future__ import annotations

import getpass
import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

import click

from agent.cli.asking import ask
from agent.cli.completing import SILENCES
from agent.cli.settings import Settings, bad_input
from agent.cli.timespan import ago, local
from agent.model import NS_PER_S
from agent.units import parse_duration_s


class Duration(click.ParamType[float]):
    """Seconds, from text such as "2h"."""

    name = "duration"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return parse_duration_s(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group(invoke_without_command=True)
@click.option(
    "--match",
    "patterns",
    multiple=True,
    metavar="LABEL=PATTERN",
    help="An incident's label (device, probe, rule, severity, ...); * and ? are wildcards."
    " May be given several times: all must match.",
)
@click.option("--for", "for_s", type=Duration(), help='How long: "2h".')
@click.option("--comment", help="Why.")
@click.option("--starts-in", "starts_in_s", type=Duration(), default=0.0, help='When: "30m".')
@click.option("--json", "as_json", is_flag=True, help="The silence, as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    patterns: Sequence[str],
    for_s: float | None,
    comment: str | None,
    starts_in_s: float,
    as_json: bool,
) -> None:
    """Silences matched incidents: they are found and listed, and nobody is told.

    If one still fires when the silence ends, it is told then.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not patterns or for_s is None or not comment:
        raise bad_input(
            "give --match, --for and --comment: infercost silence --match device=gpu3 --for 2h"
            ' --comment "fan is being replaced"'
        )
    starts_ns = time.time_ns() + int(starts_in_s * NS_PER_S)
    request = {
        "do": "silence",
        "id": secrets.token_hex(4),
        "match": dict(_pattern(text) for text in patterns),
        "starts_ns": starts_ns,
        "ends_ns": starts_ns + int(for_s * NS_PER_S),
        "comment": comment,
        "author": getpass.getuser(),
    }
    added = ask(Settings(ctx.obj), request)
    if as_json:
        click.echo(json.dumps(added))
        return
    click.echo(f"silence {added['id']} until {local(added['ends_ns'])}: {_matched(added)}")
    click.echo(f"end it with: infercost silence end {added['id']}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def list_(config: str | None, *, as_json: bool) -> None:
    """Lists the silences that hold or will."""
    found = ask(Settings(config), {"do": "silences"})
    if as_json:
        click.echo(json.dumps(found))
        return
    if not found:
        click.echo("no silence holds")
    for silence in found:
        click.echo(silence_line(silence, time.time_ns()))


@command.command("end")
@click.argument("silence_id", metavar="ID", shell_complete=SILENCES)
@click.option("--json", "as_json", is_flag=True, help="The silence that was ended, as JSON.")
@click.pass_obj
def end(config: str | None, *, silence_id: str, as_json: bool) -> None:
    """Ends a silence now."""
    ended = ask(Settings(config), {"do": "unsilence", "id": silence_id})
    if as_json:
        click.echo(json.dumps(ended))
        return
    click.echo(f"silence {ended['id']} has ended: {_matched(ended)}")


def silence_line(silence: dict[str, Any], now_ns: int) -> str:
    """A silence in a line, for people."""
    if silence["starts_ns"] > now_ns:
        when = f"begins in {ago((silence['starts_ns'] - now_ns) / NS_PER_S)}"
    else:
        when = f"{ago((silence['ends_ns'] - now_ns) / NS_PER_S)} left"
    return (
        f"{silence['id']}  {when}  {_matched(silence)}  {silence['comment']} ({silence['author']})"
    )


def _matched(silence: dict[str, Any]) -> str:
    return " ".join(f"{label}={pattern}" for label, pattern in sorted(silence["match"].items()))


def _pattern(text: str) -> tuple[str, str]:
    label, equals, pattern = text.partition("=")
    if not label or not equals or not pattern:
        raise bad_input(f'--match {text!r}: write LABEL=PATTERN, such as "device=gpu3"')
    return label, pattern
