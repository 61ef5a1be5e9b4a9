"""Scripted histories of a device with their causes: rows of a probe, and what should be reported.

    for case in cases(240, seed=1):
        rows = rows_of(case)      # rows of `probe`, `cost` and `event`, oldest first

A model of a GPU computes time and energy from clock, temperature and neighbours; a script changes
its state. Nothing here imports the detectors: the generator can be used to compare others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from costprobe.core.records import NS_PER_S, FieldValue, Point

EVERY_S = 300
RUNS_PER_H = 3600 // EVERY_S
START_S = 1_772_409_600  # 2026-03-02, a Monday
TAGS = {"host": "h1", "device": "gpu0", "probe": "encoder"}
BASE_CLOCK_MHZ = 1980.0
BASE_TIME_S = 0.0012
CURRENCY = "EUR"


@dataclass
class ScriptedHost:
    """State of the device; a script changes it from one run to the next.

    Attributes:
        clock_mhz: SM clock.
        slowdown: Further factor on the time per inference.
        power_factor: Factor on the power.
        temp_c: Temperature under load.
        thermal_pct: Share of the time throttled by temperature.
        power_pct: Share of the time throttled by the power limit.
        neighbour: Probability that another process uses the device in a run.
        mem_used_pct: Device memory in use.
        ecc: Uncorrected memory errors.
        batch: Items per forward pass.
        board: Identity of the board.
        software: Versions.
        price_per_h: Price of the device.
    """

    clock_mhz: float = BASE_CLOCK_MHZ
    slowdown: float = 1.0
    power_factor: float = 1.0
    temp_c: float = 64.0
    thermal_pct: float = 0.0
    power_pct: float = 0.0
    neighbour: float = 0.0
    mem_used_pct: float = 45.0
    ecc: int = 0
    batch: int = 16
    board: str = "GPU-1"
    software: dict[str, str] = field(
        default_factory=lambda: {"driver": "550.54", "torch": "2.13", "cuda": "12.4", "model": "3f"}
    )
    price_per_h: float = 3.6


# Changes a host to a share (0 to 1) of its size.
Script = Callable[[ScriptedHost, float], None]


@dataclass(frozen=True)
class Change:
    """A scripted change.

    Attributes:
        name: Name of the script.
        hour: Start, in hours after the first run.
        size: Size from 0.5 (small) to 1.
        ramp_h: Duration of its growth; 0 for a step.
        until_hour: End; inf for none.
    """

    name: str
    hour: float
    size: float = 1.0
    ramp_h: float = 0.0
    until_hour: float = math.inf


@dataclass(frozen=True)
class ScriptedCase:
    """A history and what should be reported.

    Attributes:
        family: Kind of case.
        seed: Seed of its noise.
        hours: Length.
        changes: What is scripted.
        expected: Acceptable first causes; empty if nothing should be reported.
        onset_h: Start of the reported change.
        noise: Standard deviation of the logarithm of time.
        phi: Its AR(1) coefficient.
        is_noisy: Whether throttling and neighbours vary without any effect.
        daily: Amplitude of a daily rhythm of time.
        missing: Fields that the device does not report.
    """

    family: str
    seed: int
    hours: float
    changes: tuple[Change, ...] = ()
    expected: frozenset[str] = frozenset()
    onset_h: float = 0.0
    noise: float = 0.008
    phi: float = 0.0
    is_noisy: bool = False
    daily: float = 0.0
    missing: frozenset[str] = frozenset()


def _cooling(host: ScriptedHost, size: float) -> None:
    host.temp_c += 24 * size
    host.thermal_pct += 40 * size
    host.clock_mhz *= 1 - 0.2 * size


def _thermal(host: ScriptedHost, size: float) -> None:
    host.thermal_pct += 40 * size
    host.clock_mhz *= 1 - 0.18 * size


def _power(host: ScriptedHost, size: float) -> None:
    host.power_pct += 55 * size
    host.clock_mhz *= 1 - 0.2 * size
    host.power_factor *= 1 - 0.2 * size


def _clock(host: ScriptedHost, size: float) -> None:
    host.clock_mhz *= 1 - 0.25 * size
    host.temp_c -= 6 * size


def _neighbour(host: ScriptedHost, size: float) -> None:
    host.neighbour = max(host.neighbour, 0.5 + 0.5 * size)
    host.temp_c += 4 * size


def _software(*keys: str, slower: float) -> Script:
    def change(host: ScriptedHost, size: float) -> None:
        host.slowdown *= 1 + slower * size
        if size:
            host.software |= dict.fromkeys(keys, "new")

    return change


def _batch(host: ScriptedHost, size: float) -> None:
    if size:
        host.batch, host.slowdown = 8, host.slowdown * (1 + 0.2 * size)


def _board(host: ScriptedHost, size: float) -> None:
    if size:
        host.board, host.slowdown = "GPU-2", host.slowdown * (1 + 0.12 * size)


def _memory(host: ScriptedHost, size: float) -> None:
    if size:
        host.mem_used_pct, host.slowdown = 97.0, host.slowdown * (1 + 0.2 * size)


def _unknown(host: ScriptedHost, size: float) -> None:
    host.slowdown *= 1 + 0.2 * size


def _price(host: ScriptedHost, size: float) -> None:
    host.price_per_h *= 1 - 0.2 * size


def _only_update(host: ScriptedHost, size: float) -> None:
    if size:
        host.software |= {"driver": "560.28"}


SCRIPTS: Mapping[str, Script] = {
    "cooling": _cooling,
    "thermal throttling": _thermal,
    "power limit": _power,
    "clock": _clock,
    "neighbour": _neighbour,
    "software: driver": _software("driver", slower=0.12),
    "software: model": _software("model", slower=0.3),
    "software: torch": _software("torch", "cuda", slower=0.12),
    "batch": _batch,
    "board": _board,
    "memory pressure": _memory,
    "unknown": _unknown,
    "price": _price,
    "update without effect": _only_update,
}
SUDDEN = tuple(SCRIPTS)[:12]
GRADUAL = ("cooling", "thermal throttling", "power limit", "clock", "unknown")
PHYSICAL = ("cooling", "thermal throttling", "power limit", "clock", "neighbour")
# What is named if a field is missing.
MISSING = (
    ("cooling", {"throttled_thermal_pct", "throttled_power_pct"}, {"cooling"}),
    ("cooling", {"temp_max_c"}, {"thermal throttling"}),
    ("power limit", {"throttled_power_pct", "throttled_thermal_pct"}, {"clock"}),
    ("clock", {"sm_clock_mhz", "throttled_power_pct"}, {"unknown"}),
    ("neighbour", {"contended"}, {"unknown"}),
)


def cases(count: int, seed: int = 1) -> Iterator[ScriptedCase]:
    """Yield cases of all families in turn, with seeded parameters."""
    builders = (
        *(_single,) * 4,
        _slow,
        _first_day,
        _first_days,
        _noisy_baseline,
        _two_at_once,
        _update_the_day_before,
        _update_one_run_before,
        _update_one_run_later,
        _price_in_the_same_hour,
        _missing,
        _recovery,
        _intermittent,
        *(_quiet,) * 4,
    )
    for index in range(count):
        number = seed * 100_000 + index
        rng = random.Random(number)
        yield builders[index % len(builders)](rng, number, index // len(builders))


def _case(rng: random.Random, number: int, family: str, hour: float, **more: Any) -> ScriptedCase:
    values: dict[str, Any] = {
        "hours": hour + 18,
        "onset_h": hour,
        "noise": rng.uniform(0.004, 0.012),
        "phi": rng.choice((0.0, 0.0, 0.4)),
        **more,
    }
    return ScriptedCase(family, number, **values)


def _settled_h(rng: random.Random) -> float:
    return rng.randrange(60 * RUNS_PER_H, 110 * RUNS_PER_H) / RUNS_PER_H


def _size(rng: random.Random) -> float:
    return rng.uniform(0.4, 1)


def _one(rng: random.Random, names: Sequence[str], nth: int, hour: float) -> tuple[Change, str]:
    name = names[nth % len(names)]
    return Change(name, hour, _size(rng)), name


def _single(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    change, name = _one(rng, SUDDEN, nth + number * 5, hour)
    return _case(rng, number, "single", hour, changes=(change,), expected=frozenset({name}))


def _slow(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), GRADUAL[nth % len(GRADUAL)]
    ramp_h = rng.uniform(4, 18)
    # At the beginning the temperature has hardly risen.
    expected = {name, "thermal throttling"} if name == "cooling" else {name}
    return _case(
        rng,
        number,
        "slow",
        hour,
        changes=(Change(name, hour, _size(rng), ramp_h),),
        expected=frozenset(expected),
        hours=hour + 40,
    )


def _first_day(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = rng.randrange(4 * RUNS_PER_H, 22 * RUNS_PER_H) / RUNS_PER_H
    change, name = _one(rng, SUDDEN, nth, hour)
    more = {"changes": (change,), "expected": frozenset({name}), "hours": 80}
    return _case(rng, number, "first day", hour, **more)


def _first_days(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = rng.randrange(27 * RUNS_PER_H, 60 * RUNS_PER_H) / RUNS_PER_H
    change, name = _one(rng, SUDDEN, nth, hour)
    more = {"changes": (change,), "expected": frozenset({name})}
    return _case(rng, number, "first days", hour, **more)


def _noisy_baseline(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    change, name = _one(rng, SUDDEN, nth, hour)
    more = {"changes": (change,), "expected": frozenset({name}), "is_noisy": True}
    return _case(rng, number, "noisy signals", hour, **more)


def _two_at_once(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, names = _settled_h(rng), (PHYSICAL[nth % 5], SUDDEN[5 + nth % 4])
    changes = tuple(Change(name, hour, _size(rng)) for name in names)
    return _case(rng, number, "two at once", hour, changes=changes, expected=frozenset(names))


def _update_the_day_before(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), PHYSICAL[nth % 5]
    update = Change("update without effect", hour - rng.uniform(10, 24))
    changes = (update, Change(name, hour, _size(rng)))
    return _case(rng, number, "update before", hour, changes=changes, expected=frozenset({name}))


def _update_one_run_before(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    del nth
    hour = _settled_h(rng)
    early = Change("update without effect", hour - 1 / RUNS_PER_H)
    changes = (early, Change("unknown", hour, _size(rng)))
    expected = frozenset({"software: driver"})
    return _case(rng, number, "update one run before", hour, changes=changes, expected=expected)


def _update_one_run_later(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), (*PHYSICAL, "unknown")[nth % 6]
    late = Change("update without effect", hour + 1 / RUNS_PER_H)
    changes = (Change(name, hour, _size(rng)), late)
    return _case(
        rng, number, "update one run later", hour, changes=changes, expected=frozenset({name})
    )


def _price_in_the_same_hour(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    change, name = _one(rng, SUDDEN, nth, hour)
    price = Change("price", hour + rng.choice((-4, 0, 2)) / RUNS_PER_H)
    return _case(
        rng, number, "price too", hour, changes=(change, price), expected=frozenset({name})
    )


def _missing(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, fields, expected) = _settled_h(rng), MISSING[nth % len(MISSING)]
    more = {"changes": (Change(name, hour, _size(rng)),), "expected": frozenset(expected)}
    return _case(rng, number, "missing signals", hour, missing=frozenset(fields), **more)


def _recovery(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    name, hour = PHYSICAL[nth % 5], _settled_h(rng)
    change = Change(name, 6.0, _size(rng), until_hour=hour)
    return _case(rng, number, "recovery", hour, changes=(change,), expected=frozenset({name}))


def _intermittent(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    del nth
    changes, hour, first = [], 50.0, 50.0
    while hour < 50 + 5 * 24:
        lasts_h = rng.uniform(1.5, 4)
        changes.append(Change("neighbour", hour, _size(rng), until_hour=hour + lasts_h))
        hour += lasts_h + rng.uniform(2, 7)
    more = {"changes": tuple(changes), "expected": frozenset({"neighbour"}), "hours": hour}
    return _case(rng, number, "intermittent", first, **more)


def _quiet(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    more = {"daily": rng.choice((0.0, 0.03)), "is_noisy": nth % 2 == 0, "hours": 10 * 24}
    return _case(rng, number, "quiet", 0.0, **more)


def rows_of(case: ScriptedCase) -> list[Point]:
    """Return the rows of a case, oldest first."""
    rng, rows = random.Random(case.seed), []
    deviation, innovation = 0.0, case.noise * math.sqrt(1 - case.phi**2)
    before: ScriptedHost | None = None
    for index in range(int(case.hours * RUNS_PER_H)):
        hour = index / RUNS_PER_H
        host = ScriptedHost()
        for change in case.changes:
            # Half a run of tolerance: hours are multiples of a run.
            since_h = hour - change.hour + 0.5 / RUNS_PER_H
            is_over = hour + 0.5 / RUNS_PER_H >= change.until_hour
            share = min(1.0, since_h / change.ramp_h) if change.ramp_h else 1.0
            if since_h > 0 and not is_over:
                SCRIPTS[change.name](host, change.size * share)
        deviation = case.phi * deviation + rng.gauss(0, innovation)
        slow = math.exp(deviation + case.daily * math.sin(2 * math.pi * hour / 24))
        time_ns = (START_S + index * EVERY_S) * NS_PER_S
        rows += _rows_of_run(case, host, slow, time_ns, rng)
        if before is not None:
            rows += _software_rows(before, host, time_ns)
        before = host
    return rows


def _rows_of_run(
    case: ScriptedCase, host: ScriptedHost, slow: float, time_ns: int, rng: random.Random
) -> list[Point]:
    hour = (time_ns / NS_PER_S - START_S) / 3600
    temp_c = host.temp_c + 2 * math.sin(2 * math.pi * hour / 24) + rng.gauss(0, 1)
    clock_mhz = host.clock_mhz * (1 + rng.gauss(0, 0.002))
    noise = (1.5, 3.0, 0.15) if case.is_noisy else (0.0, 0.0, 0.0)
    thermal_pct, power_pct = (
        min(100.0, scripted + abs(rng.gauss(0, sigma)))
        for scripted, sigma in zip((host.thermal_pct, host.power_pct), noise, strict=False)
    )
    is_slowed = rng.random() < host.neighbour
    is_contended = is_slowed or rng.random() < noise[2]
    time_s = BASE_TIME_S * host.slowdown * BASE_CLOCK_MHZ / clock_mhz * slow
    time_s *= 1.35 if is_slowed else 1.0
    # Leakage rises with the temperature; the energy counter has a noise of its own.
    power_w = 520 * host.power_factor * (0.3 + 0.7 * clock_mhz / BASE_CLOCK_MHZ)
    power_w *= 1 + 0.002 * (temp_c - 64)
    energy_j = power_w * time_s * math.exp(rng.gauss(0, 0.004))
    fields: dict[str, FieldValue] = {
        "latency_p50_ms": time_s * host.batch * 1000 * math.exp(rng.gauss(0, 0.002)),
        "throughput_per_s": 1 / time_s,
        "energy_per_inference_j": energy_j,
        "energy_method": "counter",
        "throttled_thermal_pct": thermal_pct,
        "throttled_power_pct": power_pct,
        "sm_clock_mhz": clock_mhz,
        "temp_max_c": round(temp_c),
        "mem_used_pct": host.mem_used_pct,
        "contended": is_contended,
        "ecc_uncorrected": host.ecc,
        "fingerprint": "-".join(host.software.values()),
    }
    reference = ScriptedHost().price_per_h / 3600 * time_s
    prices: dict[str, FieldValue] = {
        "cost_reference": reference,
        "cost_hardware": host.price_per_h / 3600 * time_s,
        "cost_per_inference": host.price_per_h / 3600 * time_s,
        "contended": is_contended,
    }
    present = {name: value for name, value in fields.items() if name not in case.missing}
    return [
        Point("probe", {**TAGS, "batch": str(host.batch)}, present, time_ns),
        Point(
            "cost",
            {**TAGS, "currency": CURRENCY, "basis": "probe"},
            {name: value for name, value in prices.items() if name not in case.missing},
            time_ns,
        ),
    ]


def _software_rows(before: ScriptedHost, now: ScriptedHost, time_ns: int) -> list[Point]:
    """Return the event of changed software or of another board."""
    old = {**before.software, "board": before.board}
    new = {**now.software, "board": now.board}
    keys = sorted(key for key in old if old[key] != new[key])
    if not keys:
        return []
    texts = [", ".join(f"{key} {side[key]}" for key in keys) for side in (old, new)]
    fields: dict[str, FieldValue] = {
        "cause": ", ".join(keys),
        "before": texts[0],
        "after": texts[1],
    }
    return [Point("event", {**TAGS, "kind": "software"}, fields, time_ns)]
