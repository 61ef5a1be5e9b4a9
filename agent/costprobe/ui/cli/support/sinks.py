"""The sink that a command is about, and files for the host of its database or of Grafana."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from costprobe.adapters.host.files import replace_file
from costprobe.adapters.http.access import Destination
from costprobe.adapters.http.errors import DeliveryError, json_object
from costprobe.configuration import Config
from costprobe.delivery.contract import HttpSinkConfig
from costprobe.delivery.influx import InfluxV1Config, InfluxV2Config, http_client
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input

# Databases with Prometheus' API answer it, which is how Grafana identifies them.
_PROMQL_PATH: Final = "/api/v1/status/buildinfo"
_TIMEOUT_S: Final = 3.0


def chosen_influxdb(
    config: Config, name: str | None, instead: str
) -> InfluxV1Config | InfluxV2Config:
    """Return the InfluxDB sink of that name, or the only sink.

    Args:
        config: The configuration.
        name: Name of a sink; None for the only one.
        instead: What to do with another database, for the error.

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
                raise bad_input(f"sink {sink.name} has api = {sink.api!r}, not InfluxDB: {instead}")
            if _speaks_promql(sink):
                raise bad_input(
                    f"sink {sink.name}: {sink.url} is VictoriaMetrics or the like, without InfluxQL:"
                    f" {instead}"
                )
            return sink
    raise unknown_name("sink", name or "", [sink.name for sink in config.sink])


def _speaks_promql(sink: HttpSinkConfig) -> bool:
    """Return whether the server of a sink says that it has Prometheus' API; False if it does not answer."""
    quick = sink.model_copy(update={"timeout_s": min(sink.timeout_s, _TIMEOUT_S)})
    try:
        with closing(http_client(quick)) as http:
            destination = Destination.parse(sink.url.rstrip("/") + _PROMQL_PATH)
            answer = json_object(http.request("GET", destination).body) or {}
    except DeliveryError:
        return False
    return answer.get("status") == "success"


def influxql_database(sink: InfluxV1Config | InfluxV2Config) -> str:
    """Return the name of a sink's database in InfluxQL."""
    return sink.database if isinstance(sink, InfluxV1Config) else sink.bucket


def write_files(files: Mapping[Path, str]) -> None:
    """Write files for another host, and print which; their folders are created.

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
        echo(f"{path}: written")
