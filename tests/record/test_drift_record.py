"""A probe whose GPU throttles after three days, until events, alerts and their messages."""

import random
from contextlib import closing

from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.write import Store
from costprobe.alerts.watching import Watching
from costprobe.configuration import Config
from costprobe.core.clock_step import ClockMonitor
from costprobe.core.incident import Alert
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.daemon.parts import watched_sections
from costprobe.delivery.alertmanager import to_documents
from costprobe.delivery.contract import text_of, title_of
from costprobe.delivery.webhook import to_document
from fakes.clock import FakeClock
from record_files import check, documents, rows

EVERY_S = 300
DAY = 86_400 // EVERY_S
# Runs before the shift, while it lasts, and after it.
NORMAL, SHIFTED, AFTER = 3 * DAY, DAY // 2, DAY // 2
TAGS = {"host": "gpu-01", "rack": "a1"}
CONFIG = Config.model_validate(
    {
        "probe": [{"name": "encoder", "every": "5m"}],
        "notifier": [{"name": "ops", "kind": "webhook", "url": "http://127.0.0.1:1/"}],
    }
)


def run(rng, time_ns, *, is_hot):
    """Return the rows of a run; a hot GPU is a tenth slower, and takes a little less power."""
    place = {**TAGS, "device": "gpu0", "probe": "encoder"}
    slower = 1.1 if is_hot else 1.0
    latency_ms = 8.0 * slower * rng.lognormvariate(0, 0.006)
    cost = 3.6 / 3600 * latency_ms / 1000 / 8
    fields = {
        "latency_p50_ms": latency_ms,
        "throughput_per_s": 8000 / latency_ms,
        "energy_per_inference_j": 0.5 * slower**0.5 * rng.lognormvariate(0, 0.004),
        "energy_method": "counter",
        "contended": False,
        "throttled_pct": 28.0 if is_hot else 0.0,
        "throttled_thermal_pct": 28.0 if is_hot else 0.0,
        "throttled_power_pct": 0.0,
        "sm_clock_mhz": 1980.0 / slower + rng.gauss(0, 2),
        "temp_max_c": (87.0 if is_hot else 64.0) + rng.gauss(0, 0.5),
        "fingerprint": "3f9ad07c",
    }
    paid = {**place, "basis": "probe", "plan": "on_demand", "currency": "USD"}
    costs = {"cost_per_inference": cost, "cost_hardware": cost, "cost_reference": cost}
    return [
        make_point("probe", {**place, "batch": "8"}, fields, time_ns),
        make_point("cost", paid, costs, time_ns),
    ]


def messages_of(alert, time_ns):
    """Return what a terminal and a mail show, and the documents that are posted."""
    return [
        title_of(alert),
        text_of(alert),
        to_document(alert, time_ns),
        to_documents(alert, time_ns, 240 * NS_PER_S),
    ]


def test_drift_and_its_end(tmp_path):
    rng, clock = random.Random(23), FakeClock()
    with closing(Store.open(tmp_path / "costprobe.db", clock)) as store:
        past_ns = clock.time_ns() - NORMAL * EVERY_S * NS_PER_S
        times_ns = [past_ns + number * EVERY_S * NS_PER_S for number in range(NORMAL)]
        store.append([row for time_ns in times_ns for row in run(rng, time_ns, is_hot=False)])
        ledger = StoreLedger(store)
        watching = Watching(
            watched_sections(CONFIG), store, ledger, clock, TAGS, ClockMonitor(clock)
        )
        ledger.observe(watching.take)
        for number in range(SHIFTED + AFTER):
            ledger.append(run(rng, clock.time_ns(), is_hot=number < SHIFTED))
            watching.tick([])
            clock.move(EVERY_S)
        watching.tick([])
        watching.keep_detectors()
        now_ns = clock.time_ns()
        alerts = [Alert.from_document(each.alert) for each in store.notices("ops", 100)]
    assert {alert.state for alert in alerts} == {"firing", "resolved"}
    check("drift_rows.txt", rows(store.path, ("event", "alert")))
    check("drift_messages.json", [part for each in alerts for part in messages_of(each, now_ns)])
    check("drift_documents.json", documents(store.path))
