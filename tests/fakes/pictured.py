"""Two months of a simulated host with two GPUs, for the pictures of the documentation.

All values are from seeded streams; none was measured.
"""

import math
import os
import random
import statistics
from bisect import bisect_left
from datetime import UTC, datetime

from costprobe.adapters.storage.writer import Store
from costprobe.core.records import Event
from costprobe.core.schema import make_point
from costprobe.domain.costing.probe.points import event_point
from fakes.clock import FakeClock

S = 10**9
MINUTE_NS, HOUR_NS, DAY_NS = 60 * S, 3600 * S, 86_400 * S
NOW_NS = int(datetime(2026, 11, 18, 15, 40, tzinfo=UTC).timestamp()) * S
DAYS, FINE_DAYS = 60, 8
CHEAPER_NS = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp()) * S
SOFTWARE_NS = NOW_NS - 19 * HOUR_NS
DRIFT_NS = NOW_NS - 6 * HOUR_NS
DRIFT_RAMP_NS = 40 * MINUTE_NS
LATENCY_DRIFT = 0.085
BEFORE, AFTER = 2.40, 2.10
MONEY_PER_J = 0.14 * 1.3 / 3.6e6
HOST = {"host": "gpu-01"}
DEVICES = ("gpu0", "gpu1")
MODEL = "NVIDIA H100 80GB HBM3"
# Probe, device, batch, latency in ms, joules each.
PROBES = (
    ("encoder", "gpu0", 32, 11.62, 0.231),
    ("ranker", "gpu0", 128, 18.4, 0.078),
)
CONFIG = """
[host]
name = "gpu-01"
[[price]]
plan = "on_demand"
per = "device"
per_hour = 2.40
electricity_included = false
[[price]]
plan = "on_demand"
per = "device"
per_hour = 2.10
electricity_included = false
valid_from = 2026-11-18
[electricity]
tariff_per_kwh = 0.14
pue = 1.3
[[probe]]
name = "encoder"
kind = "transformer"
latency_bound = "50ms"
[[probe]]
name = "ranker"
kind = "cnn"
batch = 128
devices = ["gpu0"]
[[service]]
name = "chat"
url = "http://127.0.0.1:8000"
engine = "vllm"
devices = ["gpu1"]
[[budget]]
name = "gpus"
amount = 3600
period = "month"
[[budget]]
name = "chat"
amount = 1650
period = "month"
service = "chat"
[[budget]]
name = "gpu0-day"
amount = 60
period = "day"
device = "gpu0"
"""


def made(folder):
    """Write a configuration and its store, whose rows end at NOW_NS; return the file's path."""
    file = folder / "costprobe.toml"
    file.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{CONFIG}')
    rng = random.Random(11)
    store = Store.open(folder / "costprobe.db", FakeClock(NOW_NS))
    for rows in (_devices(rng), _probes(rng), _service(rng), _sweep(), _alerts()):
        store.append(rows)
    store.append([event_point(event, HOST) for event in _events()])
    store.put_state("status", _status(store.path))
    store.put_state("alerts", _firing())
    store.close()
    return file


def _times(fine_s, coarse_s):
    """End times in UTC ns with durations in s, oldest first."""
    time_ns = NOW_NS - DAYS * DAY_NS
    while True:
        length_s = fine_s if time_ns >= NOW_NS - FINE_DAYS * DAY_NS else coarse_s
        time_ns += length_s * S
        if time_ns > NOW_NS - 20 * S:
            return
        yield time_ns, length_s


def _per_hour(time_ns):
    return AFTER if time_ns > CHEAPER_NS else BEFORE


