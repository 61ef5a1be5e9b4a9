"""A day of all series of two hosts, from a seeded stream, built as the daemon builds its rows."""

import random
from dataclasses import replace
from decimal import Decimal

from costprobe.core.records import (
    NS_PER_S,
    Device,
    Energy,
    Event,
    Reading,
)
from costprobe.core.schema import event_point, make_point
from costprobe.core.statistics import Rolled
from costprobe.devices.charges import charges_of, device_point
from costprobe.pricing.book import Terms
from costprobe.pricing.electricity import Emission
from costprobe.pricing.plans import Rate
from costprobe.probing.cost import CostSample, ProbeEnergy
from costprobe.probing.rows import run_points
from costprobe.serving.allocation import Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.cost import service_cost
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.rows import allocation_points, window_points
from costprobe.serving.tokens import TokenWeighing
from fakes.runs import probe_run

DAY_S = 86_400
STEP_S = 300
HOSTS = ("gpu-01", "gpu-02.example.com")
DEVICES = tuple(Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(2))
PROBES = ("ranker", "chat v2")
TERMS = Terms(Rate("on_demand", "USD", Decimal("2.176"), False, "test"), 4.7e-8)
MODELS = ("base", "tuned")


def points(end_ns, *, seed=7, span_s=DAY_S):
    """All rows of the day, or of another span, that ends at end_ns."""
    rng = random.Random(seed)
    found = []
    for host in HOSTS:
        tags = {"host": host, "rack": "a1"}
        for step in range(span_s // STEP_S):
            time_ns = end_ns - span_s * NS_PER_S + (step + 1) * STEP_S * NS_PER_S
            found += _devices(rng, tags, time_ns)
            found += _service(rng, tags, time_ns)
            found.append(_agent(rng, tags, step, time_ns))
            if step % 6 == 0:
                found += _probes(rng, tags, time_ns)
        found += _once(tags, end_ns)
    return found


def _devices(rng, tags, time_ns):
    for device in DEVICES:
        power_w = rng.uniform(100, 690)
        fields = {
            "power_w": power_w,
            "power_max_w": power_w + 10,
            "energy_j": power_w * STEP_S,
            "energy_method": "counter",
            "util_pct": rng.uniform(0, 100),
            "mem_util_pct": rng.uniform(0, 100),
            "mem_used_bytes": rng.randrange(80 << 30),
            "mem_total_bytes": 80 << 30,
            "temp_c": rng.uniform(40, 87),
            "sm_clock_mhz": rng.uniform(1200, 1980),
            "mem_clock_mhz": 2619.0,
            "power_limit_w": 700.0,
            "throttle_power_s": rng.uniform(0, 3),
            "throttle_thermal_s": rng.uniform(0, 1),
            "ecc_uncorrected": 0,
            "processes": rng.randrange(4),
        }
        reading = Reading(device.name, 0, STEP_S * NS_PER_S, fields)
        emitted = Emission(power_w * STEP_S / 3.6e6 * 380, "flat")
        energy_j = fields["energy_j"]
        (charge,) = charges_of(
            lambda _: TERMS, 0, reading.end_ns, lambda *_, energy_j=energy_j: energy_j
        )
        yield device_point(reading, device, charge, tags, time_ns, emitted)


def _probes(rng, tags, time_ns):
    for device in DEVICES:
        for probe in PROBES:
            p50_ms = rng.gauss(7, 0.1)
            latency_ms = {
                "p50": p50_ms,
                "p90": p50_ms * 1.1,
                "p99": p50_ms * 1.3,
                "mean": p50_ms * 1.02,
                "cv": 0.03,
            }
            activity = {
                "contended": False,
                "throttled_pct": rng.uniform(0, 2),
                "throttled_power_pct": rng.uniform(0, 1),
                "throttled_thermal_pct": rng.uniform(0, 1),
                "sm_clock_mhz": rng.uniform(1800, 1980),
                "temp_max_c": rng.uniform(60, 85),
                "mem_used_pct": 40.0,
            }
            run = probe_run(
                probe=probe,
                device=device.name,
                latency_ms=latency_ms,
                samples=700,
                stop_reason="noise",
                window_end_ns=6 * NS_PER_S,
                inferences=6000 / p50_ms * 8,
                fingerprint="f00d",
                latency_rel_err=0.004,
                outliers=3,
                window_tokens_in=30_000.0,
                window_tokens_out=60_000.0,
                activity=activity,
                time_ns=time_ns,
                energy=ProbeEnergy(0.5, 0.4, "counter", 0.06),
                emitted=Emission(0.5 / 3.6e6 * 380, "flat"),
            )
            hardware = TERMS.per_s / run.throughput_per_s
            cost = CostSample("USD", "on_demand", hardware, 2.3e-8, hardware)
            rolled = {
                name: Rolled(cost.per_inference, 1e-9, 0.9, 40) for name in ("1h", "24h", "7d")
            }
            yield from run_points(replace(run, cost=cost, rolled=rolled), tags)


def _service(rng, tags, time_ns):
    counts = {
        model: Counts(
            requests=float(rng.randrange(100, 900)),
            errors=float(rng.randrange(5)),
            inferences=1000.0,
            tokens_in=500_000.0,
            tokens_out=250_000.0,
            cached_tokens=1000.0,
            prefill_s=30.0,
            decode_s=90.0,
        )
        for model in MODELS
    }
    span_ns = STEP_S * NS_PER_S
    window = ServedWindow("chat", "vllm", time_ns - span_ns, time_ns, counts, readings=20)
    search = Counts(tokens_in=3000.0, tokens_out=900.0)
    window = replace(window, tenants=replace(window, models={"search": search}))
    device = DEVICES[0].name
    hardware, energy = TERMS.rate.per_hour / 12, Decimal("0.01")
    busy_s = rng.uniform(30, 250)
    use = DeviceUse(
        device,
        STEP_S,
        hardware,
        energy,
        busy_s,
        probing_s=3.0,
        probing_energy=Decimal("0.0001"),
        claims=(Claim("chat"),),
        currency="USD",
    )
    allocation = allocate(use)
    serving = 1 - 450 / 9e4
    bill = DeviceBill(
        allocation,
        "on_demand",
        "USD",
        busy_s / STEP_S,
        Energy(9e4, "counter", 0.05),
        energy_shares={name: share * serving for name, share in allocation.shares.items()},
    )
    cost = service_cost(window, (device,), {device: bill}, TokenWeighing(), time_ns)
    rolled = {
        f"rolling_{name}{figure}": value
        for name in ("1h", "24h", "7d")
        for figure, value in (("", 2e-4), ("_coverage", 0.9))
    }
    yield from window_points(replace(cost, rolled=rolled), tags)
    yield from allocation_points(allocation.lines, tags, time_ns)
    # A window whose reading failed is incomplete and has no cost.
    failed = ServedWindow(
        "embed", "tgi", time_ns - span_ns, time_ns, {}, ("a reading failed",), ("tokens",)
    )
    unread = {device: DeviceBill(allocation)}
    missing = service_cost(failed, (device,), unread, TokenWeighing(), time_ns)
    yield from window_points(missing, tags)


def _agent(rng, tags, step, time_ns):
    fields = {
        "rss_bytes": rng.randrange(40 << 20, 60 << 20),
        "cpu_s": 0.5 * step,
        "outbox_points": rng.randrange(500),
        "outbox_lag_s": rng.uniform(0, 20),
        "sent_points": 400 * step,
        "dropped_points": 0,
        "late_jobs": step // 100,
        "child_restarts": 0,
    }
    return make_point("agent", {**tags, "version": "0.1.0"}, fields, time_ns)


def _once(tags, end_ns):
    at_ns = end_ns - 7200 * NS_PER_S
    budget = {**tags, "budget": "gpus", "period": "month", "currency": "USD"}
    status = {"amount": 100.0, "spent": 40.0, "forecast": 90.0, "coverage": 0.95}
    yield make_point("budget", budget, status, end_ns)
    texts = {"detail": "what to know", "before": "1", "after": "2"}
    for offset, kind in enumerate(("drift", "anomaly", "price", "software", "fault", "annotation")):
        found = kind in {"drift", "anomaly"}
        yield event_point(
            Event(
                kind=kind,
                severity="warning",
                title=f"a {kind} it is",
                time_ns=at_ns + offset,
                device=DEVICES[0].name,
                subject={"probe": PROBES[0]},
                cause="thermal throttling",
                metric="cost" if found else "",
                change_pct=8.5 if found else None,
                level_pct=8.5 if found else None,
                since_ns=at_ns if found else None,
                cost_per_month=42.0 if found else None,
                **texts,
            ),
            tags,
        )
    states = (("drift", "pending"), ("drift", "firing"), ("drift", "resolved"), ("hot", "firing"))
    for offset, (rule, state) in enumerate(states):
        place = {"rule": rule, "state": state, "device": "gpu0", "probe": PROBES[0]}
        fields = {
            "id": "a1",
            "severity": "warning",
            "summary": "cost per inference rose",
            "cause": "thermal throttling",
            "value": 8.5,
            "threshold": 5.0,
            "since": at_ns / NS_PER_S,
            "symptoms": 1,
            "flapping": False,
            "silenced": False,
        }
        yield make_point("alert", {**tags, **place}, fields, at_ns + offset)
    for batch in (1, 2, 4, 8):
        fields = {
            "latency_p50_ms": 2.0 + batch,
            "latency_p90_ms": 2.2 + batch,
            "throughput_per_s": 1000 * batch / (2.0 + batch),
            "energy_per_inference_j": 1.0 / batch,
            "energy_rel_err": 0.06,
            "cost_per_inference": 1e-6 / batch,
            "peak_memory_bytes": batch << 30,
            "energy_method": "counter",
            "fingerprint": "f00d",
            "cheapest": batch == 8,
        }
        swept = {"device": "gpu0", "probe": PROBES[0], "batch": str(batch), "currency": "USD"}
        yield make_point("sweep", {**tags, **swept}, fields, at_ns)
    for step in (1, 2, 3):
        fields = {
            "throughput_per_s": 2.0 * step,
            "tokens_out_per_s": 200.0 * step,
            "ttft_p90_ms": 50.0 * step,
            "tpot_p90_ms": 4.0 * step,
            "energy_per_million_tokens_out_j": 1e6 / step,
            "cost_per_million_tokens_out": 5.0 / step,
            "fingerprint": "f00d",
        }
        load = {"loop": "closed", "step": str(step), "concurrency": str(2 ** (step - 1))}
        measured = {"device": "gpu0", "probe": PROBES[0], "currency": "USD"}
        yield make_point("sweep", {**tags, **measured, **load}, fields, at_ns)
