"""A host on which every command has output: a store with history and a running daemon."""

import time
from contextlib import contextmanager

from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.daemon import DaemonProcess
from fakes.reported import DAY_NS, HOUR_NS, devices, end_ns, events, probed, served
from fakes.scenes import WORKER
from fakes.servers import Scripted, free_port
from fakes.serving_engine import ServingEngine
from fakes.store_access import advance

HOURS = 10 * 24
CONFIG = """
[host]
name = "h"
[telemetry]
gpus = false
cpu = true
every = "100ms"
[[probe]]
name = "quick"
kind = "cnn"
batch = 1
energy = false
python = "{worker}"
when_busy = "run"
quality = 0.9
[[probe]]
name = "ranker"
kind = "cnn"
python = "{worker}"
latency_bound = "50ms"
every = "24h"
[[service]]
name = "chat"
url = "{engine}"
engine = "vllm"
devices = ["cpu"]
every = "500ms"
window = "2s"
[[price]]
plan = "on_demand"
per_hour = 3.6
currency = "EUR"
valid_from = 2020-01-01
[[price]]
plan = "spot"
name = "market"
command = ["/bin/echo", "1.8"]
currency = "EUR"
valid_from = 2026-01-01
[electricity]
tariff_per_kwh = 0.2
pue = 1.3
[carbon]
command = ["/bin/echo", "380"]
[[budget]]
name = "gpus"
amount = 50
currency = "EUR"
period = "day"
[[notifier]]
name = "pager"
kind = "webhook"
url = "http://127.0.0.1:{closed}"
[[sink]]
name = "influxdb"
api = "v1"
url = "{database}"
database = "d"
flush_every = "500ms"
[[sink]]
name = "influxdb2"
api = "v2"
url = "http://127.0.0.1:{closed}"
org = "ml"
bucket = "costprobe"
flush_every = "500ms"
"""


def _on_cpu(until_ns):
    """Probe runs on this device, for repricing, and a batch sweep."""
    for row in probed(until_ns, HOURS, "ranker", 1e-6):
        yield Point(row.measurement, {**row.tags, "device": "cpu"}, row.fields, row.time_ns)
    for batch, latency_ms in ((1, 4.0), (8, 10.0)):
        tags = {"device": "cpu", "probe": "ranker", "batch": str(batch), "currency": "EUR"}
        fields = {
            "latency_p50_ms": latency_ms,
            "throughput_per_s": batch * 1000 / latency_ms,
            "energy_per_inference_j": 0.3,
            "energy_method": "modelled",
            "energy_rel_err": 0.5,
            "cost_per_inference": 1e-6 / batch,
            "cheapest": batch == 8,
            "fingerprint": "f",
        }
        yield Point("sweep", tags, fields, until_ns - DAY_NS)


def _alerts(until_ns):
    for state, hours_ago in (("firing", 9), ("resolved", 5)):
        tags = {"host": "h", "rule": "hot", "state": state, "device": "gpu0"}
        fields = {"id": "a1", "severity": "warning", "summary": "it is hot", "cause": "cooling"}
        yield Point("alert", tags, fields, until_ns - hours_ago * HOUR_NS)


def fill(path):
    """Ten days of history."""
    until_ns = end_ns()
    store = Store.open(path, FakeClock(until_ns))
    store.append(devices(until_ns, HOURS, every_s=300))
    store.append(probed(until_ns, HOURS, "ranker", 1e-6, drift_h=48, drift=1.2))
    store.append(served(until_ns, HOURS))
    store.append([*events(until_ns), *_alerts(until_ns), *_on_cpu(until_ns)])
    # Sinks do not receive rows from before their registration.
    store.register_sink("influxdb")
    store.register_sink("influxdb2")
    store.append([Point("device", {"device": "gpu0"}, {"power_w": 1.0}, until_ns)])
    advance(store, "influxdb", 10**9, 1, [RejectedLine("device,x=1 power_w=2 3", "type conflict")])
    store.close()


@contextmanager
def json_host(folder):
    """The daemon after a probe run, a service window and a budget evaluation."""
    engine = ServingEngine()
    closed = free_port()
    with engine.over_http() as server, Scripted(lambda *_: (204, {}, b"")) as database:
        daemon = DaemonProcess(folder, {"XDG_RUNTIME_DIR": str(folder)})
        fill(daemon.store)
        text = CONFIG
        values = {"engine": server.url, "closed": closed, "database": database.url}
        for key, value in {**values, "worker": WORKER}.items():
            text = text.replace(f"{{{key}}}", str(value))
        try:
            alerting = '[alerting]\nevaluate_every = "{}"\n'
            daemon.start(text + alerting.format("500ms"))
            # `replay` evaluates ten days at the interval of the file.
            daemon.write(text + alerting.format("1m"))
            daemon.wait_for(lambda: _is_ready(daemon, engine))
            yield daemon
        finally:
            daemon.stop()


def _is_ready(daemon, engine):
    engine.serve(requests=3)
    time.sleep(0.2)
    status = daemon.state("status")
    last = status["services"][0]["last"]
    return (
        any(probe["last"] for probe in status["probes"])
        and status["budgets"]
        and status["sinks"]["influxdb2"]["last_error"]
        # A window that ended without a reading of its device has no cost.
        and last
        and last["cost"]
    )
