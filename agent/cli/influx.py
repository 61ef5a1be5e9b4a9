"""`infercost influx`: what the database of a sink lacks, and making it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click

from agent.cli.completing import SINKS
from agent.cli.settings import Settings, bad_input
from agent.cli.sinks import chosen_sink
from agent.config import SinkConfig
from agent.daemon.pushing import sink_settings
from agent.influx_setup import flux
from agent.influx_setup.http import Api
from agent.influx_setup.v1 import SetupV1
from agent.influx_setup.v2 import SetupV2
from agent.influx_setup.wanted import HOURLY, SetupError, Step, Wanted
from agent.secret_file import read_secret
from agent.units import parse_duration_s

_file = click.Path(path_type=Path, dir_okay=False)


def _seconds(_: click.Context, option: click.Parameter, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise bad_input(f"--{str(option.name).replace('_', '-')}: {error}") from None


@click.group()
def command() -> None:
    """Set up the database of a sink."""


@command.command()
@click.option(
    "--sink", "name", shell_complete=SINKS, help="The [[sink]] whose database it is (the only one)."
)
@click.option("--apply", is_flag=True, help="Make what is missing; without it nothing changes.")
@click.option("--admin-token-file", type=_file, help="2.x: file with a token of all access.")
@click.option("--admin-user", help="1.x with authentication: a user who administrates.")
@click.option("--admin-password-file", type=_file, help="1.x: file with that user's password.")
@click.option("--keep", callback=_seconds, default="30d", help="How long rows are kept (30d).")
@click.option(
    "--keep-hourly", callback=_seconds, default="1095d", help="Rows of an hour, likewise (1095d)."
)
@click.option(
    "--secret-file",
    type=_file,
    help="Where the sink's token or password goes (its token_file or password_file).",
)
@click.option("--json", "as_json", is_flag=True, help="The steps, as JSON.")
@click.pass_obj
def setup(  # noqa: PLR0913 - click gives each option as an argument
    config: str | None,
    *,
    name: str | None,
    apply: bool,
    admin_token_file: Path | None,
    admin_user: str | None,
    admin_password_file: Path | None,
    keep: float,
    keep_hourly: float,
    secret_file: Path | None,
    as_json: bool,
) -> None:
    """Shows what the database of a sink lacks, and makes it with --apply.

    1.x: databases with retention, continuous queries that roll rows up to an hour, and the sink's
    user, who may only write. 2.x: buckets, DBRP mappings for InfluxQL, a task that rolls up, one
    that tells of silent agents, and a token that may only write. A new password or token goes to
    its file, which its owner alone may read; it is never shown.
    """
    sink = chosen_sink(Settings(config).config, name)
    path = secret_file or sink.token_file or sink.password_file
    wanted = Wanted(keep, keep_hourly)
    if sink.api == "v1":
        headers, secrets = _basic(admin_user, admin_password_file)
    else:
        headers, secrets = _token(admin_token_file)
    api = Api(sink_settings(sink), headers, secrets)
    planner = SetupV1 if sink.api == "v1" else SetupV2
    try:
        steps = planner(api, sink_settings(sink), wanted, path).steps()
        for step in steps:
            _take(step, apply=apply, quiet=as_json)
    except SetupError as error:
        raise click.ClickException(str(error)) from None
    finally:
        api.close()
    notes = _notes(sink, path)
    if as_json:
        click.echo(json.dumps(_document(sink, steps, notes, apply=apply)))
    else:
        _conclude(steps, notes, apply=apply)


@command.command()
@click.option(
    "--sink", "name", shell_complete=SINKS, help="The [[sink]] whose bucket it is (the only one)."
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="What was written, as JSON.")
@click.pass_obj
def tasks(config: str | None, *, name: str | None, folder: Path, as_json: bool) -> None:
    """Writes the Flux tasks of 2.x to FOLDER, for who makes tasks in another way."""
    sink = chosen_sink(Settings(config).config, name)
    if sink.bucket is None:
        raise bad_input('Flux tasks are for InfluxDB 2.x: a sink with api = "v2"')
    wanted = Wanted(0.0, 0.0)
    texts = {
        "hourly": flux.rollup_task(sink.bucket, sink.bucket + HOURLY, wanted.late_s),
        "deadman": flux.deadman_task(sink.bucket, wanted.dead_after_s),
    }
    for called, text in texts.items():
        path = folder / f"{called}.flux"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise bad_input(f"{path}: cannot be written ({error.strerror})") from error
        if not as_json:
            click.echo(f"{path}: written")
    if as_json:
        click.echo(json.dumps({"files": [str(folder / f"{called}.flux") for called in texts]}))


def _take(step: Step, *, apply: bool, quiet: bool) -> None:
    if step.do is not None and apply:
        step.do()
    if not quiet:
        note = f" ({step.note})" if step.note else ""
        click.echo(f"{_state(step, apply=apply)}: {step.what}{note}")


def _state(step: Step, *, apply: bool) -> str:
    if step.do is None:
        return "is there"
    return "made" if apply else "would make"


def _notes(sink: SinkConfig, path: Path | None) -> list[str]:
    if sink.api == "v2" and path is None:
        return ["no token for the sink; name a file for one with --secret-file"]
    return []


def _document(
    sink: SinkConfig, steps: list[Step], notes: list[str], *, apply: bool
) -> dict[str, Any]:
    return {
        "sink": sink.name,
        "api": sink.api,
        "applied": apply,
        "steps": [
            {"state": _state(step, apply=apply), "what": step.what, "note": step.note or None}
            for step in steps
        ],
        "missing": 0 if apply else sum(step.do is not None for step in steps),
        "notes": notes,
    }


def _conclude(steps: list[Step], notes: list[str], *, apply: bool) -> None:
    missing = sum(step.do is not None for step in steps)
    for note in notes:
        click.echo(f"note: {note}")
    if not missing:
        click.echo("nothing is missing")
    elif not apply:
        click.echo(f"{missing} to make; nothing was changed. To make them: --apply")
    else:
        click.echo(f"{missing} made; try it: infercost doctor")


def _basic(user: str | None, password_file: Path | None) -> tuple[dict[str, str], list[str]]:
    if (user is None) != (password_file is None):
        raise bad_input("--admin-user and --admin-password-file belong together")
    if user is None or password_file is None:
        return {}, []
    password = _secret(password_file, "password")
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}, [password, pair]


def _token(token_file: Path | None) -> tuple[dict[str, str], list[str]]:
    if token_file is None:
        raise bad_input("2.x needs a token of all access: name its file with --admin-token-file")
    token = _secret(token_file, "token")
    if not token.isascii():
        raise bad_input(f"{token_file}: has characters that no HTTP header can carry")
    return {"Authorization": f"Token {token}"}, [token]


def _secret(path: Path, what: str) -> str:
    try:
        return read_secret(path, what)
    except ValueError as error:
        raise bad_input(str(error)) from None
