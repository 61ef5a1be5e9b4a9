"""Cost of serving, with a real daemon, a real endpoint and a scripted driver."""

import csv
import io
from contextlib import closing

import pytest
from costprobe.adapters.store.read import StoreReader
from fakes.scenes import OWNED, QUICK_STATUS
from fakes.serving_engine import ServingEngine


@pytest.fixture
def gpus(gpus):
    for gpu in gpus.gpus:
        gpu.set(util_pct=40)
    return gpus


def total(rows, field):
    return sum(row.fields.get(field, 0.0) for row in rows)


def test_cost_before_a_kill_is_allocated_by_the_next_start(daemon_in, gpus):
    """Devices, allocations, FOCUS and counters are one amount, also if no service is left."""

    def run(config):
        before = len(daemon.points("device"))
        daemon.start(QUICK_STATUS + OWNED + config)
        daemon.wait_for(lambda: len(daemon.points("device")) > before + 8)

    def costs():
        rows = csv.DictReader(
            io.StringIO(daemon.look("export", "--format", "focus", "--since", "1d"))
        )
        with closing(StoreReader.open(daemon.store)) as reader:
            counted = dict.fromkeys(("cost_total", "allocated_cost_total"), 0.0)
            for sample in reader.totals():
                counted[sample.name] = counted.get(sample.name, 0.0) + float(sample.value)
        return {
            "devices": total(daemon.points("device"), "cost"),
            "allocation": total(daemon.points("allocation"), "cost"),
            "focus": sum(float(row["BilledCost"]) for row in rows),
            "counter of devices": counted["cost_total"],
            "counter of allocation": counted["allocated_cost_total"],
        }

    with ServingEngine().over_http() as server:
        daemon = daemon_in(**gpus.env())
        chat = (
            f'[[service]]\nname = "chat"\nurl = "{server.url}"\nengine = "vllm"\n'
            'devices = ["gpu0"]\nevery = "250ms"\nwindow = "20s"\n'
        )
        run(chat)
        daemon.kill()
        assert costs()["allocation"] < (1 - 1e-6) * costs()["devices"]
        run(chat)
        daemon.stop()
        found = costs()
        assert found == dict.fromkeys(found, pytest.approx(found["devices"], rel=1e-9))
        run(chat)
        daemon.kill()
        killed = costs()
        run("")
        daemon.stop()
    assert costs()["allocation"] == pytest.approx(killed["devices"], rel=1e-9)


def test_requests_within_the_service_level_are_counted_and_shown(daemon_in, gpus):
    engine = ServingEngine(times=("ttft",))
    with engine.over_http() as server:
        daemon = daemon_in(**gpus.env())
        daemon.start(
            f'{QUICK_STATUS}{OWNED}[[service]]\nname = "chat"\nurl = "{server.url}"\nengine = "vllm"\n'
            'devices = ["gpu0"]\nevery = "250ms"\nwindow = "1s"\nslo = { ttft_p90 = "500ms" }\n'
        )
        engine.serve(requests=1)
        daemon.wait_for(lambda: daemon.points("serving"))
        engine.serve(requests=100)
        engine.observe("ttft", 0.3, 85)
        engine.observe("ttft", 4.0, 15)
        daemon.wait_for(lambda: total(daemon.points("slo"), "requests") >= 100)
        shown = daemon.look("status")
        daemon.stop()
    rows = daemon.points("slo")
    assert (total(rows, "requests"), total(rows, "requests_met")) == (100, 85)
    assert {row.tags["bound"] for row in rows} == {"ttft_p90"}
    assert "ttft_p90 500 ms: " in shown
