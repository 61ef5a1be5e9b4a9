"""A host on which every command has output: a store with history and a running daemon."""

import time
from contextlib import contextmanager
from pathlib import Path

from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes import rows
from fakes.clock import FakeClock
from fakes.daemon import DaemonProcess
from fakes.reported import DAY_NS, HOUR_NS, devices, end_ns, events, probed, served
from fakes.scenes import WORKER
from fakes.servers import Scripted, free_port
from fakes.serving_engine import ServingEngine
from fakes.store_access import advance

CONFIG = Path(__file__).with_name("json_host.toml")
HOURS = 10 * 24


def _more(until_ns):
    """Probe runs on this device, for repricing, a batch sweep, and an alert."""
    yield from probed(until_ns, HOURS, "ranker", 1e-6, device="cpu")
    own = {"device": "cpu", "probe": "ranker"}
    for batch, latency_ms in ((1, 4.0), (8, 10.0)):
        figures = {"energy_j": 0.3, "cost": 1e-6 / batch, "cheapest": batch == 8}
        yield rows.swept(own, until_ns - DAY_NS, batch, latency_ms, currency="EUR", **figures)
    hot = {"host": "h", "rule": "hot", "device": "gpu0"}
    yield from rows.alert(hot, until_ns - 9 * HOUR_NS, "it is hot")


def fill(path):
    """Ten days of history."""
    until_ns = end_ns()
    store = Store.open(path, FakeClock(until_ns))
    store.append(devices(until_ns, HOURS, every_s=300))
    store.append(probed(until_ns, HOURS, "ranker", 1e-6, drift_h=48, drift=1.2))
    store.append(served(until_ns, HOURS))
    store.append([*events(until_ns), *_more(until_ns)])
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
    env = {"XDG_RUNTIME_DIR": str(folder)}
    with (
        engine.over_http() as server,
        Scripted(lambda *_: (204, {}, b"")) as database,
        DaemonProcess(folder, env) as daemon,
    ):
        fill(daemon.store)
        values = {"engine": server.url, "closed": free_port(), "database": database.url}
        text = CONFIG.read_text().format(**values, worker=WORKER)
        alerting = '[alerting]\nevaluate_every = "{}"\n'
        daemon.start(text + alerting.format("500ms"))
        # `replay` evaluates ten days at the interval of the file.
        daemon.write(text + alerting.format("1m"))
        daemon.wait_for(lambda: _is_ready(daemon, engine))
        yield daemon


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
