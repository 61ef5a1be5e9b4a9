"""Five weeks of a simulated host with eight GPUs, for the pictures of the documentation.

All values are from seeded streams; none was measured.
"""

import math
import os
import random
import statistics
from bisect import bisect_right
from datetime import UTC, datetime
from operator import itemgetter

from costprobe.adapters.store.write import Store
from costprobe.core.records import Event
from costprobe.core.schema import SERVING_RATIOS, event_point, make_point
from fakes.clock import FakeClock

S = 10**9
MINUTE_NS, HOUR_NS, DAY_NS = 60 * S, 3600 * S, 86_400 * S
NOW_NS = int(datetime(2026, 11, 18, 15, 40, tzinfo=UTC).timestamp()) * S
DAYS, FINE_DAYS = 35, 8
ZONE = "Europe/Berlin"
CHEAPER_NS = int(datetime(2026, 11, 12, tzinfo=UTC).timestamp()) * S
SOFTWARE_NS = NOW_NS - 19 * HOUR_NS
DRIFT_NS = NOW_NS - 6 * HOUR_NS
DRIFT_RAMP_NS = 40 * MINUTE_NS
LATENCY_DRIFT = 0.085
BEFORE, AFTER = 4.10, 3.98
MONEY_PER_J = 0.14 * 1.3 / 3.6e6
HOST = {"host": "gpu-01"}
DEVICES = tuple(f"gpu{number}" for number in range(8))
MODEL = "NVIDIA H100 80GB HBM3"
# Probe, batch, latency in ms, joules each; on the devices of DEVICES[:4].
PROBES = (("encoder", 32, 11.62, 0.231), ("ranker", 128, 18.4, 0.078))
PROBED = DEVICES[:4]
# A service, its devices, its models with their share of requests, requests a second, tokens in and out of each.
SERVICES = (
    ("chat", DEVICES[4:7], (("llama-3.1-8b", 0.7), ("llama-3.1-70b", 0.3)), 9.0, 900, 260),
    ("search", DEVICES[7:], (("", 1.0),), 60.0, 0, 0),
)
# Teams of the service chat, with their shares of its cost.
TEAMS = {"search": 0.34, "assistant": 0.27, "support": 0.16, "research": 0.08, "unattributed": 0.15}
CONFIG = """
[host]
name = "gpu-01"
[[price]]
plan = "on_demand"
per = "device"
per_hour = 4.10
electricity_included = false
[[price]]
plan = "on_demand"
per = "device"
per_hour = 3.98
electricity_included = false
valid_from = 2026-11-12
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
[[service]]
name = "chat"
url = "http://127.0.0.1:8000"
engine = "vllm"
devices = ["gpu4", "gpu5", "gpu6"]
[service.tenants]
gateway = "litellm"
url = "http://127.0.0.1:4000"
label = "team"
[[service]]
name = "search"
url = "http://127.0.0.1:8001"
engine = "triton"
devices = ["gpu7"]
[[budget]]
name = "gpus"
amount = 23500
period = "month"
timezone = "Europe/Berlin"
[[budget]]
name = "chat"
amount = 9000
period = "month"
service = "chat"
timezone = "Europe/Berlin"
[[budget]]
name = "gpu0-day"
amount = 110
period = "day"
device = "gpu0"
timezone = "Europe/Berlin"
"""


def made(folder):
    """Write a configuration and its store, whose rows end at NOW_NS; return the file's path."""
    file = folder / "costprobe.toml"
    file.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{CONFIG}')
    rng = random.Random(11)
    store = Store.open(folder / "costprobe.db", FakeClock(NOW_NS))
    for rows in (_devices(rng), _probes(rng), _services(rng), _sweep(), _alerts()):
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
                    "util_pct": 100 * (0.06 + 0.8 * (0.1 + 0.9 * demand)),
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


def _rolled(history, time_ns, names):
    """Medians and interquartile ranges of the samples of rolling windows that end at a time."""
    lengths_ns = {"1h": HOUR_NS, "24h": DAY_NS, "7d": 7 * DAY_NS}
    for name in names:
        first = bisect_right(history, time_ns - lengths_ns[name], key=itemgetter(0))
        values = [value for _, value in history[first:]]
        quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        yield f"rolling_{name}", quarters[1]
        yield f"rolling_{name}_iqr", quarters[2] - quarters[0]
        yield f"rolling_{name}_coverage", 1.0


def _probes(rng):
    for name, batch, latency_ms, energy_j in PROBES:
        for number, device in enumerate(PROBED):
            yield from _probe(rng, name, device, batch, latency_ms * (1 + 0.004 * number), energy_j)


def _probe(rng, name, device, batch, latency_ms, energy_j):
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
                # Only the newest longer ones are displayed.
                **dict(_rolled(history, time_ns, ("1h", "24h", "7d") if is_last else ("1h",))),
            },
            time_ns,
        )


