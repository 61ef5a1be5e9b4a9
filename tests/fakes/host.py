"""A GPU host in simulated time: a scripted driver with the real sensors, prices and detectors."""

import random
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

from costprobe.adapters.sensors.child.nvidia import NvidiaSensor
from costprobe.adapters.sensors.child.nvml import open_driver
from costprobe.adapters.sensors.messages import activity_between
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.core.records import (
    NS_PER_S,
    Device,
    Energy,
)
from costprobe.drift.monitor import DriftMonitor
from costprobe.drift.settings import DetectionConfig
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan, OwnedPlan
from costprobe.pricing.prices import RememberedPrices
from costprobe.probing.jobs import ProbeAccounts
from fakes.nvml import FakeNvml
from fakes.runs import probe_run

START_NS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * NS_PER_S
EVERY_S = 300
WINDOW_S = 5
BATCH = 16
BASE_CLOCK_MHZ = 1980
BASE_TIME_S = 0.0012
DEVICE = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100 80GB HBM3")
OWN_PID, OTHER_PID = 4242, 9191


class Host:
    """One GPU with one probe; changes by a script apply from the next run.

    Attributes:
        clock_mhz: SM clock under load; time per inference follows it.
        slowdown: Further factor on the time per inference: another driver, another model.
        thermal_share, power_share: Share of the time in which the driver reports throttling.
        temp_c: Temperature under load.
        power_w: Power under load at the full clock.
        neighbour: Probability that another process uses the device during a run.
        software: The versions that the probe's fingerprint is computed from.
        rows: Every stored row.
        events: Every event of the drift monitor.
    """

    def __init__(self, fake, rng, plans, electricity=None, noise=0.008):
        self.fake, self.gpu, self.rng, self.noise = fake, fake.gpus[0], rng, noise
        self.clock_mhz = BASE_CLOCK_MHZ
        self.slowdown = 1.0
        self.thermal_share = self.power_share = 0.0
        self.temp_c = 64.0
        self.power_w = 520.0
        self.neighbour = 0.0
        self.software = {"driver": "550.54.15", "model": "3f2a", "torch": "2.13.0"}
        open_driver()
        self.sensor = NvidiaSensor(0, fake.clock, lambda *_: None)
        self.sensor.discover()
        self.ledger = MemoryLedger()
        book = PriceBook(plans, electricity, [DEVICE])
        prices = RememberedPrices(book, self.ledger, fake.clock)
        self.accounts = ProbeAccounts(
            prices, self.ledger, fake.clock, {"host": "h1"}, lambda *_: ()
        )
        self.monitor = DriftMonitor(DetectionConfig(), self.history)
        self.events = []

    @property
    def rows(self):
        return self.ledger.points

    def history(self, measurement, device, probe, span_ns, limit):
        return newest(self.rows, measurement, device, probe, span_ns, limit)

    def run(self):
        """One probe run and the pause before the next."""
        clock, gpu, rng = self.fake.clock, self.gpu, self.rng
        is_shared = rng.random() < self.neighbour
        jitter = rng.gauss(0, 0.002)
        gpu.throttle(power_share=self.power_share, thermal_share=self.thermal_share)
        gpu.set(
            sm_clock_mhz=round(self.clock_mhz * (1 + jitter)),
            temp_c=round(self.temp_c + rng.gauss(0, 1)),
        )
        pids = [OWN_PID, OTHER_PID] if is_shared else [OWN_PID]
        gpu.set_processes(pids, busy_pids=pids)
        power_w = self.power_w * (0.3 + 0.7 * self.clock_mhz / BASE_CLOCK_MHZ)
        log = []
        log.append(self.sensor.sample())
        gpu.set_power(power_w)
        clock.move(WINDOW_S)
        log.append(self.sensor.sample())
        gpu.set_power(75.0)
        end_ns = clock.monotonic_ns()
        start_ns = end_ns - WINDOW_S * NS_PER_S
        activity = activity_between(
            log, start_ns, end_ns, [OWN_PID], self.sensor.util_by_pid_pct(0)
        )
        time_s = BASE_TIME_S * self.slowdown * BASE_CLOCK_MHZ / self.clock_mhz
        time_s *= 1.35 if is_shared else 1.0
        time_s *= rng.lognormvariate(0, self.noise)
        energy_j = gpu.energy_j(start_ns, end_ns) * rng.lognormvariate(0, self.noise / 2)
        energy = Energy(energy_j, "counter", 0.06, 75.0)
        before = len(self.rows)
        run = probe_run(
            batch=BATCH,
            latency_ms={"p50": time_s * BATCH * 1000, "mean": time_s * BATCH * 1000, "cv": 0.01},
            stop_reason="precise",
            window_start_ns=start_ns,
            window_end_ns=end_ns,
            inferences=round(WINDOW_S / time_s / BATCH) * BATCH,
            fingerprint="-".join(self.software.values()),
            software=dict(self.software),
            every_s=EVERY_S,
            activity=activity.fields(),
            window_energy=energy,
        )
        self.accounts.take_probe(run)
        self.events += self.monitor.update(self.rows[before:])
        clock.move(EVERY_S - WINDOW_S)

    def price_events(self):
        return [
            row for row in self.rows if row.measurement == "event" and row.tags["kind"] == "price"
        ]


def newest(rows, measurement, device, probe, span_ns, limit):
    """The newest rows of a measurement of a device's probe, or of all, in a span, at most as many."""
    found = [
        row
        for row in rows
        if row.measurement == measurement
        and device in {"", row.tags.get("device")}
        and probe in {"", row.tags.get("probe")}
        and span_ns[0] <= row.time_ns < span_ns[1]
    ]
    return found[-limit:]


@contextmanager
def simulated_host(folder, rng, plans, electricity=None, **more):
    """A host with the fake driver library loaded in this process."""
    folder.mkdir(parents=True)
    fake = FakeNvml(folder, simulated_utc_ns=START_NS)
    with fake.in_this_process():
        yield Host(fake, rng, plans, electricity, **more)


def rented(per_hour="3.60", **more):
    return OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": Decimal(per_hour), **more})


def owned():
    return OwnedPlan.model_validate(
        {"plan": "owned", "purchase_price": Decimal(30000), "lifetime": "3y"}
    )


def metered(**more):
    return ElectricityConfig.model_validate(
        {"tariff_per_kwh": Decimal("0.24"), "pue": Decimal("1.3"), **more}
    )


def seeded(seed):
    return random.Random(seed)
