"""Hosts that serve one service together: each a daemon with GPUs, a wall clock, a name and a store of its own.

All push into the same real databases.
"""

import json
from contextlib import closing, contextmanager

from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml
from fakes.scenes import QUICK_STATUS
from fakes.sending import sink_of, worker_of
from fakes.servers import get
from fakes.shifted_clock import ShiftedClock

DATABASE = "pools"
WINDOW_S = 1


class ServedHost(DaemonProcess):
    """A host.

    Args:
        folder: For its files.
        name: Name of the host.
        per_hour: What a GPU costs an hour; its electricity is included.
        gpus: Number of its GPUs.

    Attributes:
        gpus: Their scripts.
        wall: Its wall clock.
    """

    def __init__(self, folder, name, per_hour, gpus=1):
        folder.mkdir()
        driver = FakeNvml(folder, gpus=gpus)
        self.gpus, self.wall = driver.gpus, ShiftedClock(folder)
        super().__init__(folder, {**driver.env(), **self.wall.env()})
        self.name, self.per_hour = name, per_hour

    def set_load(self, util_pct, power_w):
        """Set the utilization and the power of each GPU."""
        for gpu in self.gpus:
            gpu.set(util_pct=util_pct)
            gpu.set_power(power_w)

    def configure(self, databases, **service):
        """Write the configuration of a service on all GPUs.

        Args:
            databases: An InfluxDB and a VictoriaMetrics.
            service: Keys of the section.
        """
        price = {"plan": "on_demand", "per": "device", "per_hour": self.per_hour}
        price |= {"electricity_included": True, "currency": "EUR"}
        keys = {"every": "250ms", "window": f"{WINDOW_S}s"} | service
        keys["devices"] = [f"gpu{gpu.index}" for gpu in self.gpus]
        self._sinks = {
            name: {"api": "v1", "url": server.url, "database": DATABASE}
            for name, server in zip(("influxdb", "victoria"), databases, strict=True)
        }
        tables = [("[host]", {"name": self.name}), ("[[price]]", price), ("[[service]]", keys)]
        tables += [("[[sink]]", {"name": name, **sink}) for name, sink in self._sinks.items()]
        self.write(QUICK_STATUS + "".join(_table(head, keys) for head, keys in tables))

    def windows(self):
        """Return its rows of `cost` on the serving basis."""
        return self.points("cost", basis="serving")

    def end(self):
        """Stop the daemon, and deliver the rows that are still queued."""
        self.stop()
        with closing(Store.open(self.store, SystemClock())) as store:
            for name, keys in self._sinks.items():
                with closing(sink_of(**keys)) as sink:
                    worker = worker_of(store.outbox_of(name), sink)
                    while store.backlog(name).points:
                        worker.step()


def _table(head, keys):
    return f"{head}\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


@contextmanager
def stopped(*hosts):
    """Stop all daemons at the end."""
    try:
        yield hosts
    finally:
        for host in hosts:
            host.stop()


def sections(databases):
    """Return the section [fleet] of each database."""
    influxdb, victoria = databases
    get(f"{victoria.url}/internal/force_flush")
    return {
        kind: f'[fleet]\nkind = "{kind}"\nurl = "{server.url}"\ndatabase = "{DATABASE}"\n'
        for kind, server in (("influxql", influxdb), ("victoriametrics", victoria))
    }