def _services(rng):
    for service in SERVICES:
        yield from _service(rng, service)
    for device in PROBED:
        for time_ns, length_s in _times(300, 900):
            cost = (_per_hour(time_ns) + 0.07) * length_s / 3600
            for part, share in (("probing", 0.008), ("unallocated", 0.992)):
                tags = {**HOST, "device": device, "part": part, "currency": "USD"}
                yield make_point("allocation", tags, {"cost": cost * share}, time_ns)


def _service(rng, service):
    name, devices, models, per_s, tokens_in, tokens_out = service
    tags = {**HOST, "service": name, "currency": "USD"}
    for time_ns, length_s in _times(300, 900):
        demand = 0.1 + 0.9 * _demand(time_ns, rng)
        busy_share = 0.06 + 0.8 * demand
        drawn_j = (300 + 370 * demand) * length_s
        hardware, electricity = _per_hour(time_ns) * length_s / 3600, MONEY_PER_J * drawn_j
        for device in devices:
            parts = {"busy": busy_share, "idle": 0.995 - busy_share, "probing": 0.005}
            for part, share in parts.items():
                amounts = {"cost_hardware": hardware * share, "cost_energy": electricity * share}
                own = {**tags, "device": device, "part": part}
                yield make_point(
                    "allocation", own, {**amounts, "cost": sum(amounts.values())}, time_ns
                )
        if name == "chat":
            window = len(devices) * (hardware + electricity) * 0.995
            for team, share in TEAMS.items():
                fields = {"cost": window * share}
                yield make_point("tenant", {**tags, "tenant": team}, fields, time_ns)
        requests = max(1, round(per_s * demand * length_s))
        whole = [("", 1.0)] if len(models) > 1 else []
        for model, share in (*whole, *models):
            # A request of the larger model costs three times as much.
            weight = share if len(models) == 1 or not model else {0.7: 0.44, 0.3: 0.56}[share]
            total = len(devices) * (hardware + electricity) * 0.995 * weight
            count = requests * share
            own = {
                **tags,
                "device": devices[0],
                "served_model": model,
                "basis": "serving",
                "plan": "on_demand",
            }
            fields = {
                "cost_total": total,
                "cost_idle": total * (1 - busy_share),
                "cost_total_hardware": len(devices) * hardware * 0.995 * weight,
                "cost_total_energy": len(devices) * electricity * 0.995 * weight,
                "requests": count,
                "inferences": count,
                "energy_j": len(devices) * drawn_j * weight,
                "window_s": float(length_s),
                "device_s": len(devices) * length_s * weight,
                "device_busy_s": len(devices) * length_s * weight * busy_share,
                "energy_method": "counter",
                "energy_rel_err": 0.05,
            }
            if tokens_out:
                fields |= {
                    "tokens_in": count * tokens_in,
                    "tokens_out": count * tokens_out,
                    "cost_tokens_in": total * 0.4,
                    "cost_tokens_out": total * 0.6,
                    "energy_tokens_in_j": fields["energy_j"] * 0.4,
                    "energy_tokens_out_j": fields["energy_j"] * 0.6,
                    "token_split": "measured",
                }
            ratios = {ratio: SERVING_RATIOS[ratio].of(fields) for ratio in SERVING_RATIOS}
            known = {ratio: value for ratio, value in ratios.items() if value is not None}
            yield make_point("cost", own, {**fields, **known}, time_ns)


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


_CAUSE = "cooling"
_REASON = (
    "cause: cooling 94 % (86 to 100 %): thermal throttling 11 % of the time, temperature 65 → 87 °C,"
    " SM clock 1,980 → 1,819 MHz. To do: check fan and airflow"
)
_DRIFT = (
    "cost per inference of encoder on gpu0 is +8.4 % at constant price (+$0.03 per million)"
    " since 09:40 UTC, worth $212.4 a month of this device's capacity if it is fully used"
)
_BUDGET = "budget gpus: the forecast for November 2026 is above the $23,500 that are planned"


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
        title="the price of all devices fell by 2.9 %",
        time_ns=CHEAPER_NS,
        device="gpu0",
        before="$4.1/h",
        after="$3.98/h",
        cause="plan on_demand from 2026-11-12",
    )
    yield Event(
        kind="drift",
        severity="warning",
        title=_DRIFT,
        time_ns=DRIFT_NS + DRIFT_RAMP_NS,
        detail=_REASON,
        device="gpu0",
        subject={"probe": "encoder"},
        cause=_CAUSE,
        metric="cost",
        change_pct=8.4,
        level_pct=8.4,
        since_ns=DRIFT_NS,
        cost_per_month=212.4,
        currency="USD",
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
        "since_ns": DRIFT_NS,
        "cause": _CAUSE,
        "detail": _REASON,
        "is_flapping": False,
    }
    budget = {
        "id": "b-1",
        "name": "budget-forecast",
        "state": "firing",
        "severity": "warning",
        "labels": {**HOST, "budget": "gpus"},
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
