"""`costprobe sink`: rejected points, and an immediate retry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from costprobe.adapters.host.files import write_new
from costprobe.adapters.store.read import StoreReader
from costprobe.core.periods import iso
from costprobe.core.units import counted
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.control_client import ask
from costprobe.ui.cli.support.known_names import SINKS, unknown_name
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of


@click.group(cls=ExampleGroup)
def command() -> None:
    """List rejected points, and retry; `costprobe status` has the state of each sink."""


@command.command(
    examples=("costprobe sink retry influxdb  # retry now instead of after the back-off",),
)
@click.argument("name", required=False, shell_complete=SINKS)
@click.pass_obj
def retry(config: str | None, *, name: str | None) -> None:
    """Make the running daemon retry the sink NAME, or all sinks, immediately."""
    request: dict[str, Any] = {"do": "retry"}
    names = ask(Settings(config), request | ({"sink": name} if name else {}))
    echo(f"retried: {', '.join(names)}" if names else "no sink is configured")


@command.command(
    examples=(
        (
            "costprobe sink rejected influxdb --export rejected.lp"
            "  # points that the database rejected, as line protocol"
        ),
    ),
)
@click.argument("name", required=False, shell_complete=SINKS)
@click.option("--json", "as_json", is_flag=True, help="Print lines, reasons and times as JSON.")
@click.option(
    "--export",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write the rejected lines to, as line protocol.",
)
@click.pass_obj
def rejected(config: str | None, *, name: str | None, as_json: bool, file: Path | None) -> None:
    """List the newest points that the sink NAME, or any sink, rejected permanently, with reasons."""
    with reader_of(Settings(config)) as reader:
        entries = _rejected(reader, name)
    if file is not None:
        try:
            write_new(file, "".join(f"{entry['line']}\n" for entry in entries).encode())
        except FileExistsError as error:
            raise bad_input(f"{file}: already exists; choose another file") from error
        echo(f"{file}: {counted(len(entries), 'line')}", err=as_json)
    if as_json:
        echo_json(entries)
    elif not entries and file is None:
        echo("no point was rejected")
    for entry in entries if not as_json and file is None else []:
        echo_lines([f"{entry['time']}  {entry['sink']}  {entry['reason']}", f"    {entry['line']}"])


def _rejected(reader: StoreReader, name: str | None) -> list[dict[str, Any]]:
    names = [sink.sink for sink in reader.sinks()]
    if name is not None and name not in names:
        raise unknown_name("sink", name, names)
    return [
        {"time": iso(time_ns), "sink": sink, "line": refused.line, "reason": refused.reason}
        for sink in names
        if name in (None, sink)
        for time_ns, refused in reader.rejected(sink)
    ]