def _demand(time_ns, rng):
    """The demand, 0 to 1: low at night, lower on weekends."""
    hour = time_ns / HOUR_NS % 24
    is_weekend = (time_ns // DAY_NS + 3) % 7 >= 5
    level = 0.5 - 0.5 * math.cos((hour - 3) / 24 * 2 * math.pi)
    return min(1.0, max(0.0, level * (0.55 if is_weekend else 1.0) + rng.gauss(0, 0.04)))


def _hot(time_ns, device):
    """The progress of gpu0's drift, 0 to 1."""
    gone = (time_ns - DRIFT_NS) / DRIFT_RAMP_NS if device == "gpu0" else 0.0
    return min(1.0, max(0.0, gone))


def _devices(rng):
    for device in DEVICES:
        for time_ns, length_s in _times(60, 300):
            demand = _demand(time_ns, rng)
            is_idle = demand < 0.12
            hot = _hot(time_ns, device)
            power_w = 88.0 + rng.gauss(0, 1) if is_idle else 300 + 370 * demand - 25 * hot
            energy_j = power_w * length_s
            yield make_point(
                "device",
                {
                    **HOST,
                    "device": device,
                    "kind": "gpu",
                    "uuid": f"GPU-{device}",
                    "model": MODEL,
                    "currency": "USD",
                },
                {
                    "power_w": power_w,
                    "power_max_w": power_w + rng.uniform(2, 18),
                    "energy_j": energy_j,
                    "energy_method": "counter",
                    "util_pct": 0.0 if is_idle else 35 + 62 * demand,
                    "mem_util_pct": 0.0 if is_idle else 20 + 40 * demand,
                    "temp_c": 38 + 26 * demand + 22 * hot + rng.gauss(0, 0.3),
                    "sm_clock_mhz": 1980.0 - 161 * hot,
                    "mem_clock_mhz": 2619.0,
                    "power_limit_w": 700.0,
                    "throttle_thermal_s": 0.11 * length_s * hot,
                    "throttle_power_s": 0.0,
                    "mem_used_bytes": (52 if device == "gpu0" else 71) << 30,
                    "mem_total_bytes": 80 << 30,
                    "ecc_uncorrected": 0,
                    "processes": 1,
                    "price_rate_per_h": _per_hour(time_ns),
                    "cost": _per_hour(time_ns) * length_s / 3600 + MONEY_PER_J * energy_j,
                },
                time_ns,
            )


def _windows(history, time_ns):
    """The tuples within each rolling window, by their first item, the time."""
    times = [at for at, *_ in history]
    for name, length_ns in (("1h", HOUR_NS), ("24h", DAY_NS), ("7d", 7 * DAY_NS)):
        yield name, history[bisect_left(times, time_ns - length_ns) :]


def _rolled(history, time_ns):
    """Medians and interquartile ranges of the samples, computed by the daemon's code."""
    for name, rows in _windows(history, time_ns):
        values = [value for _, value in rows]
        quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        yield f"rolling_{name}", quarters[1]
        yield f"rolling_{name}_iqr", quarters[2] - quarters[0]
        yield f"rolling_{name}_coverage", 1.0


def _probes(rng):
    for name, device, batch, latency_ms, energy_j in PROBES:
        own = {**HOST, "device": device, "probe": name}
        history = []
        for time_ns, _ in _times(300, 3600):
            hot = _hot(time_ns, device)
            p50_ms = latency_ms * (1 + LATENCY_DRIFT * hot + rng.gauss(0, 0.002))
            per_s = batch / p50_ms * 1000 * 0.985
            fields = {
                "latency_p50_ms": p50_ms,
                "latency_p90_ms": p50_ms * 1.03,
                "latency_p99_ms": p50_ms * 1.09,
                "latency_mean_ms": p50_ms * 1.01,
                "samples": 1200,
                "throughput_per_s": per_s,
                "energy_per_inference_j": energy_j * (1 + rng.gauss(0, 0.004)),
                "energy_method": "counter",
                "energy_rel_err": 0.052,
                "contended": False,
                "throttled_pct": 11.2 * hot,
                "sm_clock_mhz": 1980.0 - 161 * hot,
                "temp_max_c": 65 + 22 * hot,
                "fingerprint": "9f31" if time_ns < SOFTWARE_NS else "c07a",
            }
            yield make_point("probe", {**own, "batch": str(batch)}, fields, time_ns)
            hardware = _per_hour(time_ns) / 3600 / per_s
            electricity = fields["energy_per_inference_j"] * MONEY_PER_J
            history.append((time_ns, hardware + electricity))
            is_last = time_ns > NOW_NS - 6 * MINUTE_NS
            yield make_point(
                "cost",
                {**own, "basis": "probe", "plan": "on_demand", "currency": "USD"},
                {
                    "cost_per_inference": hardware + electricity,
                    "cost_hardware": hardware,
                    "cost_energy": electricity,
                    "cost_reference": BEFORE / 3600 / per_s + electricity,
                    "energy_method": "counter",
                    # Only the newest one is displayed.
                    **(dict(_rolled(history, time_ns)) if is_last else {}),
                },
                time_ns,
            )


def _service(rng):
    own = {**HOST, "device": "gpu1", "service": "chat"}
    history = []
    for time_ns, length_s in _times(300, 300):
        demand = 0.1 + 0.9 * _demand(time_ns, rng)
        hardware = _per_hour(time_ns) * length_s / 3600
        electricity = MONEY_PER_J * (300 + 370 * demand) * length_s
        busy_share = 0.06 + 0.8 * demand
        requests = max(1, round(1.9 * demand * length_s))
        total = (hardware + electricity) * 0.995
        parts = {"busy": busy_share, "idle": 0.995 - busy_share, "probing": 0.005}
        for part, share in parts.items():
            tags = {**own, "part": part, "currency": "USD"}
            amounts = {"cost_hardware": hardware * share, "cost_energy": electricity * share}
            fields = {**amounts, "cost": sum(amounts.values())}
            yield make_point("allocation", tags, fields, time_ns)
        history.append((time_ns, total, requests))
        rolled = {}
        if time_ns > NOW_NS - 6 * MINUTE_NS:
            for name, rows in _windows(history, time_ns):
                amount = sum(cost for _, cost, _ in rows) / sum(number for *_, number in rows)
                rolled |= {f"rolling_{name}": amount, f"rolling_{name}_coverage": 1.0}
        yield make_point(
            "cost",
            {**own, "basis": "serving", "plan": "on_demand", "currency": "USD"},
            {
                "cost_total": total,
                "cost_idle": total * (1 - busy_share),
                "idle_share": 1 - busy_share,
                "cost_per_inference": total / requests,
                "cost_per_request": total / requests,
                "cost_hardware": hardware / requests,
                "cost_energy": electricity / requests,
                "cost_per_million_tokens_in": total / requests / 900e-6 * 0.4,
                "cost_per_million_tokens_out": total / requests / 260e-6 * 0.6,
                "window_s": float(length_s),
                **rolled,
            },
            time_ns,
        )


def _sweep():
    for batch in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128):
        latency_ms = 1.9 + 0.3 * batch + 0.00012 * max(0, batch - 32) ** 2.4
        per_s = batch / latency_ms * 1000
        energy_j = 0.2 + 0.9 / batch
        own = {**HOST, "device": "gpu0", "probe": "encoder", "batch": str(batch)}
        fields = {
            "latency_p50_ms": latency_ms,
            "latency_p90_ms": latency_ms * 1.03,
            "throughput_per_s": per_s,
            "energy_per_inference_j": energy_j,
            "energy_rel_err": 0.06,
            "energy_method": "counter",
            "cost_per_inference": BEFORE / 3600 / per_s + energy_j * MONEY_PER_J,
            "cheapest": batch == 64,
        }
        yield make_point("sweep", {**own, "currency": "USD"}, fields, NOW_NS - 2 * DAY_NS)


