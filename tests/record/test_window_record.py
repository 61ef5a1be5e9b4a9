"""Two windows of vLLM behind a gateway: recorded pages and readings, until rows and documents."""

from contextlib import ExitStack, closing
from pathlib import Path

from costprobe.adapters.store.ledger import RowLabels, StoreLedger
from costprobe.adapters.store.write import Store
from costprobe.configuration import parse
from costprobe.core.clock import utc_ns
from costprobe.core.records import NS_PER_S, Device, Reading
from costprobe.core.schema import event_point
from costprobe.devices.charges import DeviceCharges
from costprobe.devices.use import ProbeRuns
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import CarbonBook
from costprobe.serving.device_costs import Surroundings
from costprobe.serving.service import Serving
from fakes.clock import FakeClock
from fakes.inference_server import InferenceServer
from record_files import INPUTS, check, documents, input_text, rows

DEVICES = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in (0, 1)]
STEP_S, WINDOW_S = 10, 300


class Page:
    """What a server shows at `/metrics`."""

    def __init__(self):
        self.text = ""

    def answer(self, call):
        call.whole(self.text.encode(), Content_Type="text/plain; version=0.0.4")


class Jobs(dict):
    """The jobs of the services, which the test runs."""

    def add(self, name, _every_s, run, **_):
        self[name] = run

    def remove(self, name):
        del self[name]

    def run(self, prefix):
        for name, run in list(self.items()):
            if name.startswith(prefix):
                run()


def read(clock, charges, serving, step):
    """Pass a reading of each device: gpu0 is busy, gpu1 is idle half of the time."""
    end_ns = clock.monotonic_ns()
    readings = []
    for number, device in enumerate(DEVICES):
        util_pct = 80.0 - step % 5 if number == 0 else 40.0 * (step % 2)
        power_w = 90.0 + 5 * util_pct
        fields = {
            "energy_j": power_w * STEP_S,
            "energy_method": "counter",
            "util_pct": util_pct,
            "power_w": power_w,
        }
        reading = Reading(device.name, end_ns - STEP_S * NS_PER_S, end_ns, fields)
        readings.append((reading, device))
    charges.keep(charges.charge(readings, utc_ns(clock, 0)))
    serving.record_readings(readings)


def test_windows_of_vllm(tmp_path):
    pages = {name: Page() for name in ("chat", "gateway", "embed")}
    clock, jobs, windows = FakeClock(), Jobs(), []
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(InferenceServer(page.answer)).url
            for name, page in pages.items()
        }
        config = parse(input_text("window.toml", **servers), Path("costprobe.toml"))
        store = stack.enter_context(closing(Store.open(tmp_path / "costprobe.db", clock)))
        ledger = StoreLedger(store)
        ledger.label_with(RowLabels(config.probe, config.service))
        tags = {"host": "gpu-01", "rack": "a1"}
        charges = DeviceCharges(
            PriceBook(config.price, config.electricity, DEVICES), float(WINDOW_S)
        )
        runs = ProbeRuns()
        around = Surroundings(
            charges=charges,
            runs=runs,
            clock=clock,
            tags=tags,
            ledger=ledger,
            on_event=lambda event: ledger.append([event_point(event, tags)]),
            store_path=store.path,
            carbon=CarbonBook(config.carbon, config.electricity, DEVICES),
        )
        serving = Serving(
            config.service,
            config.kubernetes,
            config.telemetry,
            DEVICES,
            around,
            jobs,
            window_s=config.longest_window_s,
        )
        serving.begin()
        # The last pages are of new processes, and the gateway has no counters.
        for window in range(4):
            for name, page in pages.items():
                page.text = (INPUTS / f"window_{name}_{window}.txt").read_text()
            jobs.run("service ")
            if window:
                jobs.run("window ")
                jobs.run("serving costs")
                windows.append(serving.status())
            if window == 1:
                runs.begin("gpu0", clock.monotonic_ns())
                runs.end("gpu0", clock.monotonic_ns() + 5 * NS_PER_S, None)
            for step in range(WINDOW_S // STEP_S):
                clock.move(STEP_S)
                read(clock, charges, serving, step)
        serving.stop()
    fixed = [(url, f"http://{name}") for name, url in servers.items()]
    check("window_rows.txt", rows(store.path), fixed)
    check("window_documents.json", documents(store.path), fixed)
    check("window_status.json", windows, fixed)
