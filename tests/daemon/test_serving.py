"""Cost of serving, with a real daemon, a real endpoint and a scripted driver."""

import csv
import io
import json
from contextlib import closing

import pytest
from costprobe.adapters.store.read import StoreReader
from fakes.scenes import GPU_PROBE, OWNED, QUICK_STATUS
from fakes.serving_engine import ServingEngine

# One an hour of the host; 0.36 a kWh is 1e-7 a joule.
ENERGY_PER_J = 1e-7


def service(server, devices, name="chat", **more):
    """Return the configuration table of a service over HTTP."""
    keys = {
        "name": name,
        "url": server.url,
        "engine": "vllm",
        "devices": list(devices),
        "every": "250ms",
        "window": "1s",
        **more,
    }
    return "\n[[service]]\n" + "".join(f"{key} = {json.dumps(v)}\n" for key, v in keys.items())


PER_REQUEST = "cost_per_request"


@pytest.fixture
def gpus(gpus):
    for gpu in gpus.gpus:
        gpu.set(util_pct=40)
    return gpus


def total(rows, field):
    return sum(row.fields.get(field, 0.0) for row in rows)


def at(rows):
    """Rows by their time."""
    found = {}
    for row in rows:
        found.setdefault(row.time_ns, []).append(row)
    return found


def windows(daemon, name="chat", **fields):
    return [
        row
        for row in daemon.points("serving", service=name)
        if all(row.fields[key] == value for key, value in fields.items())
    ]


def assert_adds_up(daemon, devices, per_s, power_w):
    """Assert that each window allocates exactly the cost of its devices."""
    closed = windows(daemon)
    rows = at(daemon.points("allocation"))
    for row in closed:
        lines = [line for line in rows[row.time_ns] if line.tags["device"] in devices]
        length_s = row.fields["window_s"]
        # A device is charged from its first sample to its last, which may be a moment less than the
        # first and the last window.
        hardware, whole = total(lines, "cost_hardware"), per_s * length_s
        assert hardware == pytest.approx(whole, rel=1e-9) or (
            row in (closed[0], closed[-1]) and 0 <= hardware < whole
        )
        drawn = power_w * len(devices) * length_s * ENERGY_PER_J
        # The counter is updated ten times a second.
        step = power_w * len(devices) * 0.25 * ENERGY_PER_J
        assert total(lines, "cost_energy") == pytest.approx(drawn, rel=0.05, abs=step)


def costs_of(daemon):
    return daemon.points("cost", basis="serving", service="chat")


def shown(daemon, name="chat"):
    """Return the last reported status of a service."""
    return next(s for s in daemon.state("status")["services"] if s["service"] == name)


def test_served_requests_have_a_cost_per_request_and_token(daemon_in, gpus):
    engine = ServingEngine()
    engine.serve(requests=1000)
    with engine.over_http() as server:
        daemon = daemon_in(**gpus.env())
        probe = GPU_PROBE + 'when_busy = "run"\n'
        daemon.start(QUICK_STATUS + OWNED + probe + service(server, ["gpu0"]))
        daemon.wait_for(lambda: windows(daemon, requests=0.0))
        before = engine.served["m"].copy()
        for _ in range(3):
            engine.serve(requests=7, errors=1)
        daemon.wait_for(lambda: total(windows(daemon), "requests") >= 21)
        daemon.wait_for(lambda: daemon.points("allocation", part="probing", device="gpu0"))
        # Windows with mostly probing are counted and have no cost.
        daemon.wait_for(lambda: windows(daemon)[-1].fields["complete"])
        engine.serve(requests=5)
        daemon.wait_for(lambda: total(windows(daemon), "requests") >= 26)
        daemon.wait_for(lambda: [row for row in costs_of(daemon) if row.fields.get(PER_REQUEST)])
        daemon.wait_for(lambda: shown(daemon)["last"])
        status = daemon.look("status")
    served = engine.served["m"]
    done = windows(daemon)
    for key in ("requests", "errors", "tokens_in", "tokens_out"):
        assert total(done, key) == served[key] - before[key]
    # One of two devices of a host of 1 an hour.
    assert_adds_up(daemon, ["gpu0"], 0.5 / 3600, 300.0)
    costs = costs_of(daemon)
    rows = at(daemon.points("allocation", service="chat", device="gpu0"))
    for cost in costs:
        # Alone on its device: the service is allocated the whole cost except probing.
        assert cost.fields["cost_total"] == pytest.approx(total(rows[cost.time_ns], "cost"))
    assert costs[0].tags["plan"] == "owned"
    # A device without a service is booked as unallocated.
    assert {"unallocated", "probing"} >= {
        row.tags["part"] for row in daemon.points("allocation", device="gpu1")
    }
    assert "service  chat (vllm on gpu0): " in status


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
        chat = service(server, ["gpu0"], window="20s")
        for _ in range(2):
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