_CAUSE = (
    "thermal throttling 11 % of the time, temperature 65 → 87 °C, SM clock 1980 → 1819 MHz;"
    " 96 % of it is time per inference"
)
_DRIFT = "cost per inference of encoder on gpu0: +8.4 % since 09:40 UTC"
_BUDGET = "budget chat: the forecast for November 2026 is above the $1,650 that are planned"


def _events():
    yield Event(
        kind="software",
        severity="info",
        title="driver 570.86.15 → 580.65.06",
        time_ns=SOFTWARE_NS,
        device="gpu0",
        before="570.86.15",
        after="580.65.06",
    )
    yield Event(
        kind="price",
        severity="info",
        title="the price of gpu0 and gpu1 fell by 12.5 %",
        time_ns=CHEAPER_NS,
        device="gpu0",
        before="$2.4/h",
        after="$2.1/h",
        cause="plan on_demand from 2026-11-18",
    )
    yield Event(
        kind="drift",
        severity="warning",
        title=_DRIFT,
        time_ns=DRIFT_NS + DRIFT_RAMP_NS,
        detail="price none, time 96 %, energy 4 %",
        device="gpu0",
        subject={"probe": "encoder"},
        cause=_CAUSE,
        metric="cost",
        change_pct=8.4,
        since_ns=DRIFT_NS,
    )


def _alerts():
    tags = {**HOST, "rule": "temperature", "device": "gpu1", "state": "firing"}
    fields = {
        "id": "t-1",
        "severity": "warning",
        "summary": "gpu1 is at 84 °C",
        "cause": "fan of the rack failed",
    }
    yield make_point("alert", tags, fields, NOW_NS - 3 * DAY_NS)
    yield make_point("alert", {**tags, "state": "resolved"}, fields, NOW_NS - 3 * DAY_NS + HOUR_NS)


def _firing():
    drift = {
        "id": "d-1",
        "name": "drift",
        "state": "firing",
        "severity": "warning",
        "labels": {**HOST, "device": "gpu0", "probe": "encoder"},
        "summary": _DRIFT,
        "symptoms": [
            {"text": "latency of encoder on gpu0: +8.5 %"},
            {"text": "latency of ranker on gpu0: +8.5 %"},
        ],
        "since_ns": DRIFT_NS + DRIFT_RAMP_NS,
        "cause": _CAUSE,
        "is_flapping": False,
    }
    budget = {
        "id": "b-1",
        "name": "budget-forecast",
        "state": "firing",
        "severity": "warning",
        "labels": {**HOST, "budget": "chat"},
        "summary": _BUDGET,
        "symptoms": [],
        "since_ns": NOW_NS - 2 * DAY_NS,
        "cause": "",
        "is_flapping": False,
    }
    return {"alerts": [drift, budget], "silenced": [], "silences": []}


def _status(path):
    return {
        "state": "running",
        "version": "0.1.0",
        "pid": os.getpid(),
        "host": "gpu-01",
        "started_ns": NOW_NS - 12 * DAY_NS,
        "config": str(path.parent / "costprobe.toml"),
        "config_fault": None,
        "devices": [{"name": name, "kind": "gpu", "model": MODEL} for name in DEVICES],
        "sensor": {
            "state": "running",
            "driver_version": "570.86.15",
            "child_restarts": 0,
            "devices": {},
            "last_fault": None,
        },
        "store": {"path": str(path), "fault": None},
        "probes": [],
        "jobs": {},
        "sinks": {},
        "outbox": {},
        "notifiers": {},
        "alerting": {},
        "spot_prices": {},
        "control": {"path": "", "fault": None},
    }
