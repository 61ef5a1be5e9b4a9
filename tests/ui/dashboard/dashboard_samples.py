"""A store with a day of rows of a host with two GPUs."""

import os

from costprobe.adapters.store.write import Store
from costprobe.core.records import Event
from costprobe.core.schema import event_point, make_point
from costprobe.ui.dashboard.budgets import DashboardBudgets

NS_PER_S = 1_000_000_000
HOUR_NS = 3600 * NS_PER_S
HOST = {"host": "gpu-01"}
DEVICES = ("gpu0", "gpu1")
PROBE_EVERY_S = 300
DEVICE_EVERY_S = 60
HOURS = 24
# The cost of two devices is far above one budget and far below the other.
BUDGETS = """
[[budget]]
name = "both"
amount = 1
currency = "EUR"
period = "month"
[[budget]]
name = "gpu1-day"
amount = 100
currency = "EUR"
period = "day"
device = "gpu1"
"""


def cost_rows(device, count, time_ns, cost=1.6e-6):
    """A probe row and its cost row at one instant; the cost rises slightly with each."""
    amount = cost * (1 + count / 1000) * (1 + DEVICES.index(device))
    probe = make_point(
        "probe",
        {**HOST, "device": device, "probe": "encoder", "batch": "16"},
        {
            "latency_p50_ms": 11.5 + count / 500,
            "throughput_per_s": 1391.0,
            "energy_per_inference_j": 0.21,
            "energy_method": "counter",
            "energy_rel_err": 0.05,
            "contended": False,
            "throttled_pct": 0.0,
        },
        time_ns,
    )
    cost = make_point(
        "cost",
        {
            **HOST,
            "device": device,
            "probe": "encoder",
            "basis": "probe",
            "plan": "owned",
            "currency": "EUR",
        },
        {
            "cost_per_inference": amount,
            "cost_hardware": amount * 0.75,
            "cost_energy": amount * 0.25,
            "cost_reference": amount,
            "rolling_1h": amount,
            "rolling_1h_iqr": 0.0,
            "rolling_1h_coverage": 1.0,
        },
        time_ns,
    )
    return [probe, cost]


def fleet_rows(now_ns):
    """A day of a probe on twelve equal devices; the last one's cost rises by a tenth at noon."""
    rows = []
    for number in range(12):
        tags = {**HOST, "device": f"gpu{number}", "probe": "fleet", "basis": "probe"}
        for hour in range(HOURS, 0, -1):
            rise = 1.1 if number == 11 and hour <= HOURS // 2 else 1.0
            amount = 2e-6 * rise * (1 + number / 1e4)
            fields = {"cost_per_inference": amount, "cost_reference": amount}
            time_ns = now_ns - hour * HOUR_NS + 60 * NS_PER_S
            rows.append(make_point("cost", {**tags, "currency": "EUR"}, fields, time_ns))
    return rows


def served_rows(time_ns):
    """A window of a service with two models: its own row, then one of each."""
    tags = {**HOST, "device": "gpu0", "service": "chat", "basis": "serving", "currency": "EUR"}
    tokens = {"token_split": "weights", "energy_method": "counter", "energy_rel_err": 0.05}
    return [
        make_point(
            "cost",
            {**tags, "served_model": model},
            {
                "cost_per_inference": amount,
                "cost_total": amount * 1000,
                "inferences": 1000.0,
                "cost_per_million_tokens_in": amount * 500,
                "cost_per_million_tokens_fresh": amount * 1000,
                "cost_per_million_tokens_cached": 0.0,
                "cached_tokens": 1000.0,
                "cached_share": 0.5,
                "cost_cache_saved": amount,
                "energy_per_request_j": amount * 1e6,
                "energy_per_million_tokens_in_j": amount * 1e9,
                **tokens,
            },
            time_ns,
        )
        for model, amount in (("", 3e-4), ("base", 2e-4), ("tuned", 9e-4))
    ]


