"""`infercost config`: write, check and show the configuration."""

from __future__ import annotations

import os
from pathlib import Path

import click

from agent.cli.config_template import render
from agent.cli.discovery import discovered_devices
from agent.cli.settings import Settings, bad_input
from agent.cli.shown_config import shown
from agent.config_file import as_toml_tables
from agent.config_place import SYSTEM_PATH


@click.group()
def command() -> None:
    """Write, check and show the configuration."""


@command.command()
@click.argument("path", type=click.Path(path_type=Path), default=SYSTEM_PATH)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(path: Path, *, force: bool) -> None:
    """Writes a commented file for the hardware of this host to PATH ("-": standard output)."""
    text = render(discovered_devices(), os.cpu_count() or 1)
    if str(path) == "-":
        click.echo(text, nl=False)
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
    click.echo(f"{path}: written; put your price into it, then: infercost -c {path} run")


@command.command()
@click.pass_obj
def check(config: str | None) -> None:
    """Reads the file and names every error in it."""
    settings = Settings(config)
    if settings.path is None:
        raise bad_input("no configuration file; write one with: infercost config init")
    wanted = settings.config
    probes, prices = len(wanted.probe), len(wanted.price)
    told = f"{len(wanted.rule)} rules, {len(wanted.notifier)} notifiers"
    click.echo(f"{settings.path}: good ({probes} probes, {prices} price plans, {told})")
    if not probes:
        click.echo("note: no [[probe]], so nothing is measured but the devices' telemetry")
    if not prices:
        click.echo("note: no [[price]], so list prices are assumed and tagged so")


@command.command()
@click.pass_obj
def show(config: str | None) -> None:
    """Prints the configuration in force, defaults included, as TOML.

    What the queries of addresses hold, and the arguments of commands, is shown as ***: keys may be
    among it.
    """
    import tomli_w  # noqa: PLC0415 - only this command writes TOML

    settings = Settings(config)
    click.echo(f"# {settings.path or 'no file: the try-out'}; store: {settings.store_path}")
    click.echo(tomli_w.dumps(shown(as_toml_tables(settings.config))), nl=False)
