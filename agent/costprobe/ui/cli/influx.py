"""`costprobe influx`: find and create missing parts of a sink's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click

from costprobe.adapters.http.access import Secret, basic
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxClient, InfluxV1Config, InfluxV2Config
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.known_names import SINKS
from costprobe.ui.cli.support.option_types import TIMESPAN
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import Settings, bad_input
from costprobe.ui.cli.support.sinks import chosen_influxdb, write_files
from costprobe.ui.influx_setup.steps import HOURLY, SetupError, SetupOptions, SetupStep
from costprobe.ui.influx_setup.v1 import InfluxqlApi, InfluxV1Setup
from costprobe.ui.influx_setup.v2 import InfluxV2Setup, deadman_task, rollup_task

NO_SETUP = "nothing has to be created in it; check it with: costprobe doctor"
_file = click.Path(path_type=Path, dir_okay=False)


@click.group(cls=ExampleGroup)
def command() -> None:
    """Set up the database of a sink."""


@command.command(
    examples=(
        "costprobe influx setup  # list what is missing in the sink's database",
        (
            "costprobe influx setup --sink influxdb --admin-token-file admin.token --apply"
            "  # create it"
        ),
    ),
)
@click.option(
    "--sink", "name", shell_complete=SINKS, help="The [[sink]] whose database it is (the only one)."
)
@click.option("--apply", is_flag=True, help="Create what is missing; without it nothing changes.")
@click.option("--admin-token-file", type=_file, help="2.x: file with an all-access token.")
@click.option("--admin-user", help="1.x with authentication: an administrator.")
@click.option("--admin-password-file", type=_file, help="1.x: file with that user's password.")
@click.option("--keep", type=TIMESPAN, default="30d", help="How long rows are kept (30d).")
@click.option(
    "--keep-hourly",
    type=TIMESPAN,
    default="1095d",
    help="How long hourly rows are kept (1095d).",
)
@click.option(
    "--secret-file",
    type=_file,
    help="File for the sink's token or password (the one that the sink names).",
)
@click.option(
    "--tasks",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="2.x: only write the Flux tasks to this folder, to create them in another way.",
)
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
    folder: Path | None,
) -> None:
    """Show what is missing in the database of a sink; create it with --apply.

    1.x: databases with retention, continuous queries that compute hourly rows, and the sink's
    user, who may only write. 2.x: buckets, DBRP mappings for InfluxQL, a task that computes hourly
    rows, one that reports silent agents, and a token that may only write. A new password or token
    is written to its file with mode 0600; it is never shown.
    """
    sink = chosen_influxdb(Settings(config).config, name, NO_SETUP)
    if folder is not None:
        _write_tasks(sink, folder)
        return
    options = SetupOptions(keep, keep_hourly)
    if isinstance(sink, InfluxV1Config):
        path = secret_file or _file_of(sink.password)
        planned: AbstractContextManager[InfluxV1Setup | InfluxV2Setup] = _v1(
            sink, options, path, admin_user, admin_password_file
        )
    else:
        path = secret_file or _file_of(sink.token)
        planned = _v2(sink, options, path, admin_token_file)
    try:
        with planned as planner:
            steps = planner.steps()
            for step in steps:
                _run(step, apply=apply)
    except SetupError as error:
        raise click.ClickException(str(error)) from None
    if isinstance(sink, InfluxV2Config) and path is None:
        echo("note: no token for the sink; set its file with --secret-file")
    missing = sum(step.create is not None for step in steps)
    if not missing:
        echo("nothing is missing")
    elif not apply:
        echo(f"{missing} to create; nothing was changed. To create them: --apply")
    else:
        echo(f"{missing} created; check with: costprobe doctor")


def _write_tasks(sink: InfluxV1Config | InfluxV2Config, folder: Path) -> None:
    """Write the Flux tasks of 2.x."""
    if not isinstance(sink, InfluxV2Config):
        raise bad_input('Flux tasks are for InfluxDB 2.x: a sink with api = "v2"')
    write_files(
        {
            folder / "hourly.flux": rollup_task(sink.bucket, sink.bucket + HOURLY),
            folder / "deadman.flux": deadman_task(sink.bucket),
        }
    )


@contextmanager
def _v1(
    sink: InfluxV1Config,
    options: SetupOptions,
    path: Path | None,
    user: str | None,
    password_file: Path | None,
) -> Iterator[InfluxV1Setup]:
    if (user is None) != (password_file is None):
        raise bad_input("--admin-user and --admin-password-file belong together")
    headers = {}
    if user is not None and password_file is not None:
        try:
            headers = basic(user, Secret.of_file(password_file, "password"))
        except Misconfigured as error:
            raise bad_input(error.reason) from None
    api = InfluxqlApi(sink, SystemClock(), headers)
    try:
        yield InfluxV1Setup(api, sink, options, path)
    finally:
        api.close()


@contextmanager
def _v2(
    sink: InfluxV2Config, options: SetupOptions, path: Path | None, token_file: Path | None
) -> Iterator[InfluxV2Setup]:
    if token_file is None:
        raise bad_input("2.x needs an all-access token: set its file with --admin-token-file")
    client = InfluxClient(sink, sink.org, SystemClock())
    try:
        try:
            client.use_token(Secret.of_file(token_file, "token").read_ascii())
        except Misconfigured as error:
            raise bad_input(error.reason) from None
        yield InfluxV2Setup(client, sink, options, path)
    finally:
        client.close()


def _run(step: SetupStep, *, apply: bool) -> None:
    state = "exists"
    if step.create is not None:
        state = "created" if apply else "would create"
        if apply:
            step.create()
    echo(f"{state}: {step.what}{f' ({step.note})' if step.note else ''}")


def _file_of(secret: Secret | None) -> Path | None:
    return None if secret is None or secret.credential is not None else secret.path
