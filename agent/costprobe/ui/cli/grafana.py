"""`costprobe grafana`: dashboards and provisioning files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import click

from costprobe.core.outside import UnusableInputError, decoded_text, read_regular
from costprobe.delivery.contract import HttpSinkConfig
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.known_names import SINKS
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import Settings, bad_input
from costprobe.ui.cli.support.sinks import chosen_influxdb, influxql_database, write_files
from costprobe.ui.grafana.provisioning import (
    EDITIONS,
    INFLUXDB,
    SOURCE,
    Source,
    alerts_file,
    boards,
    provider_file,
    provisioned,
    sources_file,
)
from costprobe.ui.influx_setup.steps import HOURLY

BOARDS_FOLDER = PurePosixPath("/var/lib/grafana/dashboards/costprobe")
MAX_CA_BYTES = 1 << 20
PROMETHEUS = (
    "let it scrape /metrics (docs/howto/databases.md), and write the dashboards for it with: costprobe"
    " grafana export FOLDER --source prometheus"
)
_folder = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@click.group(cls=ExampleGroup)
def command() -> None:
    """Write dashboards and provisioning files for Grafana."""


@command.command(
    examples=(
        "costprobe grafana export boards  # dashboards to import by hand",
        "costprobe grafana export boards --source prometheus  # for a Prometheus that scrapes /metrics",
    ),
)
@_folder
@click.option(
    "--source",
    "edition",
    type=click.Choice(EDITIONS),
    default=INFLUXDB,
    show_default=True,
    help="Data source that the dashboards query.",
)
def export(folder: Path, *, edition: str) -> None:
    """Write the dashboards to FOLDER as JSON, for Grafana's import page."""
    found = boards(edition)
    write_files({folder / name: text for name, text in found.items()})
    echo("in Grafana: Dashboards, New, Import; then select the database at the top")


@command.command(
    examples=(
        (
            "costprobe grafana provision provisioning --sink influxdb"
            "  # copy the folder to /etc/grafana/provisioning"
        ),
    ),
)
@_folder
@click.option(
    "--sink",
    "name",
    shell_complete=SINKS,
    help="The [[sink]] whose database is queried (default: the only one).",
)
@click.option(
    "--url", help="Address of the database as seen by Grafana's host (default: that of the sink)."
)
@click.option("--database", help="Database in InfluxQL (default: the sink's database or bucket).")
@click.option("--user", help="User with read access (1.x; default: none).")
@click.option(
    "--secret-file",
    type=click.Path(path_type=PurePosixPath),
    help="File on Grafana's host with that user's password, or with a read token.",
)
@click.option(
    "--dashboards",
    "boards_at",
    type=click.Path(path_type=PurePosixPath),
    help=f"Folder of the dashboards on Grafana's host (default: {BOARDS_FOLDER}).",
)
@click.option(
    "--hourly",
    is_flag=True,
    help="Include the hourly rows that `costprobe influx setup` creates.",
)
@click.pass_obj
def provision(  # noqa: PLR0913 - click gives each option as an argument
    config: str | None,
    *,
    folder: Path,
    name: str | None,
    url: str | None,
    database: str | None,
    user: str | None,
    secret_file: PurePosixPath | None,
    boards_at: PurePosixPath | None,
    hourly: bool,
) -> None:
    """Write data source, provider, dashboards and an alert rule to FOLDER, laid out as /etc/grafana/provisioning.

    The dashboards themselves go to FOLDER/boards; copy them to the folder given by --dashboards. The secret
    stays in its file: Grafana reads it when it starts.
    """
    sink = chosen_influxdb(Settings(config).config, name, PROMETHEUS)
    _check(sink, user, secret_file, boards_at)
    source = Source(
        sink.api,
        url or sink.url,
        database or influxql_database(sink),
        user,
        secret_file,
        _authority(sink),
    )
    sources = {SOURCE: source}
    if hourly:
        sources[SOURCE + HOURLY] = replace(source, database=source.database + HOURLY)
    boards_path = boards_at or BOARDS_FOLDER
    files = {
        folder / "datasources" / "costprobe.yaml": sources_file(sources),
        folder / "dashboards" / "costprobe.yaml": provider_file(boards_path),
        folder / "alerting" / "costprobe.yaml": alerts_file(SOURCE),
    }
    files |= {
        folder / "boards" / name: provisioned(text, SOURCE) for name, text in boards().items()
    }
    write_files(files)
    echo(f"copy {folder}/boards to {boards_path} on Grafana's host, and restart Grafana")
    if sink.api == "v2" and secret_file is None:
        echo("note: without --secret-file Grafana queries without a token, which 2.x rejects")


def _check(
    sink: HttpSinkConfig,
    user: str | None,
    secret_file: PurePosixPath | None,
    boards_at: PurePosixPath | None,
) -> None:
    if user is not None and sink.api == "v2":
        raise bad_input('--user is for a sink with api = "v1"; a token needs none')
    if sink.api == "v1" and (user is None) != (secret_file is None):
        raise bad_input("--user and --secret-file belong together: a user and the password")
    for option, path in (("--secret-file", secret_file), ("--dashboards", boards_at)):
        if path is not None and (not path.is_absolute() or set("{}$") & set(str(path))):
            raise bad_input(f"{option}: write the absolute path on Grafana's host, without {{ }} $")


def _authority(sink: HttpSinkConfig) -> str | None:
    if sink.ca_file is None:
        return None
    try:
        return decoded_text(read_regular(sink.ca_file, MAX_CA_BYTES + 1), MAX_CA_BYTES)
    except (OSError, UnusableInputError) as error:
        raise bad_input(f"{sink.ca_file}: cannot be read; it is the sink's ca_file") from error
