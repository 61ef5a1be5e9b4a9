"""A seeded fleet of GPUs under one probe, some of them sick, with lots, cooling rows and slots as nuisance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from case_device import SCRIPTS, Physics, ScriptedHost, physics_of
from costprobe.drift.runs import DetectionRun
from costprobe.fleet.peers import GpuLevel

PEERS = ("NVIDIA H100 80GB HBM3", "encoder", "batch 16")
# Scripts whose size is set so that the time per inference rises by the excess.
SCRIPTED = ("cooling", "thermal throttling", "power limit", "clock", "memory clock")
ROWS, LOTS = 10, 4
PRICE_PER_H, PER_KWH = 3.6, 0.2
CURRENCY = "EUR"
MOST_SCRIPTED = 1.5


@dataclass(frozen=True)
class FleetRecipe:
    """A fleet.

    Attributes:
        hosts: Number of hosts.
        gpus: GPUs of a host.
        sick: Share of the GPUs that are sick.
        excess: Excess of time (or, for one cause, of power) of a sick GPU, as a share.
        spread: Standard deviation of healthy GPUs among each other.
        host_spread: The same of hosts.
        row_spread: Half of the range of the levels of cooling rows.
        lot_spread: The same of lots.
        heavy: Whether the healthy GPUs follow Student's distribution with 5 degrees of freedom.
        sick_hosts: Number of hosts all of whose GPUs are sick.
        seed: Of the random numbers.
    """

    hosts: int = 125
    gpus: int = 8
    sick: float = 0.01
    excess: float = 0.05
    spread: float = 0.005
    host_spread: float = 0.005
    row_spread: float = 0.02
    lot_spread: float = 0.015
    heavy: bool = False
    sick_hosts: int = 0
    seed: int = 1


def _slowed(
    made: Callable[[float], ScriptedHost], low: float, high: float, device: Physics, excess: float
) -> ScriptedHost:
    """Return the state between two sizes, slower from the first to the second, that has an excess of time."""
    for _ in range(30):
        middle = (low + high) / 2
        is_more = made(middle).time_s(device) > ScriptedHost().time_s(device) * (1 + excess)
        low, high = (low, middle) if is_more else (middle, high)
    return made(high)


def _scripted(cause: str) -> Callable[[float], ScriptedHost]:
    def changed(size: float) -> ScriptedHost:
        host = ScriptedHost()
        SCRIPTS[cause](host, size)
        return host

    return changed


CAUSES: Mapping[str, Callable[[Physics, float], ScriptedHost]] = {
    "neighbour": lambda _, excess: ScriptedHost(neighbour=1.0, slowdown=1 + excess),
    "lower power limit": lambda device, excess: _slowed(
        lambda limit: ScriptedHost(power_limit=limit), 1.0, 0.2, device, excess
    ),
    "memory errors": lambda _, excess: ScriptedHost(ecc=7, slowdown=1 + excess),
    "unknown": lambda _, excess: ScriptedHost(slowdown=1 + excess),
    "hungry": lambda _, excess: ScriptedHost(power_factor=1 + excess),
}
# The names that are right for each, if not only its own.
NAMES: Mapping[str, tuple[str, ...]] = {
    # The excess of a few degrees is within the spread of healthy ones.
    "cooling": ("cooling", "thermal throttling"),
    "thermal throttling": ("thermal throttling", "cooling"),
    "lower power limit": ("power limit", "clock"),
    "hungry": ("unknown",),
}


def sick_gpu(cause: str, device: Physics, excess: float) -> ScriptedHost:
    """Return the state of a sick GPU."""
    make = CAUSES.get(cause)
    state = (
        make(device, excess)
        if make
        else _slowed(_scripted(cause), 0.0, MOST_SCRIPTED, device, excess)
    )
    if cause in SCRIPTED:
        # A device that hardly follows what the cause changes is slower for another reason beside it.
        wanted = ScriptedHost().time_s(device) * (1 + excess)
        state.slowdown *= wanted / state.time_s(device)
    return state


def fleet(recipe: FleetRecipe) -> tuple[list[GpuLevel], dict[tuple[str, str], str]]:
    """Return the levels of a fleet's GPUs, and the cause of each sick one by host and device.

    A host that is sick as a whole is under the device "".
    """
    rng = random.Random(recipe.seed)
    device = replace(physics_of(rng), clock_noise=0.002)
    rows = {f"row{n}": rng.uniform(-1, 1) for n in range(ROWS)}
    lots = {f"lot{n}": rng.uniform(-1, 1) for n in range(LOTS)}
    slots = [rng.uniform(-0.005, 0.005) for _ in range(recipe.gpus)]
    names = [*SCRIPTED, *CAUSES]
    places = [(host, slot) for host in range(recipe.hosts) for slot in range(recipe.gpus)]
    ill = rng.sample(places, round(recipe.sick * len(places)))
    causes = {place: names[n % len(names)] for n, place in enumerate(ill)}
    ill_hosts = rng.sample(range(recipe.hosts), recipe.sick_hosts)
    gpus = []
    for number in range(recipe.hosts):
        row = f"row{number * ROWS // recipe.hosts}"
        lot = f"lot{rng.randrange(LOTS)}"
        level = recipe.row_spread * rows[row] + recipe.lot_spread * lots[lot]
        level += rng.gauss(0, recipe.host_spread)
        for slot in range(recipe.gpus):
            cause = "cooling" if number in ill_hosts else causes.get((number, slot), "")
            state = sick_gpu(cause, device, recipe.excess) if cause else ScriptedHost()
            state.temp_c += 4 * rows[row] + slot / 2 + rng.gauss(0, 1)
            own = _spread(rng, recipe)
            run = _run(state, device, level + slots[slot] + own, rng)
            gpus.append(
                GpuLevel(
                    f"host{number:04}",
                    f"gpu{slot}",
                    PEERS,
                    run,
                    168,
                    {"row": row, "lot": lot},
                    0.6,
                )
            )
    truth = {(f"host{host:04}", f"gpu{slot}"): cause for (host, slot), cause in causes.items()}
    truth |= {(f"host{host:04}", ""): "cooling" for host in ill_hosts}
    return gpus, truth


def _spread(rng: random.Random, recipe: FleetRecipe) -> float:
    normal = rng.gauss(0, recipe.spread)
    if not recipe.heavy:
        return normal
    # Of the same variance: 5 degrees of freedom have one of 5/3.
    return normal * math.sqrt(5 / (2 * rng.gammavariate(2.5, 1))) / math.sqrt(5 / 3)


def _run(state: ScriptedHost, device: Physics, slower: float, rng: random.Random) -> DetectionRun:
    time_s = state.time_s(device) * math.exp(slower + rng.gauss(0, 0.001))
    # The power of a GPU does not follow what makes it slower than its peers by nature.
    power_w = state.power_w(device, state.temp_c) * math.exp(rng.gauss(0, 0.004))
    return DetectionRun(
        time_ns=0,
        batch=state.batch,
        time_s=time_s,
        energy_j=power_w * time_s,
        price_per_s=PRICE_PER_H / 3600,
        electricity_per_j=PER_KWH / 3.6e6,
        fingerprint="",
        currency=CURRENCY,
        device={
            "throughput_per_s": 1 / time_s,
            "latency_p50_ms": time_s * state.batch * 1000,
            "sm_clock_mhz": state.clock_mhz(device) * (1 + rng.gauss(0, device.clock_noise)),
            "mem_clock_mhz": float(state.memory_mhz()),
            "power_limit_w": float(state.power_limit_w(device)),
            "throttled_thermal_pct": 100 * state.throttled_thermal + abs(rng.gauss(0, 0.1)),
            "throttled_power_pct": 100 * state.power_throttled(device) + abs(rng.gauss(0, 0.1)),
            "temp_max_c": state.temp_c,
            "contended": state.neighbour,
            "ecc_uncorrected": state.ecc,
        },
    )
