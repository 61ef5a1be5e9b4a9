"""The growth of memory, descriptors and disk usage over many runs.

A job here is what the daemon does with a probe run and a reading: it prices them, looks at them
for drift, commits them, evaluates the rules and pushes to a sink; each simulated day retention
lets go of what is old. Only the devices and the waiting are simulated.

Outcome: after a warm-up in which every window fills, file descriptors and threads stay the same,
and memory and the store grow by no more than noise.
"""

import gc
import logging
import random
import resource
import threading
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import prune
from costprobe.adapters.store.write import Store
from costprobe.alerts.watching import Watching
from costprobe.configuration import Config
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.incident import Fault
from costprobe.core.records import (
    END_OF_TIME_NS,
    Device,
    Energy,
    Reading,
)
from costprobe.daemon.parts import watched_sections
from costprobe.delivery.contract import Sink
from costprobe.devices.readings import Accounts
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import ElectricityConfig
from costprobe.pricing.plans import OnDemandPlan
from costprobe.pricing.prices import RememberedPrices
from costprobe.probing.jobs import ProbeAccounts
from fakes.clock import NS_PER_S, FakeClock
from fakes.memory import memory_folder
from fakes.runs import probe_run
from fakes.sending import worker_of
from fakes.sizes import SEED, TIMEOUT_S, sized

RUNS = sized(1500, 1_000_000)
WARM_UP_RUNS = sized(900, 20_000)
EVERY_S = 3600
HOUR_NS = 3600 * NS_PER_S
# Hours that rows as measured, those of probes, hour rows, and unsent rows are kept.
KEPT, KEPT_SHORTLY = (240, 288, 360, 480), (1, 2, 24, 48)
FAST_RUNS = sized(40_000, 1_000_000)
FAST_WARM_UP_RUNS = 22_000
# Memory is read so often after the warm-up.
FAST_SAMPLES = 20
FAST_GROWTH_BYTES_MAX = 4 << 20
MEMORY_GROWTH_BYTES_MAX = 16 << 20
STORE_GROWTH_BYTES_MAX = 8 << 20
DEVICES = [Device(f"gpu{n}", "gpu", f"GPU-{n}", "NVIDIA H100 80GB HBM3") for n in range(2)]
RUNS_A_DAY = 86_400 // EVERY_S * len(DEVICES)
CONFIG = Config.model_validate({"probe": [{"name": "encoder"}]})
LOST = Fault("device_lost", "gpu1", "gpu1 does not answer", "critical", {"device": "gpu1"})


class DiscardingSink(Sink):
    """A sink that accepts everything and stores nothing."""

    def encode(self, points):
        return points

    def post(self, body):
        """Accept it."""


class Host:
    """The daemon's components between its children and its sinks, in simulated time."""

    def __init__(self, folder, rng, every_s=EVERY_S, kept=KEPT, runs_a_prune=RUNS_A_DAY):
        self.clock, self.rng = FakeClock(), rng
        self.every_s, self.kept, self.runs_a_prune = every_s, kept, runs_a_prune
        self.store = Store.open(folder / "costprobe.db", self.clock)
        self.store.register_sink("one")
        ledger = StoreLedger(self.store)
        parts = (self.store, ledger, self.clock, {"host": "h"}, ClockMonitor(self.clock))
        self.watching = Watching(watched_sections(CONFIG), *parts)
        ledger.observe(self.watching.take)
        plans = [OnDemandPlan.model_validate({"plan": "on_demand", "per_hour": 3.6})]
        electricity = ElectricityConfig.model_validate({"tariff_per_kwh": 0.3})
        prices = RememberedPrices(PriceBook(plans, electricity, DEVICES), ledger, self.clock)
        self.accounts = Accounts(prices, ledger, self.clock, {"host": "h"})
        self.probes = ProbeAccounts(prices, ledger, self.clock, {"host": "h"}, self._history)
        self.worker = worker_of(
            self.store.outbox_of("one"),
            DiscardingSink(),
            clock=self.clock,
            batch_points=500,
            flush_every_s=1.0,
            drain_points_per_s=10_000,
            rng=rng,
        )

    def _history(self, device, probe, currency, since_ns):
        tags = {"device": device, "probe": probe, "basis": "probe", "currency": currency}
        with closing(StoreReader.open(self.store.path)) as reader:
            found = reader.values("cost", "cost_per_inference", since_ns, END_OF_TIME_NS, tags)
        return [
            pair for series in found for pair in zip(series.times_ns, series.values, strict=True)
        ]

    def job(self, number):
        """Process one probe run and one device reading."""
        device = DEVICES[number % len(DEVICES)]
        self.accounts.record_readings([(self._reading(device), device)])
        self.probes.take_probe(self._measured(device, number))
        faults = [LOST] if self.rng.random() < 0.02 else []
        self.watching.tick(faults)
        self.worker.step()
        self.clock.move(self.every_s / len(DEVICES))
        if number % self.runs_a_prune == 0:
            now_ns = self.clock.time_ns()
            self.store.settle(now_ns, 1000)
            prune(self.store, KeepSince(*(now_ns - hours * HOUR_NS for hours in self.kept)))
            self.watching.keep_detectors()

    def _reading(self, device):
        end_ns = self.clock.monotonic_ns()
        fields = {"power_w": 300.0 + self.rng.random(), "energy_j": 3000.0}
        return Reading(device.name, end_ns - 10 * NS_PER_S, end_ns, fields)

    def _measured(self, device, number):
        end_ns = self.clock.monotonic_ns()
        slow = 1.3 if number // 4000 % 2 else 1.0
        time_ms = 4.0 * slow * self.rng.lognormvariate(0, 0.01)
        # The software changes occasionally, which starts a new batch search.
        fingerprint = f"{number // 3000:012x}"
        energy = Energy(3000.0 * self.rng.lognormvariate(0, 0.01), "counter", 0.06, 50.0)
        conditions = {"contended": False, "throttled_pct": 0.0}
        return probe_run(
            device=device.name,
            latency_ms={"p50": time_ms, "mean": time_ms, "cv": 0.01},
            window_start_ns=end_ns - 10 * NS_PER_S,
            window_end_ns=end_ns,
            inferences=round(10_000 / time_ms) * 8,
            fingerprint=fingerprint,
            software={"torch": fingerprint},
            every_s=float(self.every_s),
            activity=conditions,
            window_energy=energy,
        )


