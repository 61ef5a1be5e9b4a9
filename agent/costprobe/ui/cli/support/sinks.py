"""The sink that a command is about, and files for the host of its database or of Grafana."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costprobe.adapters.host.files import replace_file
from costprobe.configuration import Config
from costprobe.delivery.influx import InfluxV1Config, InfluxV2Config
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input


def chosen_influxdb(config: Config, name: str | None) -> InfluxV1Config | InfluxV2Config:
    """Return the InfluxDB sink of that name, or the only sink.

    Args:
        config: The configuration.
        name: Name of a sink; None for the only one.

    Raises:
        click.ClickException: There is none, it is not an InfluxDB, or there are several and none is
            selected.
    """
    names = ", ".join(sink.name for sink in config.sink)
    if not config.sink:
        raise bad_input("no sink is configured; add a [[sink]] with the database's address")
    if name is None and len(config.sink) > 1:
        raise bad_input(f"several sinks: {names}; select one with --sink")
    for sink in config.sink:
        if name in (None, sink.name):
            if not isinstance(sink, InfluxV1Config | InfluxV2Config):
                raise bad_input(f"sink {sink.name} is not an InfluxDB (api = {sink.api!r})")
            return sink
    raise unknown_name("sink", name or "", [sink.name for sink in config.sink])


def influxql_database(sink: InfluxV1Config | InfluxV2Config) -> str:
    """Return the name of a sink's database in InfluxQL."""
    return sink.database if isinstance(sink, InfluxV1Config) else sink.bucket


def write_files(files: Mapping[Path, str], *, quiet: bool) -> None:
    """Write files for another host, and print which unless it is quiet; their folders are created.

    Raises:
        click.ClickException: With exit code 2; one cannot be written.
    """
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode())
        except OSError as error:
            raise bad_input(
                f"{path}: cannot be written ({error.strerror}); choose another folder"
            ) from error
        if not quiet:
            echo(f"{path}: written")