def labelled_rows(time_ns):
    """A window of a service with a label: its cost per inference, and its share of a device."""
    tags = {**HOST, "device": "gpu0", "service": "rank", "currency": "EUR", "team": "search"}
    cost = {"cost_per_inference": 3e-4, "cost_total": 0.3, "inferences": 1000.0}
    return [
        make_point("cost", {**tags, "basis": "serving"}, cost, time_ns),
        make_point("allocation", {**tags, "part": "busy"}, {"cost": 0.5}, time_ns),
        make_point("allocation", {**tags, "part": "idle"}, {"cost": 0.25}, time_ns),
    ]


def tenant_rows(time_ns, costs):
    """A window of a service, divided among tenants."""
    tags = {**HOST, "service": "chat", "currency": "EUR"}
    cached = {"other": {"tokens_in": 100.0, "cached_tokens": 90.0, "cost_cache_saved": 0.02}}
    return [
        make_point(
            "tenant", {**tags, "tenant": tenant}, {"cost": cost, **cached.get(tenant, {})}, time_ns
        )
        for tenant, cost in costs.items()
    ]


def device_row(device, count, time_ns):
    is_idle = count % 4 == 0
    return make_point(
        "device",
        {
            **HOST,
            "device": device,
            "kind": "gpu",
            "uuid": f"GPU-{device}",
            "model": "H200",
            "currency": "EUR",
        },
        {
            "power_w": 120.0 if is_idle else 640.0 + count % 20,
            "power_max_w": 700.0,
            "util_pct": 0.0 if is_idle else 95.0,
            "temp_c": 40.0 if is_idle else 71.0,
            "sm_clock_mhz": 1980.0,
            "mem_clock_mhz": 3201.0,
            "throttle_thermal_s": 0.0,
            "throttle_power_s": 1.5,
            "mem_used_bytes": 60 * 2**30,
            "mem_total_bytes": 141 * 2**30,
            "price_rate_per_h": 2.0,
            "cost": 0.04,
        },
        time_ns,
    )


def sweep_rows(time_ns):
    return [
        make_point(
            "sweep",
            {
                **HOST,
                "device": "gpu0",
                "probe": "encoder",
                "batch": str(batch),
                "currency": "EUR",
            },
            {
                "latency_p50_ms": 3.0 + batch / 4,
                "throughput_per_s": batch / (3.0 + batch / 4) * 1000,
                "energy_per_inference_j": 1.0 / batch,
                "cost_per_inference": 1e-5 / batch + batch * 1e-8,
                "cheapest": batch == 32,
            },
            time_ns,
        )
        for batch in (1, 2, 4, 8, 16, 32, 64)
    ]


# Of each load: requests in flight, tokens/s of a user, tokens/s, currency per million tokens out, within the SLO.
LOADS = (
    (1, 60.0, 60.0, 9.0, True),
    (4, 52.0, 200.0, 2.8, True),
    (8, 45.0, 330.0, 1.7, True),
    (16, 30.0, 400.0, 1.4, False),
    (32, 15.0, 390.0, 1.45, False),
)


def load_rows(time_ns):
    """A load curve of a server, whose last point is not on its Pareto front."""
    tags = {**HOST, "device": "gpu1", "probe": "chat", "loop": "closed", "currency": "EUR"}
    return [
        make_point(
            "sweep",
            {**tags, "step": str(step), "concurrency": str(concurrency)},
            {
                "throughput_per_s": tokens / 100,
                "tokens_out_per_s": tokens,
                "tokens_per_s_user": speed,
                "cost_per_million_tokens_out": cost,
                "cost_per_inference": cost / 1e4,
                "ttft_p50_ms": 20.0 * concurrency,
                "tpot_p50_ms": 1000 / speed,
                "requests": 100,
                "errors": 0,
                "slo": "tpot_p50 25 ms",
                "meets_slo": is_within,
                "cheapest": concurrency == 8,
                "front": concurrency != 32,
            },
            time_ns,
        )
        for step, (concurrency, speed, tokens, cost, is_within) in enumerate(LOADS, 1)
    ]


