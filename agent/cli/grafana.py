"""`infercost grafana`: the dashboards, and the files that make Grafana show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click

from agent.cli.settings import Settings, bad_input
from agent.cli.sinks import chosen_sink
from agent.config import SinkConfig
from agent.grafana.boards import boards
from agent.grafana.provisioning import SOURCE, Source, provider_file, sources_file
from agent.influx_setup.wanted import HOURLY

BOARDS_FOLDER = PurePosixPath("/var/lib/grafana/dashboards/infercost")
_folder = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@click.group()
def command() -> None:
    """The dashboards, and the files that make Grafana show them."""


@command.command()
@_folder
def export(folder: Path) -> None:
    """Writes the dashboards to FOLDER as JSON, for Grafana's import page."""
    _write({folder / name: text for name, text in boards().items()})
    click.echo("in Grafana: Dashboards, New, Import; then choose the database at the top")


@command.command()
@_folder
@click.option("--sink", "name", help="The [[sink]] whose database is asked (the only one).")
@click.option("--url", help="Its address as Grafana's host reaches it (that of the sink).")
@click.option("--database", help="Its name in InfluxQL (the sink's database or bucket).")
@click.option("--user", help="A user who may read (1.x; none).")
@click.option(
    "--secret-file",
    type=click.Path(path_type=PurePosixPath),
    help="File on Grafana's host with that user's password, or with a token that may read.",
)
@click.option(
    "--dashboards",
    "boards_at",
    type=click.Path(path_type=PurePosixPath),
    help=f"Where the dashboards will lie on Grafana's host ({BOARDS_FOLDER}).",
)
@click.option(
    "--hourly",
    is_flag=True,
    help="The rows of an hour too, which `infercost influx setup` provides for.",
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
    """Writes data source, provider and dashboards to FOLDER, as /etc/grafana/provisioning has them.

    The dashboards themselves go to FOLDER/boards; put them where --dashboards says. The secret
    stays in its file: Grafana reads it when it starts.
    """
    sink = chosen_sink(Settings(config).config, name)
    _check(sink, user, secret_file, boards_at)
    source = Source(
        sink.api,
        url or sink.url,
        database or sink.database or sink.bucket or "",
        user,
        secret_file,
        _authority(sink),
    )
    sources = {SOURCE: source}
    if hourly:
        sources[SOURCE + HOURLY] = replace(source, database=source.database + HOURLY)
    at = boards_at or BOARDS_FOLDER
    files = {
        folder / "datasources" / "infercost.yaml": sources_file(sources),
        folder / "dashboards" / "infercost.yaml": provider_file(at),
    }
    _write(files | {folder / "boards" / name: text for name, text in boards().items()})
    click.echo(f"put {folder}/boards at {at} on Grafana's host, and restart Grafana")
    if sink.api == "v2" and secret_file is None:
        click.echo("note: without --secret-file Grafana asks without a token, which 2.x refuses")


def _check(
    sink: SinkConfig,
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
            raise bad_input(f"{option}: write the whole path on Grafana's host, without {{ }} $")


def _authority(sink: SinkConfig) -> str | None:
    if sink.ca_file is None:
        return None
    try:
        return sink.ca_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(f"{sink.ca_file}: cannot be read; it is the sink's ca_file") from error


def _write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise bad_input(
                f"{path}: cannot be written ({error.strerror}); name another folder"
            ) from error
        click.echo(f"{path}: written")
