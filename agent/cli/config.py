"""`infercost config`: write, check and show the configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from agent.cli.config_template import render
from agent.cli.discovery import discovered_devices
from agent.cli.settings import BadInputError, Settings, bad_input
from agent.cli.shown_config import shown
from agent.config_file import ConfigError, as_toml_tables
from agent.config_place import SYSTEM_PATH


@click.group()
def command() -> None:
    """Write, check and show the configuration."""


@command.command()
@click.argument("path", type=click.Path(path_type=Path), default=SYSTEM_PATH)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Where it is and what it holds, as JSON.")
def init(path: Path, *, force: bool, as_json: bool) -> None:
    """Writes a commented file for the hardware of this host to PATH ("-": standard output)."""
    text = render(discovered_devices(), os.cpu_count() or 1)
    if str(path) == "-":
        click.echo(json.dumps({"path": None, "text": text}) if as_json else text, nl=as_json)
        return
    if path.exists() and not force:
        raise bad_input(f"{path}: is there already; see it, or replace it with --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise bad_input(
            f"{path}: cannot be written ({error.strerror}); name another path"
        ) from error
    if as_json:
        click.echo(json.dumps({"path": str(path), "text": text}))
        return
    click.echo(f"{path}: written; put your price into it, then: infercost -c {path} run")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, with every error.")
@click.pass_obj
def check(config: str | None, *, as_json: bool) -> None:
    """Reads the file and names every error in it; exit code 2 if there is one."""
    try:
        settings = Settings(config)
    except BadInputError as error:
        if as_json and isinstance(error.__cause__, ConfigError):
            click.echo(json.dumps(_bad(error.__cause__)))
        raise
    if settings.path is None:
        raise bad_input("no configuration file; write one with: infercost config init")
    found = _good(settings)
    if as_json:
        click.echo(json.dumps(found))
        return
    told = f"{found['rules']} rules, {found['notifiers']} notifiers"
    counts = f"{found['probes']} probes, {found['prices']} price plans, {told}"
    click.echo(f"{settings.path}: good ({counts})")
    for note in found["notes"]:
        click.echo(f"note: {note}")


def _good(settings: Settings) -> dict[str, Any]:
    wanted = settings.config
    notes = []
    if not wanted.probe:
        notes.append("no [[probe]], so nothing is measured but the devices' telemetry")
    if not wanted.price:
        notes.append("no [[price]], so list prices are assumed and tagged so")
    return {
        "path": str(settings.path),
        "good": True,
        "problems": [],
        "probes": len(wanted.probe),
        "prices": len(wanted.price),
        "rules": len(wanted.rule),
        "notifiers": len(wanted.notifier),
        "notes": notes,
    }


def _bad(error: ConfigError) -> dict[str, Any]:
    return {"path": str(error.path), "good": False, "problems": list(error.problems)}


@command.command()
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def show(config: str | None, *, as_json: bool) -> None:
    """Prints the configuration in force, defaults included, as TOML.

    What the queries of addresses hold, and the arguments of commands, is shown as ***: keys may be
    among it.
    """
    import tomli_w  # noqa: PLC0415 - only this command writes TOML

    settings = Settings(config)
    tables = shown(as_toml_tables(settings.config))
    if as_json:
        path = None if settings.path is None else str(settings.path)
        document = {"path": path, "store": str(settings.store_path), "config": tables}
        click.echo(json.dumps(document))
        return
    click.echo(f"# {settings.path or 'no file: the try-out'}; store: {settings.store_path}")
    click.echo(tomli_w.dumps(tables), nl=False)