def used(store):
    """Descriptors, threads, resident bytes and bytes of the store's file."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len([*Path("/proc/self/fd").iterdir()]),
        "threads": threading.active_count(),
        "resident_bytes": pages * resource.getpagesize(),
        "store_bytes": store.size_bytes(),
    }


@pytest.fixture
def folder():
    """In memory: commit latency is not the subject."""
    with memory_folder() as made:
        yield Path(made)


@pytest.fixture
def unheard():
    """Log nothing: pytest's captured log would grow with each run."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def played(host, warm_up_runs, runs, samples=1):
    """What is used after the warm-up and at the end, and the most resident bytes between them."""
    for number in range(warm_up_runs):
        host.job(number)
    before, most = used(host.store), 0
    for number in range(warm_up_runs, runs):
        host.job(number)
        if number % (runs // samples) == 0:
            most = max(most, used(host.store)["resident_bytes"])
    after = used(host.store)
    assert after["descriptors"] == before["descriptors"]
    assert after["threads"] == before["threads"]
    found = {f"{name}_before": value for name, value in before.items()}
    found |= {f"{name}_after": value for name, value in after.items()}
    grown = {name: after[name] - before[name] for name in before}
    return found, grown, max(most, after["resident_bytes"]) - before["resident_bytes"]


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT_S)
def test_fast_probe_is_flat_once_its_windows_are_full(folder, figures, unheard):
    """A probe each second; its rolling windows are full after 10,080 runs on each device."""
    host = Host(folder, random.Random(SEED), 1, KEPT_SHORTLY, runs_a_prune=1000)
    found, _, most_grown = played(host, FAST_WARM_UP_RUNS, FAST_RUNS, FAST_SAMPLES)
    host.store.close()
    figures("simulated runs of a fast probe", runs=FAST_RUNS, **found)
    assert most_grown < FAST_GROWTH_BYTES_MAX


@pytest.mark.timeout(TIMEOUT_S)
def test_runs_do_not_grow_memory_descriptors_or_disk(folder, figures, unheard):
    host = Host(folder, random.Random(SEED))
    found, grown, _ = played(host, WARM_UP_RUNS, RUNS)
    (sink,) = host.store.sinks()
    host.store.close()
    days = RUNS // RUNS_A_DAY
    figures(
        "simulated job runs",
        runs=RUNS,
        simulated_days=days,
        rows_sent=sink.sent_points,
        **found,
    )
    assert grown["resident_bytes"] < MEMORY_GROWTH_BYTES_MAX
    assert grown["store_bytes"] < STORE_GROWTH_BYTES_MAX
    assert sink.dropped_points == sink.rejected_points == 0
    assert sink.sent_points > RUNS
