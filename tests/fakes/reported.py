"""A store with a month of a small host: two models, a drift, a price, a budget and a fault."""

import time

from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock

S = 10**9
HOUR_NS = 3600 * S
DAY_NS = 24 * HOUR_NS
# Markup and control characters that a page, table or terminal must not interpret.
HOSTILE = "<script>alert(1)</script> [red]=cmd|' /C calc'!A0 \x1b[31m|*x*"
CONFIG = """
[telemetry]
every = "30s"
[[price]]
plan = "on_demand"
per = "device"
per_hour = 3.6
currency = "EUR"
[[price]]
plan = "reserved"
name = "committed"
per = "device"
per_hour = 3.6
discount = 0.4
term = "1y"
currency = "EUR"
valid_from = 2099-01-01
[[probe]]
name = "ranker"
kind = "cnn"
latency_bound = "50ms"
[[budget]]
name = "gpus"
amount = 50
currency = "EUR"
period = "day"
"""


def end_ns():
    """The end of the last full hour, so that all hours are complete."""
    return time.time_ns() // HOUR_NS * HOUR_NS


def devices(until_ns, hours, per_hour=3.6, every_s=60):
    """One device row every `every_s` seconds."""
    tags = {
        "host": "gpu-host-1",
        "device": "gpu0",
        "kind": "gpu",
        "uuid": "GPU-1",
        "model": "A100",
        "currency": "EUR",
    }
    for i in range(1, hours * 3600 // every_s + 1):
        fields = {
            "cost": per_hour * every_s / 3600,
            "price_rate_per_h": per_hour,
            "util_pct": 40.0,
            "power_w": 300.0,
            "energy_j": 300.0 * every_s,
            "carbon_g": 1.9 * every_s / 60,
            "temp_c": 60.0,
            "sm_clock_mhz": 1410.0,
            "mem_used_bytes": 8 << 30,
            "mem_total_bytes": 40 << 30,
        }
        yield Point("device", tags, fields, until_ns - i * every_s * S)


def probed(until_ns, hours, probe, cost, drift_h=0, drift=1.0):
    """One sample per hour; the last `drift_h` of them cost `drift` times as much."""
    host = {"host": "gpu-host-1", "device": "gpu0", "probe": probe}
    paid = {**host, "basis": "probe", "plan": "on_demand", "currency": "EUR"}
    for i in range(1, hours + 1):
        at_ns = until_ns - i * HOUR_NS
        each = cost * (drift if i <= drift_h else 1.0)
        fields = {
            "latency_p50_ms": 10.0,
            "latency_p99_ms": 12.0,
            "throughput_per_s": 800.0,
            "energy_per_inference_j": 0.3,
            "energy_method": "counter",
        }
        yield Point("probe", {**host, "batch": "8"}, fields, at_ns)
        yield Point("cost", paid, {"cost_per_inference": each, "cost_reference": each}, at_ns)


def served(until_ns, hours):
    """One row per hour, half of them idle, so that a mean of ratios would be wrong."""
    tags = {"host": "gpu-host-1", "device": "gpu0", "service": "shop"}
    paid = {**tags, "basis": "serving", "plan": "on_demand", "currency": "EUR"}
    for i in range(1, hours + 1):
        at_ns = until_ns - i * HOUR_NS
        fields = {"cost_total": 3.6, "cost_idle": 1.8, "window_s": 3600.0, "energy_j": 1e6}
        if i % 2:
            fields |= {
                "cost_per_inference": 0.0036,
                "inferences": 1000.0,
                "energy_per_inference_j": 1000.0,
                "energy_tokens_out_j": 6e5,
                "energy_per_million_tokens_out_j": 3e6,
            }
        yield Point("cost", paid, fields, at_ns)
        for part in ("busy", "idle"):
            use = {"host": "gpu-host-1", "device": "gpu0", "service": "shop", "part": part}
            use["team"] = "retail"
            yield Point("allocation", {**use, "currency": "EUR"}, {"cost": 1.8}, at_ns)


def events(until_ns):
    on = {"host": "gpu-host-1", "device": "gpu0"}
    drift = {
        "severity": "warning",
        "title": "cost per inference of ranker on gpu0: +20.0 %",
        "detail": "95 % of it is time per inference; thermal throttling",
        "cause": "thermal_throttling",
        "change_pct": 20.0,
        "since_ns": until_ns - 49 * HOUR_NS,
    }
    tags = {**on, "kind": "drift", "probe": "ranker", "metric": "cost"}
    yield Point("event", tags, drift, until_ns - 48 * HOUR_NS)
    price = {"severity": "info", "title": "price of gpu0", "before": "€3.2/h", "after": "€3.6/h"}
    yield Point("event", {**on, "kind": "price"}, price, until_ns - 20 * DAY_NS)
    note = {"severity": "info", "title": "deployed v42", "detail": "by ci"}
    yield Point(
        "event", {**on, "kind": "annotation", "probe": "ranker"}, note, until_ns - 50 * HOUR_NS
    )
    for i in range(3):
        fault = {"severity": "warning", "title": HOSTILE, "detail": HOSTILE}
        yield Point("event", {**on, "kind": "fault"}, fault, until_ns - (i + 60) * HOUR_NS)


def month(folder, hours=60 * 24, config=CONFIG):
    """A configuration and its store, whose rows end with the last full hour."""
    path = folder / "costprobe.toml"
    path.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{config}')
    until_ns = end_ns()
    store = Store.open(folder / "costprobe.db", FakeClock(until_ns))
    store.append(devices(until_ns, hours, every_s=300))
    store.append(probed(until_ns, hours, "ranker", 1e-6, drift_h=48, drift=1.2))
    store.append(probed(until_ns, hours, "encoder", 2e-6))
    store.append(served(until_ns, hours))
    store.append(events(until_ns))
    store.close()
    return path
