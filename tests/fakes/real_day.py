"""A day of a daemon in about a minute: its wall clock is stepped from hour to hour.

The daemon is a `costprobe run` process: its sensor child reads the fake driver through pynvml, torch
runs a model, the probe worker measures a server, vLLM counters are read over HTTP, and all rows are
stored and pushed. Only the wall clock (CLOCK_REALTIME) of its processes is simulated. CLOCK_MONOTONIC
is the host's: durations, energies and costs are those of the real minute.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime

from costprobe.core.schema import SCHEMA
from fakes.daemon import DaemonProcess
from fakes.inference_server import InferenceServer, generating
from fakes.nvml import FakeNvml
from fakes.serving_engine import ServingEngine
from fakes.shifted_clock import ShiftedClock

NS_PER_S = 1_000_000_000
HOUR_NS = 3600 * NS_PER_S
HOURS = 24
# From noon to noon: the price changes at midnight.
START_NS = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()) * NS_PER_S
# The wall clock is set this long before the hour: the daemon reads its clocks once a second.
LEAD_NS = 1_200_000_000
LONGEST_HOUR_S = 12.0
LONGEST_SWEEP_S = 240.0
HOT_HOUR, AWAY_HOUR, SLOW_HOUR = 6, 9, 13
PAUSE_S, SLOW_PAUSE_S = 0.01, 0.06

MODEL = """
import torch


def ranker():
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    return layers, {"input": torch.randn(1, 64)}
"""

CONFIG = """
[host]
name = "gpu-01.example.com"
labels = {{ rack = "a1" }}
[telemetry]
every = "50ms"
cpu = true
[probing]
duty = 1

[[probe]]
name = "ranker"
kind = "module"
module = "day_model:ranker"
devices = ["cpu"]
every = "12h"
batch = 2
min_samples = 700
sample_cap = "2s"
keep_alive = true
when_busy = "run"

[[probe]]
name = "chat"
kind = "openai"
url = "{chat}"
model = "m"
devices = ["gpu0"]
every = "6h"
requests = 8
max_tokens = 4

[[probe]]
name = "chat-latency"
kind = "openai"
url = "{chat}"
model = "m"
devices = ["gpu1"]
every = "1h"
requests = 6
warmup_requests = 1
concurrency = 2
max_tokens = 4
energy = false

[[service]]
name = "chat"
url = "{served}"
engine = "vllm"
devices = ["gpu0"]
every = "500ms"
window = "2s"

[service.tenants]
label = "model_name"
tokens_in = "vllm:prompt_tokens_total"
tokens_out = "vllm:generation_tokens_total"

[[service]]
name = "embed"
url = "{uncounted}"
engine = "vllm"
devices = ["gpu1"]
every = "500ms"
window = "2s"

[[price]]
plan = "on_demand"
per_hour = 8.0
currency = "USD"
[[price]]
plan = "on_demand"
valid_from = 2026-06-02
per_hour = 9.6
currency = "USD"
[[price]]
plan = "owned"
device = "cpu"
purchase_price = 4000
lifetime = "4y"
currency = "USD"
[electricity]
tariff_per_kwh = 0.12
pue = 1.4
[carbon]
g_per_kwh = 380

[[budget]]
name = "day"
amount = 0.01
period = "day"

[detection]
warm_up = 12
[alerting]
evaluate_every = "500ms"
[[rule]]
name = "hot"
kind = "threshold"
measurement = "device"
field = "temp_c"
above = 85
clear = 80
severity = "critical"

