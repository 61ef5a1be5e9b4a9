"""The rows of a scripted case, as costprobe stores them: `probe`, `cost` and `event`."""

from __future__ import annotations

import math
import random

from case_device import BASE_TOKENS, ScriptedHost
from costprobe.core.records import NS_PER_S, FieldValue, Point
from scripted_case import EVERY_S, J_PER_KWH, RUNS_PER_H, ScriptedCase

START_S = 1_772_409_600  # 2026-03-02, a Monday
TAGS = {"host": "h1", "device": "gpu0", "probe": "encoder"}
CURRENCY = "EUR"


def rows_of(case: ScriptedCase) -> list[Point]:
    """Return the rows of a case, oldest first."""
    rng, rows = random.Random(case.seed), []
    deviation, innovation = 0.0, case.noise * math.sqrt(1 - case.phi**2)
    before: ScriptedHost | None = None
    for index in range(int(case.hours * RUNS_PER_H)):
        hour = index / RUNS_PER_H
        host = case.host_at(hour)
        deviation = case.phi * deviation + rng.gauss(0, innovation)
        slow = math.exp(deviation + case.daily * math.sin(2 * math.pi * hour / 24))
        if rng.random() < case.outliers:
            slow *= 1 + rng.uniform(0.1, 0.5)
        time_ns = (START_S + index * EVERY_S) * NS_PER_S
        rows += _rows_of_run(case, host, slow, hour, rng)
        if before is not None:
            rows += _event_rows(before, host, time_ns)
        before = host
    return rows


def _rows_of_run(
    case: ScriptedCase, host: ScriptedHost, slow: float, hour: float, rng: random.Random
) -> list[Point]:
    time_ns = (START_S + round(hour * RUNS_PER_H) * EVERY_S) * NS_PER_S
    device = case.device
    host.cap *= 1 - case.wander * rng.random()
    temp_c = host.temp_c + 2 * math.sin(2 * math.pi * hour / 24) + rng.gauss(0, 1)
    noise = (1.5, 3.0, 0.15) if case.is_noisy else (0.0, 0.0, 0.0)
    thermal_pct, power_pct = (
        min(100.0, 100 * scripted + abs(rng.gauss(0, sigma)))
        for scripted, sigma in zip(
            (host.throttled_thermal, host.power_throttled(device)), noise, strict=False
        )
    )
    is_slowed = rng.random() < host.neighbour
    is_contended = is_slowed or rng.random() < noise[2]
    time_s = host.time_s(device) * slow * (device.contended_by if is_slowed else 1.0)
    power_w = host.power_w(device, temp_c) * (device.contended_power if is_slowed else 1.0)
    # The energy counter has a noise of its own.
    energy_j = power_w * time_s * host.energy_factor * math.exp(rng.gauss(0, 0.004))
    fields: dict[str, FieldValue] = {
        "latency_p50_ms": time_s * host.batch * 1000 * math.exp(rng.gauss(0, 0.002)),
        "throughput_per_s": 1 / time_s,
        "energy_per_inference_j": energy_j,
        "energy_method": "counter",
        "throttled_thermal_pct": thermal_pct,
        "throttled_power_pct": power_pct,
        "sm_clock_mhz": host.clock_mhz(device) * (1 + rng.gauss(0, device.clock_noise)),
        "mem_clock_mhz": float(host.memory_mhz()),
        "power_limit_w": float(host.power_limit_w(device)),
        "temp_max_c": round(temp_c),
        "mem_used_pct": host.mem_used_pct,
        "contended": is_contended,
        "ecc_uncorrected": host.ecc,
        "fingerprint": "-".join(host.software.values()),
    }
    if case.is_server:
        fields |= _token_fields(case, host, time_s)
    # The reference is at the price of the beginning.
    electricity = case.electricity_per_kwh / J_PER_KWH * energy_j
    hardware = host.price_per_h / 3600 * time_s
    prices: dict[str, FieldValue] = {
        "cost_reference": ScriptedHost().price_per_h / 3600 * time_s + electricity,
        "cost_hardware": hardware,
        "cost_per_inference": hardware + electricity,
        "contended": is_contended,
    }
    if electricity:
        prices["cost_energy"] = electricity
    present, priced = (
        {name: value for name, value in found.items() if name not in case.missing}
        for found in (fields, prices)
    )
    return [
        Point("probe", {**TAGS, "batch": str(host.batch)}, present, time_ns),
        Point("cost", {**TAGS, "currency": CURRENCY, "basis": "probe"}, priced, time_ns),
    ]


def _token_fields(case: ScriptedCase, host: ScriptedHost, time_s: float) -> dict[str, FieldValue]:
    """Return the times of a request: a first token after its input, then its output."""
    prefill = case.device.prefill * host.tokens_in / BASE_TOKENS[0]
    share = prefill / host.request(case.device)
    return {
        "tokens_in": host.tokens_in,
        "tokens_out": host.tokens_out,
        "ttft_mean_ms": 1000 * time_s * share,
        "tpot_mean_ms": 1000 * time_s * (1 - share) / host.tokens_out,
    }


def _event_rows(before: ScriptedHost, now: ScriptedHost, time_ns: int) -> list[Point]:
    """Return the events of changed software, of another board, and of new annotations."""
    rows = [
        Point("event", {"host": TAGS["host"], "kind": "annotation"}, {"title": text}, time_ns)
        for text in now.annotations
        if text not in before.annotations
    ]
    old = {**before.software, "board": before.board}
    new = {**now.software, "board": now.board}
    keys = sorted(key for key in old if old[key] != new[key])
    if keys:
        texts = [", ".join(f"{key} {side[key]}" for key in keys) for side in (old, new)]
        fields: dict[str, FieldValue] = {
            "cause": ", ".join(keys),
            "before": texts[0],
            "after": texts[1],
        }
        rows.append(Point("event", {**TAGS, "kind": "software"}, fields, time_ns))
    return rows
