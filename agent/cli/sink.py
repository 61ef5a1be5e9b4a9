"""`infercost sink`: what each sink got, what it refused, and a retry at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from agent.cli.asking import ask
from agent.cli.colour import paint
from agent.cli.completing import SINKS
from agent.cli.settings import Settings, bad_input, reader_of
from agent.cli.timespan import ago, iso, local
from agent.storage.outbox import SinkStatus
from agent.storage.reader import StoreReader


@click.group()
def command() -> None:
    """What each sink got, what it refused, and a retry at once."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def status(config: str | None, *, as_json: bool) -> None:
    """Shows how far each sink has got with what is stored."""
    with reader_of(Settings(config)) as reader:
        said, _ = reader.states().get("status", ({}, 0))
        now = said.get("sinks", {})
        entries = [{**_entry(sink), **now.get(sink.sink, {})} for sink in reader.sinks()]
    if as_json:
        click.echo(json.dumps(entries))
    elif not entries:
        click.echo("no sink: the series stay in the store; set [[sink]]")
    for entry in [] if as_json else entries:
        last = "never" if entry["acked_ns"] is None else local(entry["acked_ns"])
        click.echo(
            f"{entry['sink']}: {entry.get('state', 'unknown')}, {entry['sent_points']:,} sent,"
            f" {entry['waiting_points']:,} wait, {entry['rejected_points']:,} refused,"
            f" {entry['dropped_points']:,} dropped; last progress {last}"
        )
        if entry.get("last_error"):
            again = entry.get("retry_in_s")
            when = "" if again is None else f"; tried again in {ago(again)}"
            click.echo(paint(f"  {entry['last_error']}{when}", "bad"))


@command.command()
@click.argument("name", required=False, shell_complete=SINKS)
@click.option("--json", "as_json", is_flag=True, help="The sinks' names, as JSON.")
@click.pass_obj
def retry(config: str | None, *, name: str | None, as_json: bool) -> None:
    """Has the running daemon try the sink NAME again at once, or all of them."""
    request: dict[str, Any] = {"do": "retry"}
    names = ask(Settings(config), request | ({"sink": name} if name else {}))
    if as_json:
        click.echo(json.dumps({"sinks": names}))
        return
    click.echo(f"tried again: {', '.join(names)}" if names else "no sink is configured")


@command.command()
@click.argument("name", required=False, shell_complete=SINKS)
@click.option("--json", "as_json", is_flag=True, help="Lines, reasons and times as JSON.")
@click.option(
    "--export",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the refused lines to a file, as line protocol.",
)
@click.pass_obj
def rejected(config: str | None, *, name: str | None, as_json: bool, file: Path | None) -> None:
    """Lists the newest points that the sink NAME, or any, refused for good, and why."""
    with reader_of(Settings(config)) as reader:
        entries = _rejected(reader, name)
    if file is not None:
        if file.exists():
            raise bad_input(f"{file}: is there already; name another file")
        file.write_text("".join(f"{entry['line']}\n" for entry in entries))
        click.echo(f"{file}: {len(entries)} lines", err=as_json)
    if as_json:
        click.echo(json.dumps(entries))
    elif not entries and file is None:
        click.echo("nothing was refused")
    for entry in entries if not as_json and file is None else []:
        click.echo(f"{entry['time']}  {entry['sink']}  {entry['reason']}\n    {entry['line']}")


def _entry(sink: SinkStatus) -> dict[str, Any]:
    return {
        "sink": sink.sink,
        "sent_points": sink.sent_points,
        "waiting_points": sink.backlog.points,
        "rejected_points": sink.rejected_points,
        "dropped_points": sink.dropped_points,
        "acked_ns": sink.acked_ns,
    }


def _rejected(reader: StoreReader, name: str | None) -> list[dict[str, Any]]:
    known = [sink.sink for sink in reader.sinks()]
    if name is not None and name not in known:
        there = f"there are {', '.join(known)}" if known else "there is none"
        raise bad_input(f"no sink {name!r}; {there}")
    return [
        {"time": iso(time_ns), "sink": sink, "line": refused.line, "reason": refused.reason}
        for sink in known
        if name in (None, sink)
        for time_ns, refused in reader.rejected(sink)
    ]
