"""The services of a host on a manual clock: real pages over HTTP, a real store, and readings that a test sets."""

from contextlib import closing
from pathlib import Path

from costprobe.adapters.store.ledger import RowLabels, StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.configuration import parse
from costprobe.core.clock import utc_ns
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.devices.charges import DeviceCharges
from costprobe.devices.use import ProbeRuns
from costprobe.pricing.book import PriceBook
from costprobe.serving.device_costs import Surroundings
from costprobe.serving.service import Serving
from fakes.clock import FakeClock

S = NS_PER_S
DEVICES = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in (0, 1)]
# 0.001 a second for each of two devices; a joule costs 1e-7.
PRICE = """
[[price]]
plan = "on_demand"
per_hour = 7.2
electricity_included = false
[electricity]
tariff_per_kwh = 0.36
"""


def surroundings(charges, clock, ledger, **more):
    """What services have around them, without a store."""
    plain = {"charges": charges, "runs": ProbeRuns(), "clock": clock, "tags": {}, "ledger": ledger}
    plain |= {"on_event": lambda _: None, "store_path": Path("/nowhere")}
    return Surroundings(**{**plain, **more})


class ServingBench:
    """Services on a manual clock, with readings every ten seconds.

    Args:
        folder: For the store.
        tables: Sections of the configuration as text.
        price: Those of the price.
        host: Name of the host.
        devices: Its devices.
        clock: Both clocks.

    Attributes:
        util_pct, power_w: Of each device, in readings to come.
        by_pid_pct: The share of each process in them; None for a driver that does not tell it.
        proc: Root of the proc file system.
    """

    def __init__(self, folder, *tables, price=PRICE, host="h", devices=DEVICES, clock=None):
        self.clock = clock or FakeClock()
        self.host, self.devices, self.proc = host, devices, folder / "proc"
        self.util_pct, self.power_w, self.by_pid_pct = 40.0, 300.0, None
        self.store = Store.open(folder / "costprobe.db", self.clock)
        self.ledger = StoreLedger(self.store)
        self.config = parse(price + "\n".join(tables), Path("costprobe.toml"))
        self.ledger.label_with(RowLabels(self.config.probe, self.config.service))
        self.events = []
        self.readings_until_ns = self.clock.monotonic_ns()
        self.begin()

    def begin(self):
        self.runs = ProbeRuns()
        book = PriceBook(self.config.price, self.config.electricity, self.devices)
        self.charges = DeviceCharges(book, 300.0)
        around = surroundings(
            self.charges,
            self.clock,
            self.ledger,
            runs=self.runs,
            tags={"host": self.host},
            on_event=self.events.append,
            store_path=self.store.path,
            proc=self.proc,
        )
        self.jobs = {}
        self.serving = Serving(
            self.config.service,
            self.config.kubernetes,
            self.config.telemetry,
            self.devices,
            around,
            self,
            window_s=self.config.longest_window_s,
        )
        self.serving.begin()
        self.scrape()

    def add(self, name, _every_s, run, **_):
        """Schedule a job: the tests run it."""
        assert name not in self.jobs
        self.jobs[name] = run

    def remove(self, name):
        del self.jobs[name]

    def scrape(self):
        for name, run in self.jobs.items():
            if name.startswith("service "):
                run()

    def move(self, duration_s, *, read=True):
        self.clock.move(duration_s)
        while read and self.readings_until_ns + 10 * S <= self.clock.monotonic_ns():
            start_ns = self.readings_until_ns
            self.readings_until_ns = end_ns = start_ns + 10 * S
            for device in self.devices:
                fields = {
                    "energy_j": 10 * self.power_w,
                    "energy_method": "counter",
                    "util_pct": self.util_pct,
                    "power_w": self.power_w,
                }
                by_pid_s = self.by_pid_pct and {k: x / 10 for k, x in self.by_pid_pct.items()}
                reading = Reading(device.name, start_ns, end_ns, fields, by_pid_s)
                self.charges.keep(self.charges.charge([(reading, device)], utc_ns(self.clock, 0)))
                self.serving.record_readings([(reading, device)])

    def close(self):
        for name, run in list(self.jobs.items()):
            if name.startswith("window "):
                run()

    def rows(self, measurement, **tags):
        with closing(StoreReader.open(self.store.path)) as reader:
            return list(reader.points(measurement, 0, 2**62, tags or None))
