"""A made-up fleet for its page: an hour of rows, the same hour a day and a week before, and a month of costs.

`h03` has a `gpu1` that is slower at a lower clock, `h05` is silent, and the two models of a service cost
other amounts than before.
"""

import math
import random
from dataclasses import dataclass, field

from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from fakes.fleet import gpu_run

NOW_S = 1_780_012_800
EVERY_S = 300
GPUS = 8
HOUR_S, DAY_S = 3600, 86_400
# Of a week the hours with a run are counted.
RUN_HOURS = 6
SICK = {("h03", "gpu1"): 0.08}
POWER_W, RATE_PER_H = 520.0, 3.2
# Cost of a host in five minutes, and that of a token against before.
MODELS = {"llama-3.1-8b": (0.57, 1.031), "mixtral-8x7b": (1.35, 0.985)}
GROUP = "llama-3.3-70b"
GPU_MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")


@dataclass
class Recipe:
    """What the fleet is made of.

    Attributes:
        hosts: Number of hosts; one of eight has the second GPU model.
        gpus: GPUs of each.
        sick: Excess time by host and device.
        silent: Hosts without rows in the last quarter of an hour.
        untested: Hosts without probes.
        history_h: Hours of costs of devices before the last one.
        width: Digits of the names of hosts.
        every_s: Distance of rows.
        days: Days before with the same hour.
        pools: Hosts with a part of the group `llama-3.3-70b`: name, role and hours with its rows, back from now.
    """

    hosts: int = 8
    gpus: int = GPUS
    sick: dict = field(default_factory=lambda: dict(SICK))
    silent: tuple = ("h05",)
    untested: tuple = ()
    history_h: int = 0
    width: int = 2
    every_s: int = EVERY_S
    days: tuple = (1, 7)
    pools: tuple = ()


def rows(recipe, now_s=NOW_S):
    """Yield the rows of all hosts."""
    rng = random.Random(7)
    for number in range(recipe.hosts):
        host = f"h{number:0{recipe.width}}"
        tags = {"host": host, "rack": f"r{number // 8 % 12}"}
        level = rng.gauss(0, 0.004)
        own = [rng.gauss(0, 0.004) for _ in range(recipe.gpus)]
        end_s = now_s - 900 if host in recipe.silent else now_s
        for time_s in range(now_s - HOUR_S + recipe.every_s, end_s + 1, recipe.every_s):
            yield from host_rows(recipe, rng, tags, number, (level, own), time_s)
        yield from earlier_runs(recipe, rng, tags, level, own, now_s)
        for days in recipe.days:
            for time_s in range(now_s - days * DAY_S - 2700, now_s - days * DAY_S + 1, 900):
                yield from served_rows(tags, time_s, is_now=False)
                yield from probe_costs(recipe, tags, level, own, time_s, shift=-0.004 * days)
        yield from history(recipe, rng, tags, number, now_s)
        for name, role, hours in recipe.pools:
            if name == host:
                yield from pool_rows(tags, role, hours, now_s)


def pool_rows(tags, role, hours, now_s):
    """The rows of a pool by hour: two million input tokens and 400,000 output tokens, for 6.40 each."""
    part = {"service": "llama", "service_group": GROUP, "service_role": role}
    counts = {"requests": 2000.0, "tokens_in": 2e6, "tokens_out": 4e5}
    for hour in hours:
        time_s = now_s - hour * HOUR_S
        # The decode pool is cheaper than a day ago.
        cost = 2 * RATE_PER_H * (1.04 if role == "decode" and hour >= 24 else 1.0)
        idle = cost * {"prefill": 0.55, "decode": 0.2}[role]
        fields = {"cost_total": cost, "cost_idle": idle, "cost_idle_known": cost}
        fields |= {"window_s": float(HOUR_S), "energy_j": 2 * POWER_W * HOUR_S}
        paid = {"device": "gpu0+gpu1", "basis": "serving", "plan": "owned", "currency": "EUR"}
        yield point("cost", tags, {**part, **paid}, fields, time_s)
        served = {**counts, "window_s": float(HOUR_S), "complete": True}
        yield point("serving", tags, {**part, "engine": "vllm"}, served, time_s)


def earlier_runs(recipe, rng, tags, level, own, now_s):
    for hour in range(1, RUN_HOURS if tags["host"] not in recipe.untested else 0):
        for gpu in range(recipe.gpus):
            yield from run_rows(recipe, rng, tags, gpu, level + own[gpu], now_s - hour * HOUR_S)


