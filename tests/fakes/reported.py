"""A store with a month of a small host: two models, a drift, a price, a budget and a fault."""

import time

from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes import rows
from fakes.clock import FakeClock

S = 10**9
HOUR_NS = 3600 * S
DAY_NS = 24 * HOUR_NS
# Markup and control characters that a page, table or terminal must not interpret.
HOSTILE = "=cmd|' /C calc'!A0 <script>alert(1)</script> [red] \x1b[31m|*x*"
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


HOST = {"host": "gpu-host-1", "device": "gpu0"}


def devices(until_ns, hours, per_hour=3.6, every_s=60):
    """One device row every `every_s` seconds."""
    for i in range(1, hours * 3600 // every_s + 1):
        at_ns = until_ns - i * every_s * S
        euros = {"model": "A100", "currency": "EUR", "carbon_g": 1.9 * every_s / 60}
        yield rows.device(HOST, at_ns, every_s, per_hour, 300.0, **euros)


def probed(until_ns, hours, probe, cost, *, drift_h=0, drift=1.0, device="gpu0"):
    """One sample per hour; the last `drift_h` of them cost `drift` times as much."""
    own = {**HOST, "device": device, "probe": probe}
    for i in range(1, hours + 1):
        at_ns = until_ns - i * HOUR_NS
        yield rows.run(own, at_ns, 10.0)
        each = cost * (drift if i <= drift_h else 1.0)
        yield rows.run_cost(own, at_ns, each, currency="EUR")


def served(until_ns, hours):
    """One row per hour, half of them idle, so that a mean of ratios would be wrong."""
    own = {**HOST, "service": "shop"}
    for i in range(1, hours + 1):
        at_ns = until_ns - i * HOUR_NS
        sums = {"cost_idle": 1.8, "energy_j": 1e6, "inferences": 0.0}
        if i % 2:
            sums |= {"inferences": 1000.0, "energy_tokens_out_j": 6e5}
            sums["energy_per_million_tokens_out_j"] = 3e6
        yield rows.window_cost({**own, "currency": "EUR"}, at_ns, 3600, 3.6, **sums)
        for part in ("busy", "idle"):
            yield rows.allocation({**own, "team": "retail"}, at_ns, part, 1.8, currency="EUR")


def events(until_ns):
    drift = {
        "severity": "warning",
        "title": "cost per inference of ranker on gpu0: +20.0 %",
        "detail": "95 % of it is time per inference; thermal throttling",
        "cause": "thermal_throttling",
        "change_pct": 20.0,
        "since_ns": until_ns - 49 * HOUR_NS,
    }
    tags = {**HOST, "kind": "drift", "probe": "ranker", "metric": "cost"}
    yield Point("event", tags, drift, until_ns - 48 * HOUR_NS)
    price = {"severity": "info", "title": "price of gpu0", "before": "€3.2/h", "after": "€3.6/h"}
    yield Point("event", {**HOST, "kind": "price"}, price, until_ns - 20 * DAY_NS)
    note = {"severity": "info", "title": "deployed v42", "detail": "by ci"}
    yield Point(
        "event", {**HOST, "kind": "annotation", "probe": "ranker"}, note, until_ns - 50 * HOUR_NS
    )
    for i in range(3):
        fault = {"severity": "warning", "title": HOSTILE, "detail": HOSTILE}
        yield Point("event", {**HOST, "kind": "fault"}, fault, until_ns - (i + 60) * HOUR_NS)


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
