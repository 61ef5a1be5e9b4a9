"""What a host sends: the shapes of a real daemon's rows, spoken for as many hosts as wanted.

A daemon with the defaults' series (eight devices, a probe on each, one service over all of them) runs
for some seconds, faster than by default; the tags, fields and types of its rows are the shapes, how
its sensors' intervals wobble is theirs, and how often a row comes is the defaults'. Only numbers
that a device or a server measures vary, from row to row by a tenth.
"""

import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml
from fakes.scenes import GPU_PROBE, OWNED
from fakes.serving_engine import ServingEngine

from agent.config import TelemetryConfig
from agent.config_probe import ProbeConfig
from agent.config_service import ServiceConfig
from agent.daemon.service import AGENT_EVERY_S
from agent.lineprotocol import field_set, series_key
from agent.series import SCHEMA

GPUS = 8
NS = 1_000_000_000
VARIANTS = 256
PLACE = "\x1a"
QUICK = '[telemetry]\nevery = "200ms"\naggregate = "1s"\n'
EVENTS_PER_DAY = 50
# What does not vary from row to row of a host, though it is a number.
STEADY = frozenset({"price_rate_per_h", "mem_clock_mhz", "window_s"})
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
    """One series of a host.

    Attributes:
        key: Its series key, with a place where the host's number goes.
        measurement: Its measurement.
        every_s: How often it has a row at the defaults.
        fields: How many fields it has: VictoriaMetrics makes a series of each, of a text one of zeros.
        variants: Field sets that a row of it takes one of.
    """

    key: tuple[str, ...]
    measurement: str
    every_s: float
    fields: int
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """What a host sends.

    Attributes:
        shapes: Its series.
        wobble_ns: By how much its intervals differ from their length, as the daemon's did.
    """

    shapes: tuple[Shape, ...]
    wobble_ns: tuple[int, ...]

    @property
    def per_s(self):
        """Rows a second of a host at the defaults."""
        return sum(1 / shape.every_s for shape in self.shapes)

    @property
    def series(self):
        """Series of a host, as InfluxDB counts them."""
        return len(self.shapes)

    @property
    def fields(self):
        """Series of a host, as VictoriaMetrics counts them."""
        return sum(shape.fields for shape in self.shapes)

    def due(self, round_s, step_s):
        """Shapes that have a row in a step of the simulated time that begins at `round_s`."""
        return [shape for shape in self.shapes if round_s % shape.every_s < step_s]


def line(shape, host, time_ns, rng):
    """A row of a host as it is sent."""
    number = f"{host:05}"
    return f"{number.join(shape.key)} {rng.choice(shape.variants)} {time_ns}"


def captured():
    """Runs a daemon until each of its series has rows, and takes their shapes."""
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
                daemon.start(QUICK + OWNED + GPU_PROBE + service(server.url))
                rows = gathered(daemon, engine)
            finally:
                daemon.stop()
    return Rows(shapes_of(rows), wobble_of(rows))


def service(url):
    """A service over all devices, whose windows close quickly."""
    names = ", ".join(f'"gpu{index}"' for index in range(GPUS))
    return (
        f'[[service]]\nname = "chat"\nengine = "vllm"\nurl = "{url}"\ndevices = [{names}]\n'
        'every = "1s"\nwindow = "3s"\ntimeout = "1s"\n'
    )


def gathered(daemon, engine):
    """All rows of a daemon that has measured, probed and served."""

    def is_whole():
        engine.serve("llama-3.1-8b", 3, tokens_in=220, tokens_out=140)
        time.sleep(0.2)
        served = daemon.points("cost", basis="serving")
        return len(served) >= 1 and len(daemon.points("cost", basis="probe")) >= GPUS

    daemon.wait_for(is_whole)
    return [row for name in SCHEMA for row in daemon.points(name)]


def shapes_of(rows):
    """The richest row of each series, as a shape."""
    best = {}
    for row in rows:
        place = (row.measurement, tuple(sorted(row.tags.items())))
        if place not in best or len(row.fields) > len(best[place].fields):
            best[place] = row
    return tuple(shape_of(row) for _, row in sorted(best.items()))


def shape_of(row):
    """A row's shape."""
    rng = random.Random(row.measurement + row.tags.get("device", ""))
    own = {"host": f"gpu-node-{PLACE}.example.com"}
    if row.tags.get("uuid"):
        own["uuid"] = row.tags["uuid"] + "-" + PLACE
    # The renderer makes control characters plain, so the place is put in behind it.
    mark = "qplaceq"
    tags = {**row.tags, **{name: text.replace(PLACE, mark) for name, text in own.items()}}
    every_s = EVERY_S.get(row.measurement)
    if every_s is None:
        every_s = WINDOW_S if row.tags.get("basis") == "serving" else PROBE_S
    return Shape(
        key=tuple(series_key(row.measurement, tags).split(mark)),
        measurement=row.measurement,
        every_s=every_s,
        fields=len(row.fields),
        variants=tuple(field_set(varied(row.fields, rng)) for _ in range(VARIANTS)),
    )


def varied(fields, rng):
    """Fields whose measured numbers differ from row to row."""
    found = {}
    for name, value in fields.items():
        if name == "temp_c":
            found[name] = float(round(value + rng.gauss(0, 2)))
        elif name == "mem_used_bytes":
            found[name] = value + (rng.randrange(512) << 21)
        elif isinstance(value, float) and name not in STEADY:
            found[name] = value * rng.gauss(1, 0.1)
        else:
            found[name] = value
    return found


def wobble_of(rows):
    """How far the daemon's device intervals are from their median, in ns."""
    by_device = {}
    for row in rows:
        if row.measurement == "device":
            by_device.setdefault(row.tags["device"], []).append(row.time_ns)
    steps = [b - a for times in by_device.values() for a, b in pairwise(sorted(times))]
    middle = int(statistics.median(steps))
    return tuple(step - middle for step in steps if abs(step - middle) < NS // 10)


def thin(rows, measurements):
    """The same without the series of other measurements."""
    kept = tuple(shape for shape in rows.shapes if shape.measurement in measurements)
    return Rows(kept, rows.wobble_ns)
