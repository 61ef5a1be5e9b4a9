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


class Destination:
    """A server and the section that writes to it."""

    def __init__(self, server, config):
        self.server, self.config = server, config
        self.stop, self.start = server.stop, server.start

    def sink(self, clock):
        return build_sink(self.config, clock)


class InfluxV1Destination(Destination):
    """A real InfluxDB 1.6."""

    def points(self, _):
        return {
            (name, tags, time_ns // 10**6): fields["v"]
            for (name, tags, time_ns), fields in self.server.points(DATABASE).items()
        }


class InfluxV2Destination(Destination):
    """A real VictoriaMetrics, through its v2 write API."""

    def points(self, expected):
        wanted = {(f"{name}_v", tags, time_ms) for name, tags, time_ms in expected}
        found = self.server.samples(wanted)
        return {(name.removesuffix("_v"), *rest): value for (name, *rest), value in found.items()}


class OtlpDestination(Destination):
    """A receiver that decodes with the official protobuf package."""

    def points(self, _):
        found = {}
        for (name, tags, time_ns), (_, _, value) in self.server.points.items():
            own = [("host" if key == "host.name" else key, text) for key, text in tags]
            kept = tuple((key, text) for key, text in own if not key.startswith("service."))
            short = name.removeprefix("costprobe.").removesuffix(".v")
            found[short, kept, time_ns // 10**6] = value
        return found


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

    def points(self, _):
        path, found = self.config.path, {}
        for line in path.read_text().splitlines() if path.exists() else ():
            series, fields, time_ns = line.rsplit(" ", 2)
            name, tags = parse_series_key(series)
            key = (name, tuple(sorted(tags.items())), int(time_ns) // 10**6)
            found[key] = parse_field_set(fields)["v"]
        return found


@contextmanager
def influx_v1(folder):
    with running(InfluxDB, folder, "influxd") as server:
        server.query(f"CREATE DATABASE {DATABASE}")
        config = config_of("v1", server.url, database=DATABASE, timeout_s=5.0)
        yield InfluxV1Destination(server, config)


@contextmanager
def influx_v2(folder):
    # Without deduplication its raw export lists a repeated point twice; its queries do not.
    options = ("-dedup.minScrapeInterval=1ms",)
    with running(VictoriaMetrics, folder, "victoria-metrics", options=options) as server:
        yield InfluxV2Destination(server, config_of("v2", server.url, timeout_s=5.0))


@contextmanager
def otlp(_):
    receiver = OtlpReceiver()
    try:
        yield OtlpDestination(receiver, config_of("otlp", receiver.url, timeout_s=5.0))
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