[[sink]]
api = "v1"
url = "{influxdb}"
database = "{database}"
flush_every = "500ms"
"""


class _WithoutTokenCount(ServingEngine):
    """A server whose metrics lack the number of generated tokens."""

    def text(self):
        kept = (line for line in super().text().splitlines() if "generation_tokens" not in line)
        return "\n".join(kept) + "\n"


class _Chat:
    """A chat server with adjustable pauses and version."""

    def __init__(self):
        self.pause_s = PAUSE_S
        self.version = "0.9.1"

    def answer(self, call):
        if call.path == "/version":
            call.json({"version": self.version})
        else:
            generating(pause_s=self.pause_s)(call)


class RealDay:
    """A day of a host, from noon to noon, with typical events.

    Args:
        folder: For the files of the daemon.
        influxdb: A running InfluxDB 1.x.
        database: Its database.

    Attributes:
        daemon: The daemon.
        clock: Its wall clock.
        start_ns: UTC in ns at which the day begins.
        end_ns: UTC in ns at which it ends.
        stored: Measurement, tags and time of every row that was stored before the daemon ended.
    """

    def __init__(self, folder, influxdb, database):
        self.nvml = FakeNvml(folder, gpus=2)
        self.clock = ShiftedClock(folder)
        self.chat, self.served, self.uncounted = _Chat(), ServingEngine(), _WithoutTokenCount()
        self.start_ns, self.end_ns = START_NS, START_NS + (HOURS + 1) * HOUR_NS
        (folder / "day_model.py").write_text(MODEL)
        environment = {**self.nvml.env(), **self.clock.env(), "PYTHONPATH": _path(folder)}
        self.daemon = DaemonProcess(folder, environment)
        self.stored = set()
        self._influxdb, self._database = influxdb, database

    def live(self):
        """Run the day and stop the daemon."""
        with ExitStack() as stack:
            chat = stack.enter_context(InferenceServer(self.chat.answer))
            served = stack.enter_context(self.served.over_http())
            uncounted = stack.enter_context(self.uncounted.over_http())
            text = CONFIG.format(
                chat=chat.url,
                served=served.url,
                uncounted=uncounted.url,
                influxdb=self._influxdb.url,
                database=self._database,
            )
            for engine in (self.served, self.uncounted):
                engine.serve(requests=1)
            stack.callback(self.daemon.stop)
            self.clock.set(self.start_ns)
            self.daemon.start(text)
            sweep = stack.enter_context(ThreadPoolExecutor(1)).submit(
                self.daemon.run, "probe", "ranker", "--sweep", timeout_s=LONGEST_SWEEP_S
            )
            self._wait_for_run(self.start_ns)
            for hour in range(1, HOURS + 1):
                self._happen(hour)
                self.clock.set(self.start_ns + hour * HOUR_NS - LEAD_NS)
                self._wait_for_run(self.start_ns + hour * HOUR_NS)
            sweep.result()
            self.daemon.run("probe", "ranker", "--cold-start", "--runs", "1")
            # Rows of the shutdown are sent after the next start.
            self.stored = self._identities()
            self.daemon.wait_for(lambda: self.stored <= set(self._influxdb.points(self._database)))

    def _happen(self, hour):
        """Apply the events of one hour of the day."""
        self.served.serve(requests=20 + hour, errors=hour % 3 == 0)
        self.uncounted.serve(requests=5)
        self.served.is_away = hour == AWAY_HOUR
        is_hot = hour in {HOT_HOUR, HOT_HOUR + 1}
        for gpu in self.nvml.gpus:
            gpu.set_power(180.0 + 20 * (hour % 7))
            gpu.set(util_pct=0 if hour % 4 == 0 else 35 + hour, temp_c=90 if is_hot else 55)
            gpu.throttle(power_share=0.05, thermal_share=0.3 if is_hot else 0.0)
        if hour == SLOW_HOUR:
            self.chat.pause_s, self.chat.version = SLOW_PAUSE_S, "0.9.2"
        if hour == AWAY_HOUR:
            self.daemon.look("annotate", "restarted chat", "--service", "chat")

    def _wait_for_run(self, since_ns):
        """Wait for the hourly probe; skip it if it is late."""
        ends_s = time.monotonic() + LONGEST_HOUR_S

        def has_run():
            rows = self.daemon.points("probe", probe="chat-latency")
            return any(row.time_ns >= since_ns for row in rows) or time.monotonic() > ends_s

        self.daemon.wait_for(has_run)

    def _identities(self):
        """The identity of each row of the store: measurement, tags and time."""
        return {
            (measurement, tuple(sorted(row.tags.items())), row.time_ns)
            for measurement in SCHEMA
            for row in self.daemon.points(measurement)
        }


def _path(folder):
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
