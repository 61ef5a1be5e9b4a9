"""Rows of a host: the shapes of a real daemon's rows, replicated for any number of hosts.

A daemon with the defaults' series (eight devices, a probe on each, one service over all of them) runs
for some seconds with shorter intervals. The shapes have the tags, fields, types and sampling jitter
of its rows, and the default intervals. Measured numbers vary from row to row by a tenth; all other
values are constant.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from costprobe.core.line_protocol import field_set, series_key
from costprobe.core.records import FieldValue, Point
from costprobe.core.schema import SCHEMA
from costprobe.daemon.parts import AGENT_EVERY_S
from costprobe.devices.settings import TelemetryConfig
from costprobe.probing.settings import ProbeConfig
from costprobe.serving.settings import ServiceConfig
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml
from fakes.scenes import GPU_PROBE, OWNED
from fakes.serving_engine import ServingEngine

GPUS = 8
NS = 1_000_000_000
VARIANTS = 256
# Stands for the host number, until the renderer has escaped the tags.
HOST_MARK = "qplaceq"
SHORT_INTERVALS = '[telemetry]\nevery = "100ms"\n'
EVENTS_PER_DAY = 50
# Numeric fields that are constant for a host.
CONSTANT = frozenset({"price_rate_per_h", "mem_clock_mhz", "window_s"})
PROBE_S = float(ProbeConfig.model_fields["every_s"].default)
WINDOW_S = float(ServiceConfig.model_fields["window_s"].default)
EVERY_S = {
    "device": TelemetryConfig().aggregate_s,
    "agent": AGENT_EVERY_S,
    "probe": PROBE_S,
    "serving": WINDOW_S,
    "allocation": WINDOW_S,
    "event": 86_400 / EVENTS_PER_DAY,
    "alert": 86_400 / EVENTS_PER_DAY,
}


@dataclass(frozen=True)
class Shape:
    """A series of a host.

    Attributes:
        key: Parts of its series key; the host's number goes between them.
        measurement: Name of its measurement.
        every_s: Default interval of its rows, in s.
        fields: Number of fields; VictoriaMetrics creates a series for each, for texts one of zeros.
        variants: Field sets from which each row takes one at random.
    """

    key: tuple[str, ...]
    measurement: str
    every_s: float
    fields: int
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of a host.

    Attributes:
        shapes: The series of the host.
        jitter_ns: Observed deviations of the sampling interval from its median, in ns.
    """

    shapes: tuple[Shape, ...]
    jitter_ns: tuple[int, ...]

    @property
    def per_s(self) -> float:
        """Rows per second of a host with default intervals."""
        return sum(1 / shape.every_s for shape in self.shapes)

    @property
    def series(self) -> int:
        """Number of series of a host in InfluxDB."""
        return len(self.shapes)

    @property
    def fields(self) -> int:
        """Number of series of a host in VictoriaMetrics."""
        return sum(shape.fields for shape in self.shapes)

    def due(self, round_s: float, step_s: float) -> list[Shape]:
        """Return the shapes with a row in the step of simulated time that starts at `round_s`."""
        return [shape for shape in self.shapes if round_s % shape.every_s < step_s]


def line(shape: Shape, host: int, time_ns: int, rng: random.Random) -> str:
    """Return a row of a host in line protocol."""
    number = f"{host:05}"
    return f"{number.join(shape.key)} {rng.choice(shape.variants)} {time_ns}"


def captured() -> Rows:
    """Run a daemon until each of its series has rows, and return their shapes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake = FakeNvml(folder, gpus=GPUS)
        for gpu in fake.gpus:
            gpu.set_power(300.0)
            gpu.set(util_pct=80, temp_c=61, sm_clock_mhz=1755)
        engine = ServingEngine(time.time())
        with engine.over_http() as server:
            daemon = DaemonProcess(folder, fake.env())
            try:
                daemon.start(SHORT_INTERVALS + OWNED + GPU_PROBE + service(server.url))
                rows = gathered(daemon, engine)
            finally:
                daemon.stop()
    return Rows(shapes_of(rows), jitter_of(rows))


def service(url: str) -> str:
    """Return the configuration of a service over all devices with short windows."""
    names = ", ".join(f'"gpu{index}"' for index in range(GPUS))
    return (
        f'[[service]]\nname = "chat"\nengine = "vllm"\nurl = "{url}"\ndevices = [{names}]\n'
        'every = "1s"\nwindow = "3s"\ntimeout = "1s"\n'
    )


def gathered(daemon: DaemonProcess, engine: ServingEngine) -> list[Point]:
    """Return all rows of a daemon after it has sampled, probed and served."""

    def is_complete() -> bool:
        engine.serve("llama-3.1-8b", 3, tokens_in=220, tokens_out=140)
        time.sleep(0.2)
        served = daemon.points("cost", basis="serving")
        return len(served) >= 1 and len(daemon.points("cost", basis="probe")) >= GPUS

    daemon.wait_for(is_complete)
    return [row for name in SCHEMA for row in daemon.points(name)]


def shapes_of(rows: Iterable[Point]) -> tuple[Shape, ...]:
    """Return the shape of each series, from its row with the most fields."""
    best: dict[tuple[str, tuple[tuple[str, str], ...]], Point] = {}
    for row in rows:
        series = (row.measurement, tuple(sorted(row.tags.items())))
        if series not in best or len(row.fields) > len(best[series].fields):
            best[series] = row
    return tuple(shape_of(row) for _, row in sorted(best.items()))


def shape_of(row: Point) -> Shape:
    """Return the shape of a row."""
    rng = random.Random(row.measurement + row.tags.get("device", ""))
    host_tags = {"host": f"gpu-node-{HOST_MARK}.example.com"}
    if row.tags.get("uuid"):
        host_tags["uuid"] = row.tags["uuid"] + "-" + HOST_MARK
    tags = {**row.tags, **host_tags}
    every_s = EVERY_S.get(row.measurement)
    if every_s is None:
        every_s = WINDOW_S if row.tags.get("basis") == "serving" else PROBE_S
    return Shape(
        key=tuple(series_key(row.measurement, tags).split(HOST_MARK)),
        measurement=row.measurement,
        every_s=every_s,
        fields=len(row.fields),
        variants=tuple(field_set(varied(row.fields, rng)) for _ in range(VARIANTS)),
    )


def varied(fields: Mapping[str, FieldValue], rng: random.Random) -> dict[str, FieldValue]:
    """Return the fields with random variation of the measured numbers."""
    result: dict[str, FieldValue] = {}
    for name, value in fields.items():
        if name == "temp_c":
            result[name] = float(round(float(value) + rng.gauss(0, 2)))
        elif name == "mem_used_bytes":
            result[name] = int(value) + (rng.randrange(512) << 21)
        elif isinstance(value, float) and name not in CONSTANT:
            result[name] = value * rng.gauss(1, 0.1)
        else:
            result[name] = value
    return result


def jitter_of(rows: Iterable[Point]) -> tuple[int, ...]:
    """Return the deviations of the daemon's device intervals from their median, in ns."""
    by_device: dict[str, list[int]] = {}
    for row in rows:
        if row.measurement == "device":
            by_device.setdefault(row.tags["device"], []).append(row.time_ns)
    steps = [b - a for times in by_device.values() for a, b in pairwise(sorted(times))]
    middle = int(statistics.median(steps))
    return tuple(step - middle for step in steps if abs(step - middle) < NS // 10)