def events(now_ns):
    return [
        Event(
            kind="drift",
            severity="warning",
            title="cost per inference of encoder on gpu0: +8.5 %",
            time_ns=now_ns - 6 * HOUR_NS,
            detail="95 % of it is time per inference",
            device="gpu0",
            subject={"probe": "encoder"},
            cause="thermal throttling",
            metric="cost",
            change_pct=8.5,
        ),
        Event(
            kind="price",
            severity="info",
            title="gpu0 now costs €2.1 per hour",
            time_ns=now_ns - 3 * HOUR_NS,
            device="gpu0",
            before="2 EUR/h",
            after="€2.1/h",
            cause="price plan",
        ),
    ]


def alert_rows(now_ns):
    tags = {**HOST, "rule": "drift", "device": "gpu1"}
    fields = {"id": "a-1", "severity": "warning", "summary": "gpu1 drifted", "cause": "driver"}
    return [
        make_point("alert", {**tags, "state": "firing"}, fields, now_ns - 5 * HOUR_NS),
        make_point("alert", {**tags, "state": "resolved"}, fields, now_ns - 4 * HOUR_NS),
    ]


def alerts_document(now_ns):
    return {
        "alerts": [
            {
                "id": "a-2",
                "name": "drift",
                "state": "firing",
                "severity": "warning",
                "labels": {"host": "gpu-01", "device": "gpu0"},
                "summary": "cost per inference of encoder on gpu0: +8.5 % <b>since noon</b>",
                "symptoms": [{"text": "latency +8 %"}, {"text": "cost +8.5 %"}],
                "since_ns": now_ns - 6 * HOUR_NS,
                "cause": "thermal throttling",
                "is_flapping": False,
            }
        ],
        "silenced": [],
        "silences": [],
    }


def status_document(path, now_ns):
    return {
        "state": "running",
        "version": "0.1.0",
        "pid": os.getpid(),
        "host": "gpu-01",
        "started_ns": now_ns - HOURS * HOUR_NS,
        "config": None,
        "config_fault": None,
        "devices": [{"name": name, "kind": "gpu", "model": "H200"} for name in DEVICES],
        "sensor": {"state": "running", "devices": {}, "last_fault": None},
        "store": {"path": str(path), "fault": None},
        "probes": [],
        "jobs": {},
        "sinks": {"influxdb": {"retry_in_s": 12.0, "last_error": "connection refused"}},
        "notifiers": {},
        "alerting": {},
        "spot_prices": {},
        "control": {"path": "", "fault": None},
    }


def write_status(store, now_ns):
    store.put_state("status", status_document(store.path, now_ns))
    store.put_state("alerts", alerts_document(now_ns))


def planned(store, clock, text=BUDGETS):
    """DashboardBudgets of a configuration file next to the store."""
    file = store.path.parent / "costprobe.toml"
    file.write_text(f'[store]\npath = "{store.path}"\n{text}')
    return DashboardBudgets(clock, file)


def filled(path, clock):
    """A store of a day; the caller closes it."""
    store = Store.open(path, clock)
    now_ns = clock.time_ns()
    rows = []
    begin_ns = now_ns - HOURS * HOUR_NS + 60 * NS_PER_S
    for device in DEVICES:
        for count in range(HOURS * 3600 // PROBE_EVERY_S):
            rows += cost_rows(device, count, begin_ns + count * PROBE_EVERY_S * NS_PER_S)
        for count in range(HOURS * 3600 // DEVICE_EVERY_S):
            rows.append(device_row(device, count, begin_ns + count * DEVICE_EVERY_S * NS_PER_S))
    # Rows are strictly older than the clock's time.
    rows = [row for row in rows if row.time_ns < now_ns]
    rows += sweep_rows(now_ns - HOUR_NS) + load_rows(now_ns - HOUR_NS) + alert_rows(now_ns)
    rows += [event_point(event, HOST) for event in events(now_ns)]
    store.append(rows)
    write_status(store, now_ns)
    return store
