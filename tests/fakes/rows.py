"""Rows and documents of a made-up host as the daemon writes them; a builder of a host gives what it is about.

Each takes the tags of its subject, a time in UTC ns, and further fields, which replace the usual ones.
"""

import os

from costprobe.core.schema import SERVING_RATIOS, make_point

GIB = 1 << 30
H100 = "NVIDIA H100 80GB HBM3"


def device(tags, time_ns, length_s, per_hour, power_w, *, model=H100, currency="USD", **more):
    """A reading of a GPU at a price."""
    described = {"kind": "gpu", "uuid": f"GPU-{tags['device']}", "model": model}
    fields = {
        "power_w": power_w,
        "energy_j": power_w * length_s,
        "energy_method": "counter",
        "util_pct": 40.0,
        "temp_c": 60.0,
        "sm_clock_mhz": 1980.0,
        "mem_clock_mhz": 2619.0,
        "mem_used_bytes": 40 * GIB,
        "mem_total_bytes": 80 * GIB,
        "price_rate_per_h": per_hour,
        "cost": per_hour / 3600 * length_s,
    }
    return make_point(
        "device", {**tags, **described, "currency": currency}, {**fields, **more}, time_ns
    )


def run(tags, time_ns, latency_ms, *, batch=8, energy_j=0.3, **more):
    """What a run of a probe measured."""
    fields = {
        "latency_p50_ms": latency_ms,
        "latency_p90_ms": latency_ms * 1.03,
        "latency_p99_ms": latency_ms * 1.09,
        "latency_mean_ms": latency_ms * 1.01,
        "throughput_per_s": batch / latency_ms * 1000,
        "samples": 1200,
        "energy_per_inference_j": energy_j,
        "energy_method": "counter",
        "energy_rel_err": 0.05,
        "contended": False,
    }
    return make_point("probe", {**tags, "batch": str(batch)}, {**fields, **more}, time_ns)


def run_cost(tags, time_ns, hardware, energy=0.0, *, currency="USD", **more):
    """What an inference of a run cost."""
    paid = {"basis": "probe", "plan": "on_demand", "currency": currency}
    fields = {
        "cost_per_inference": hardware + energy,
        "cost_hardware": hardware,
        "cost_energy": energy,
        "cost_reference": hardware + energy,
        "energy_method": "counter",
    }
    return make_point("cost", {**paid, **tags}, {**fields, **more}, time_ns)


def rolling(amount, iqr=0.0, windows=("1h", "24h", "7d"), coverage=1.0):
    """The fields of rolling windows."""
    parts = {"": amount, "_iqr": iqr, "_coverage": coverage}
    return {f"rolling_{window}{part}": value for window in windows for part, value in parts.items()}


def as_known(fields):
    """The figures of a window, with what its idle part and its energy are divided by, where these are known."""
    counts = ("inferences", "requests", "tokens_in", "tokens_out") if "energy_j" in fields else ()
    metered = {f"metered_{name}": fields[name] for name in counts if name in fields}
    idle = {"cost_idle_known": fields["cost_total"]} if "cost_idle" in fields else {}
    return {**fields, **idle, **metered}


def window_cost(tags, time_ns, length_s, total, *, ratios=tuple(SERVING_RATIOS), **sums):
    """What a service, or one of its models, cost in a window: its sums, and the ratios of these."""
    paid = {"basis": "serving", "plan": "on_demand", "currency": "USD"}
    fields = as_known({"cost_total": total, "window_s": float(length_s), **sums})
    found = {ratio: SERVING_RATIOS[ratio].of(fields) for ratio in ratios}
    known = {ratio: value for ratio, value in found.items() if value is not None}
    return make_point("cost", {**paid, **tags}, {**fields, **known}, time_ns)


def allocation(tags, time_ns, part, hardware, energy=0.0, *, currency="USD"):
    """A part of a device's cost."""
    fields = {"cost": hardware + energy, "cost_hardware": hardware, "cost_energy": energy}
    return make_point("allocation", {**tags, "part": part, "currency": currency}, fields, time_ns)


def swept(tags, time_ns, batch, latency_ms, *, energy_j, cost, currency="USD", **more):
    """A point of a batch sweep."""
    fields = {
        "latency_p50_ms": latency_ms,
        "latency_p90_ms": latency_ms * 1.03,
        "throughput_per_s": batch / latency_ms * 1000,
        "energy_per_inference_j": energy_j,
        "energy_rel_err": 0.06,
        "energy_method": "counter",
        "cost_per_inference": cost,
        "fingerprint": "9f31c07a9f31c07a",
    }
    named = {**tags, "batch": str(batch), "currency": currency}
    return make_point("sweep", named, {**fields, **more}, time_ns)


def alert(tags, time_ns, summary, *, hours=4, **more):
    """An alert that fired, and was resolved hours later."""
    fields = {"id": "a1", "severity": "warning", "summary": summary, "cause": "cooling", **more}
    for state, after_h in (("firing", 0), ("resolved", hours)):
        at_ns = time_ns + after_h * 3600 * 10**9
        yield make_point("alert", {**tags, "state": state}, fields, at_ns)


def status(path, host, started_ns, devices, *, model=H100, restarts=0, **more):
    """The status document of a daemon without probes and services."""
    sensor = {"state": "running", "driver_version": "570.86.15", "child_restarts": restarts}
    return {
        "state": "running",
        "version": "0.1.0",
        "pid": os.getpid(),
        "host": host,
        "started_ns": started_ns,
        "config": str(path.parent / "costprobe.toml"),
        "config_fault": None,
        "devices": [{"name": name, "kind": "gpu", "model": model} for name in devices],
        "sensor": {**sensor, "devices": {}, "last_fault": None},
        "store": {"path": str(path), "fault": None},
        "control": {"path": "", "fault": None},
        **{name: [] for name in ("probes", "services", "budgets")},
        **{name: {} for name in ("jobs", "sinks", "notifiers", "alerting", "spot_prices", "http")},
        **more,
    }


def firing(name, summary, since_ns, labels, **more):
    """An alert of the document `alerts`."""
    return {
        "id": f"{name}-1",
        "name": name,
        "state": "firing",
        "severity": "warning",
        "labels": labels,
        "summary": summary,
        "symptoms": [],
        "since_ns": since_ns,
        "cause": "",
        "is_flapping": False,
        **more,
    }
