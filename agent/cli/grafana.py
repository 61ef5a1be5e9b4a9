"""`infercost grafana`: the dashboards, and the files that make Grafana show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click

from agent.cli.completing import SINKS
from agent.cli.settings import Settings, bad_input
from agent.cli.sinks import chosen_sink
from agent.config import SinkConfig
from agent.grafana.boards import boards
from agent.grafana.provisioning import SOURCE, Source, provider_file, sources_file
from agent.influx_setup.wanted import HOURLY

BOARDS_FOLDER = PurePosixPath("/var/lib/grafana/dashboards/infercost")
_folder = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
_json = click.option("--json", "as_json", is_flag=True, help="What was written, as JSON.")


@click.group()
def command() -> None:
    """The dashboards, and the files that make Grafana show them."""


@command.command()
@_folder
@_json
def export(folder: Path, *, as_json: bool) -> None:
    """Writes the dashboards to FOLDER as JSON, for Grafana's import page."""
    _write({folder / name: text for name, text in boards().items()}, quiet=as_json)
    words = ["in Grafana: Dashboards, New, Import; then choose the database at the top"]
    _conclude(sorted(folder / name for name in boards()), words, as_json=as_json)


@command.command()
@_folder
@click.option(
    "--sink",
    "name",
    shell_complete=SINKS,
    help="The [[sink]] whose database is asked (the only one).",
)
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
@_json
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
    as_json: bool,
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
    files |= {folder / "boards" / name: text for name, text in boards().items()}
    _write(files, quiet=as_json)
    words = [f"put {folder}/boards at {at} on Grafana's host, and restart Grafana"]
    if sink.api == "v2" and secret_file is None:
        words.append("note: without --secret-file Grafana asks without a token, which 2.x refuses")
    _conclude(sorted(files), words, as_json=as_json)


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


def _write(files: Mapping[Path, str], *, quiet: bool) -> None:
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise bad_input(
                f"{path}: cannot be written ({error.strerror}); name another folder"
            ) from error
        if not quiet:
            click.echo(f"{path}: written")


def _conclude(files: Sequence[Path], words: Sequence[str], *, as_json: bool) -> None:
    """What is left to do."""
    if as_json:
        click.echo(json.dumps({"files": [str(path) for path in files], "next": list(words)}))
    else:
        click.echo("\n".join(words))
