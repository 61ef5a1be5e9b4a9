"""An hour of one GPU: the messages of the sensor child, until rows, roll-up, /metrics and status."""

import json
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace

from costprobe import __version__
from costprobe.adapters.clouds.instance import InstanceDetector
from costprobe.adapters.sensors.messages import decode
from costprobe.adapters.sensors.supervisor import SensorSupervisor
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.upkeep import Retention
from costprobe.adapters.store.write import Store
from costprobe.alerts.faults import present_faults
from costprobe.configuration import load
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.records import NS_PER_S, Device
from costprobe.daemon.metrics import AgentNow, Metrics
from costprobe.daemon.parts import HostParts
from costprobe.probing.run import Listeners
from costprobe.spend.evaluate import BudgetTracker
from costprobe.spend.now import day_allocations
from costprobe.spend.query import SpendBook
from costprobe.ui.cli.views.status_lines import lines_of
from fakes.clock import FakeClock
from pydantic_core import to_jsonable_python
from record_files import INPUTS, check, documents, input_text, printed, rows, wall_clock_at

GPU = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100 80GB HBM3")
START_NS = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()) * NS_PER_S
STEP_S, DAY_S = 10, 86_400
MINUTE_NS = 60 * NS_PER_S


class Host:
    """The daemon's parts without their threads, on a manual clock."""

    def __init__(self, folder):
        file = folder / "costprobe.toml"
        file.write_text(input_text("hour.toml", folder=folder))
        self.file, self.config = file, load(file)
        self.clock = FakeClock(START_NS)
        self.store = Store.open(folder / "costprobe.db", self.clock)
        self.ledger = StoreLedger(self.store)
        self.events = []
        settings = self.config.sensor_settings
        self.handler = SensorSupervisor((), settings, self.events.append, self.clock)
        messages = (INPUTS / "hour_messages.jsonl").read_bytes().splitlines()
        device, handshake, *self.messages = messages
        self.tell(device)
        self.tell(handshake)
        listeners = Listeners(lambda *_: None, lambda *_: None, lambda *_: None)
        sensor = SimpleNamespace(
            restarts=0, since_ns=0, has_looked=lambda: True, stream_to=lambda _: None
        )
        self.parts = HostParts(
            self.store,
            self.ledger,
            self.clock,
            ClockMonitor(self.clock),
            listeners,
            self._process_status,
        )
        self.parts.detector = InstanceDetector(folder)
        devices = self.handler.registry.devices()
        watch = SimpleNamespace(sensor=sensor, found=devices, devices=devices, elsewhere={})
        self.parts.build(self.config, watch)
        self.handler.deliver_to(self.parts.runtime.accounts.record_readings)

    def tell(self, line):
        """Pass a message of the sensor child."""
        assert self.handler.take([decode(line)]) == 0
        while self.events:
            self.parts.take_event(self.events.pop(0))

    def evaluate(self):
        """Evaluate the rules, and store the status, as the daemon's job does."""
        runtime = self.parts.runtime
        runtime.refresh_faults()
        runtime.evaluate(present_faults(self.parts.status(), None))
        self.parts.store_status()

    def evaluate_budgets(self):
        """Compute the budgets, as a job of the daemon does."""
        runtime = self.parts.runtime
        tracker = BudgetTracker(
            self.config.budget,
            self.config.telemetry.aggregate_s,
            self.ledger,
            self.store.path,
            self.clock,
            runtime.tags,
            on_event=runtime.accounts.take_event,
        )
        tracker.refresh()
        self.evaluate()
        self.parts.store_status(budgets=tracker.status())

    def _process_status(self):
        folder = self.store.path.parent
        text = input_text("hour_process.json", version=__version__, folder=folder)
        status = json.loads(text)
        status["sensor"] |= {
            "last_fault": self.handler.last_fault,
            "devices": self.handler.registry.status(self.clock.monotonic_ns()),
        }
        return status


def metrics_of(host):
    """Return the page /metrics in both formats."""
    status = host.parts.status()
    faults = present_faults(status, None)
    now = AgentNow(None, {"sensors": True, "http": False}, faults, status, {("/", 200): 3}, 1)
    page = Metrics(host.store.path, host.clock, 3600.0, 1000, lambda: now)
    return page.text() + page.openmetrics()


def test_hour_of_one_gpu(tmp_path):
    host = Host(tmp_path)
    for line in host.messages:
        is_reading = b'"reading"' in line
        host.clock.move(STEP_S if is_reading else 0)
        host.tell(line)
        if is_reading and host.clock.time_ns() % MINUTE_NS == 0:
            host.evaluate()
    host.evaluate()
    host.evaluate_budgets()
    now_ns = host.clock.time_ns()
    path = host.store.path
    fixed = [(tmp_path, "/store"), (__version__, "VERSION")]
    check("hour_rows.txt", rows(path))
    check("hour_documents.json", documents(path), fixed)
    check("hour_metrics.txt", metrics_of(host), fixed)
    for name, words, code in (
        ("hour_status.json", ("status", "--json"), 3),
        ("hour_status.txt", ("status",), 3),
        ("hour_top.json", ("status", "--watch", "--json"), 3),
        ("hour_top.txt", ("status", "--watch"), 3),
    ):
        check(name, printed(host.file, now_ns, *words, code=code), fixed)
    running = json.loads(printed(host.file, now_ns, "status", "--json", code=3))
    with wall_clock_at(now_ns):
        lines = lines_of({**running, "state": "running", "running": True})
    check("hour_running.txt", "\n".join([*lines, ""]), fixed)
    book = SpendBook()
    with closing(StoreReader.open(path)) as reader:
        book.read(reader, now_ns, host.config.telemetry.aggregate_s)
        check("hour_spend.json", to_jsonable_python(day_allocations(reader, book, now_ns)))
    settled(host)
    host.parts.runtime.close()
    host.store.close()


def settled(host):
    """Check the rows of hours, beside their rows and in the place of them."""
    retention = Retention(host.store, host.ledger, host.clock)
    path = host.store.path
    for days, name in ((0, "settled"), (8, "hours")):
        host.clock.move(days * DAY_S)
        for _ in range(3):
            host.clock.move(600)
            retention.apply(host.config.store.outbox_retention_s)
        if days:
            check(f"hour_{name}.txt", rows(path, ("device",)))
        with closing(StoreReader.open(path)) as reader:
            span = START_NS - DAY_S * NS_PER_S, START_NS + DAY_S * NS_PER_S
            sums = reader.hourly_sums("device", ("cost", "energy_j", "carbon_g"), *span)
            loads, _ = reader.loads(*span, edge_ns=MINUTE_NS)
        summed = [
            [field, each.tags, each.times_ns, each.values, each.ends]
            for field, found in sums.items()
            for each in found
        ]
        check(f"hour_sums_{name}.json", [*summed, *((at_ns, load.hex()) for at_ns, load in loads)])