def history(recipe, rng, tags, number, now_s):
    for hour in range(1, recipe.history_h):
        # Of the last day as often as now: its coverage is counted.
        step_s = recipe.every_s if hour < 24 else HOUR_S
        for time_s in range(now_s - hour * HOUR_S, now_s - (hour + 1) * HOUR_S, -step_s):
            for gpu in range(recipe.gpus):
                fields = device_fields(rng, step_s)
                fields["cost"] *= 1 + 0.1 * math.sin(hour / 24 * 2 * math.pi)
                yield point("device", tags, described_gpu(number, gpu), fields, time_s)


def point(measurement, tags, own, fields, time_s):
    return make_point(measurement, {**tags, **own}, fields, time_s * NS_PER_S)


def described_gpu(number, gpu):
    model = GPU_MODELS[number % 8 == 7]
    return {"kind": "gpu", "device": f"gpu{gpu}", "model": model, "currency": "EUR"}


def device_fields(rng, step_s):
    return {
        "util_pct": rng.uniform(55, 70),
        "energy_j": POWER_W * step_s,
        "carbon_g": POWER_W * step_s / 3.6e6 * 380,
        "carbon_energy_j": POWER_W * step_s,
        "cost": RATE_PER_H * step_s / HOUR_S,
        "price_rate_per_h": RATE_PER_H,
    }


def host_rows(recipe, rng, tags, number, levels, time_s):
    level, own = levels
    host = tags["host"]
    hours = recipe.every_s / HOUR_S
    yield point("agent", tags, {"version": "0.1.0"}, {"rss_bytes": 40 << 20}, time_s)
    for gpu in range(recipe.gpus):
        described = described_gpu(number, gpu)
        device = {"device": described["device"]}
        yield point("device", tags, described, device_fields(rng, recipe.every_s), time_s)
        for part, share in (("busy", 0.55), ("idle", 0.35)):
            allocated = {**device, "service": "chat", "part": part, "currency": "EUR"}
            yield point("allocation", tags, allocated, {"cost": RATE_PER_H * hours * share}, time_s)
        if host not in recipe.untested:
            yield from run_rows(recipe, rng, tags, gpu, level + own[gpu], time_s)
    yield from served_rows(tags, time_s, is_now=True)


def probe_costs(recipe, tags, level, own, time_s, shift):
    for gpu in range(recipe.gpus):
        if tags["host"] not in recipe.untested:
            each_s = 0.001 * math.exp(level + own[gpu] + shift)
            hardware, energy = RATE_PER_H / HOUR_S * each_s, 1e-7 * 400 * each_s
            fields = {"cost_per_inference": hardware + energy, "cost_hardware": hardware}
            fields |= {"cost_energy": energy, "energy_per_inference_j": 400 * each_s}
            based = {"probe": "encoder", "basis": "probe", "plan": "owned", "currency": "EUR"}
            yield point("cost", tags, {**based, "device": f"gpu{gpu}"}, fields, time_s)


def served_rows(tags, time_s, *, is_now):
    served = {"service": "chat", "basis": "serving", "plan": "owned", "currency": "EUR"}
    whole = dict.fromkeys(
        ("cost_total", "cost_idle", "cost_idle_known", "cost_tokens_out", "tokens_out"), 0.0
    )
    for model, (cost, factor) in MODELS.items():
        fields = {
            "cost_total": cost,
            "cost_idle": 0.4 * cost,
            "cost_idle_known": cost,
            "cost_tokens_out": 0.7 * cost,
            "tokens_out": 1.5e6 * cost / (factor if is_now else 1.0),
        }
        whole = {name: whole[name] + value for name, value in fields.items()}
        yield point("cost", tags, {**served, "served_model": model}, fields, time_s)
    yield point("cost", tags, served, whole, time_s)


def run_rows(recipe, rng, tags, gpu, level, time_s):
    """A run of the probe on a GPU."""
    device = {"device": f"gpu{gpu}"}
    excess = recipe.sick.get((tags["host"], device["device"]), 0.0)
    each_s = 0.001 * math.exp(level + rng.gauss(0, 0.002)) * (1 + excess)
    yield from gpu_run(
        {**tags, **device},
        time_s,
        each_s,
        probe="encoder",
        price_per_h=RATE_PER_H,
        versions={"driver": "560.28", "torch": "2.9"},
        clock_mhz=1980.0 * (1 - 1.1 * excess) * (1 + rng.gauss(0, 0.001)),
        temp_c=60.0 + rng.gauss(0, 1),
    )
