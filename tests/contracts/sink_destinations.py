"""The destinations that the contract suite of sinks runs against.

A destination has `config`, `sink(clock)`, `stop()`, `start()` and `points(expected)`: what arrived,
as {(measurement, tags, time in ms): value of the field "v"}. Where arrival takes time, `points`
waits for the keys in `expected`.
"""

from contextlib import contextmanager

from contracts.examples.file_sink import FileSink, FileSinkConfig
from costprobe.core.line_protocol import parse_field_set, parse_series_key
from costprobe.delivery.kinds import build_sink
from fakes.otlp import OtlpReceiver
from fakes.sending import config_of
from fakes.servers import InfluxDB, VictoriaMetrics, running

DATABASE = "contract"


class InfluxV1Destination:
    """A real InfluxDB 1.6."""

    def __init__(self, server):
        self._server = server
        self.config = config_of("v1", server.url, database=DATABASE, timeout_s=5.0)
        self.stop, self.start = server.stop, server.start

    def sink(self, clock):
        return build_sink(self.config, clock)

    def points(self, expected):
        del expected
        found = self._server.points(DATABASE)
        return {
            (name, tags, time_ns // 10**6): fields["v"]
            for (name, tags, time_ns), fields in found.items()
        }


class InfluxV2Destination:
    """A real VictoriaMetrics, through its v2 write API."""

    def __init__(self, server):
        self._server = server
        self.config = config_of("v2", server.url, timeout_s=5.0)
        self.stop, self.start = server.stop, server.start

    def sink(self, clock):
        return build_sink(self.config, clock)

    def points(self, expected):
        wanted = {(f"{name}_v", tags, time_ms) for name, tags, time_ms in expected}
        found = self._server.samples(wanted)
        return {(name.removesuffix("_v"), *rest): value for (name, *rest), value in found.items()}


class OtlpDestination:
    """A receiver that decodes with the official protobuf package."""

    def __init__(self, receiver):
        self._receiver = receiver
        self.config = config_of("otlp", receiver.url, timeout_s=5.0)
        self.stop, self.start = receiver.stop, receiver.start

    def sink(self, clock):
        return build_sink(self.config, clock)

    def points(self, expected):
        del expected
        return {
            (
                name.removeprefix("costprobe.").removesuffix(".v"),
                tuple(
                    ("host" if k == "host.name" else k, v) for k, v in tags if k[:8] != "service."
                ),
                time_ns // 10**6,
            ): value
            for (name, tags, time_ns), (_, _, value) in self._receiver.points.items()
        }


class FileDestination:
    """The file of a FileSink; it cannot be written while its folder is gone."""

    def __init__(self, folder):
        self._folder = folder / "series"
        self._gone = folder / "gone"
        self.config = FileSinkConfig(api="file", path=self._folder / "series.lp")
        self._folder.mkdir()

    def sink(self, clock):
        return FileSink(self.config, clock)

    def stop(self):
        self._folder.rename(self._gone)

    def start(self):
        self._gone.rename(self._folder)

    def points(self, expected):
        del expected
        path = self.config.path
        return values_of(path.read_text().splitlines() if path.exists() else ())


def values_of(lines):
    """The values of rows of line protocol by measurement, tags and ms."""
    found = {}
    for line in lines:
        series, fields, time_ns = line.rsplit(" ", 2)
        name, tags = parse_series_key(series)
        key = (name, tuple(sorted(tags.items())), int(time_ns) // 10**6)
        found[key] = parse_field_set(fields)["v"]
    return found


@contextmanager
def influx_v1(folder):
    with running(InfluxDB, folder, "influxd") as server:
        server.query(f"CREATE DATABASE {DATABASE}")
        yield InfluxV1Destination(server)


@contextmanager
def influx_v2(folder):
    # Without deduplication its raw export lists a repeated point twice; its queries do not.
    options = ("-dedup.minScrapeInterval=1ms",)
    with running(VictoriaMetrics, folder, "victoria-metrics", options=options) as server:
        yield InfluxV2Destination(server)


@contextmanager
def otlp(folder):
    del folder
    receiver = OtlpReceiver()
    try:
        yield OtlpDestination(receiver)
    finally:
        receiver.stop()


@contextmanager
def file(folder):
    yield FileDestination(folder)


# Every kind of sink. A new sink adds one line.
DESTINATIONS = {
    "v1": influx_v1,
    "v2": influx_v2,
    "otlp": otlp,
    "example of contributors": file,
}
