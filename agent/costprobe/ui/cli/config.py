"""`costprobe config`: write, check and show the configuration."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from costprobe.adapters.host.files import replace_file, write_new
from costprobe.configuration import demo_config
from costprobe.core.config.load import ConfigError, as_toml_tables
from costprobe.core.config.location import SYSTEM_PATH, SYSTEM_STORE, default_store
from costprobe.core.units import counted
from costprobe.pricing.prices import assumed_prices, host_detector
from costprobe.ui.cli.support.checks import device_notes, module_problems, source_file_findings
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.config_sample import host_sample, shown
from costprobe.ui.cli.support.discovery import discovered_devices
from costprobe.ui.cli.support.output import echo, echo_answer, echo_file, echo_json
from costprobe.ui.cli.support.place import BadInputError, Settings, bad_input, may_write
from costprobe.ui.cli.support.store_user import act_as_owner_of


@click.group(cls=ExampleGroup)
def command() -> None:
    """Write, check and show the configuration."""


@command.command(
    examples=(
        "costprobe config init costprobe.toml  # a commented file for this host",
        "costprobe config init -  # print it instead",
    ),
)
@click.argument("path", type=click.Path(path_type=Path), default=SYSTEM_PATH)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(path: Path, *, force: bool) -> None:
    """Write a commented file for the hardware of this host to PATH ("-": standard output)."""
    if str(path) != "-":
        act_as_owner_of(path)
    demo = demo_config()
    store = None if may_write(SYSTEM_STORE) else default_store(None)
    assumed = assumed_prices(demo.price, demo.host, store or SYSTEM_STORE, host_detector())
    text = host_sample(discovered_devices(), assumed, time.time_ns(), store)
    if str(path) == "-":
        echo_file(text.splitlines())
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write = replace_file if force else write_new
        write(path, text.encode())
    except OSError as error:
        if isinstance(error, FileExistsError) and str(error.filename) == str(path):
            raise bad_input(f"{path}: already exists; replace it with --force") from error
        raise bad_input(
            f"{path}: cannot be written ({error.strerror}); name another path, such as costprobe.toml"
        ) from error
    echo(f"{path}: written; set your price, then run: costprobe -c {path} run")


@command.command(
    examples=("costprobe config check  # report every error in the file",),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every error.")
@click.pass_obj
def check(config: str | None, *, as_json: bool) -> None:
    """Check the file and report every error in it; exit code 2 if there is one."""
    settings = Settings(config)
    if settings.path is None:
        raise bad_input("no configuration file; write one with: costprobe config init FILE")
    try:
        problems, notes = source_file_findings(settings.config)
        problems += module_problems(settings.config.probe)
        if problems:
            refused = ConfigError(settings.path, problems)
            raise bad_input(str(refused)) from refused
    except BadInputError as error:
        if as_json and isinstance(error.__cause__, ConfigError):
            found = error.__cause__
            echo_json({"path": str(found.path), "good": False, "problems": list(found.problems)})
        raise
    checked = _valid_document(settings, [*notes, *device_notes(settings.config)])
    alerting = f"{counted(checked['rules'], 'rule')}, {counted(checked['notifiers'], 'notifier')}"
    counts = f"{counted(checked['probes'], 'probe')}, {counted(checked['prices'], 'price plan')}, {alerting}"
    lines = [f"{settings.path}: good ({counts})", *(f"note: {note}" for note in checked["notes"])]
    echo_answer(checked, lines, as_json=as_json)


def _valid_document(settings: Settings, notes: list[str]) -> dict[str, Any]:
    config = settings.config
    if not config.probe:
        notes.append("no [[probe]]: only the devices' telemetry is measured")
    if not config.price:
        notes.append(
            "no [[price]]: the list price of the cloud instance applies, or one is assumed; costprobe price show"
        )
    return {
        "path": str(settings.path),
        "good": True,
        "problems": [],
        "probes": len(config.probe),
        "prices": len(config.price),
        "rules": len(config.rule),
        "notifiers": len(config.notifier),
        "notes": notes,
    }


@command.command(
    examples=("costprobe config show  # the configuration in force, defaults included",),
)
@click.pass_obj
def show(config: str | None) -> None:
    """Print the configuration in force, defaults included, as TOML.

    Values in URL queries and arguments of commands are shown as ***, because they may be secrets.
    """
    import tomli_w  # noqa: PLC0415 - only this command writes TOML

    settings = Settings(config)
    tables = shown(as_toml_tables(settings.config))
    echo(f"# {settings.path or 'no file: demo mode'}; store: {settings.store_path}")
    echo_file(tomli_w.dumps(tables).splitlines())
