"""Scripted histories of a device with their causes, and the true share of each.

    for case in cases(240, seed=1):
        rows = rows_of(case)      # rows of `probe`, `cost` and `event`, oldest first
        case.shares("cost")       # {"cooling": 0.7, "software: driver": 0.3}

Each case draws a device of its own (`Physics`): what part of its time follows the clock, how its power
follows clock and temperature, what a pass of a smaller batch costs. Nothing here imports the detectors.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from costprobe.core.records import NS_PER_S, FieldValue, Point

BASE_CLOCK_MHZ = 1980.0
BASE_MEMORY_MHZ = 2619.0
BASE_TIME_S = 0.0012
BASE_BATCH = 16
BASE_TOKENS = (512.0, 128.0)
BASE_TEMP_C = 64.0
# The usual power limit over the power under load, and the share of the time counted as throttled where a
# limit holds the clock.
LIMIT_ABOVE = 1.1
LIMITED_SHARE = 0.6
# Part of the dynamic power that the lowest clock needs.
LEAST_DYNAMIC = 0.2


@dataclass(frozen=True)
class Physics:
    """What a device and its model are like.

    Attributes:
        compute: Part of the time that follows the SM clock at the base state.
        overlap: How far compute and memory overlap: 1 not at all, higher more (a p-norm of both).
        idle_w: Power that does not follow the clock.
        dynamic_w: Power that does, at the base clock.
        voltage: Exponent of power over clock: 1 at a constant voltage, 3 where it follows the clock.
        leakage: Growth of the idle power per degree.
        throttle_depth: Fall of the clock while throttled, as a share.
        contended_by: Factor on the time of a run beside another process.
        contended_power: Factor on the power of such a run.
        pass_overhead: Part of a pass of the base batch that does not shrink with the batch.
        prefill: Part of a request's time before its first token.
        clock_noise: Relative noise of the clock's reading.
    """

    compute: float
    overlap: float
    idle_w: float
    dynamic_w: float
    voltage: float
    leakage: float
    throttle_depth: float
    contended_by: float
    contended_power: float
    pass_overhead: float
    prefill: float
    clock_noise: float


def physics_of(rng: random.Random) -> Physics:
    """Draw a device."""
    return Physics(
        compute=rng.choice((1.0, rng.uniform(0.75, 1), rng.uniform(0.4, 0.75))),
        overlap=rng.uniform(1, 3),
        idle_w=rng.uniform(70, 180),
        dynamic_w=rng.uniform(250, 450),
        voltage=rng.uniform(1, 2.8),
        leakage=rng.uniform(0.003, 0.012),
        throttle_depth=rng.uniform(0.35, 0.7),
        contended_by=rng.uniform(1.12, 1.9),
        contended_power=rng.uniform(0.9, 1.15),
        pass_overhead=rng.uniform(0.1, 0.6),
        prefill=rng.uniform(0.08, 0.3),
        clock_noise=rng.uniform(0.0005, 0.004),
    )


@dataclass
class ScriptedHost:
    """State of the device; a script changes it from one run to the next.

    Attributes:
        cap: Limit of the SM clock as a share of the base clock.
        memory_cap: The same of the memory's clock.
        throttled_thermal: Share of the time throttled by temperature.
        throttled_power: Share of the time throttled by power for another reason than a lower limit.
        flagged_power: Share of the time that the driver counts as throttled by power, at the same clock.
        power_limit: Power limit as a share of the usual one, which is above the power.
        slowdown: Further factor on the time per inference.
        power_factor: Further factor on the power.
        energy_factor: Further factor on the energy alone.
        temp_c: Temperature under load.
        neighbour: Probability that another process uses the device in a run.
        mem_used_pct: Device memory in use.
        ecc: Uncorrected memory errors.
        batch: Items per forward pass.
        tokens_in: Input tokens of a request.
        tokens_out: Output tokens of a request.
        board: Identity of the board.
        software: Versions.
        annotations: Texts of annotations in force; a new one is an event.
        price_per_h: Price of the device.
    """

    cap: float = 1.0
    memory_cap: float = 1.0
    throttled_thermal: float = 0.0
    throttled_power: float = 0.0
    flagged_power: float = 0.0
    power_limit: float = 1.0
    slowdown: float = 1.0
    power_factor: float = 1.0
    energy_factor: float = 1.0
    temp_c: float = BASE_TEMP_C
    neighbour: float = 0.0
    mem_used_pct: float = 45.0
    ecc: int = 0
    batch: int = BASE_BATCH
    tokens_in: float = BASE_TOKENS[0]
    tokens_out: float = BASE_TOKENS[1]
    board: str = "GPU-1"
    software: dict[str, str] = field(
        default_factory=lambda: {"driver": "550.54", "torch": "2.13", "cuda": "12.4", "model": "3f"}
    )
    annotations: tuple[str, ...] = ()
    price_per_h: float = 3.6

    def clock_mhz(self, device: Physics) -> float:
        """Return the mean SM clock."""
        throttled = min(1.0, self.throttled_thermal + self.throttled_power)
        clock = self.cap * (1 - throttled * device.throttle_depth)
        return BASE_CLOCK_MHZ * min(clock, self._limited(device))

    def power_limit_w(self, device: Physics) -> int:
        """Return the power limit in force."""
        return round(LIMIT_ABOVE * (device.idle_w + device.dynamic_w) * self.power_limit)

    def power_throttled(self, device: Physics) -> float:
        """Return the share of the time that the driver counts as throttled by power."""
        is_limited = BASE_CLOCK_MHZ * self._limited(device) <= self.clock_mhz(device)
        return LIMITED_SHARE if is_limited else self.throttled_power + self.flagged_power

    def _limited(self, device: Physics) -> float:
        """Return the clock at which the power is the limit, as a share of the base clock."""
        dynamic = self.power_limit_w(device) / self.power_factor - device.idle_w
        return math.pow(max(LEAST_DYNAMIC, dynamic / device.dynamic_w), 1 / device.voltage)

    def memory_mhz(self) -> int:
        """Return the clock of the memory."""
        return round(BASE_MEMORY_MHZ * self.memory_cap)

    def time_s(self, device: Physics) -> float:
        """Return the time per inference of a run without a neighbour."""
        compute = device.compute * BASE_CLOCK_MHZ / self.clock_mhz(device)
        memory = (1 - device.compute) / self.memory_cap
        p = device.overlap
        base = math.pow(device.compute**p + (1 - device.compute) ** p, 1 / p)
        roofline = math.pow(compute**p + memory**p, 1 / p) / base
        overhead = device.pass_overhead * (BASE_BATCH / self.batch - 1)
        return BASE_TIME_S * roofline * (1 + overhead) * self.slowdown * self.request(device)

    def request(self, device: Physics) -> float:
        """Return the time of a request over that of one with the base tokens."""
        inputs, outputs = self.tokens_in / BASE_TOKENS[0], self.tokens_out / BASE_TOKENS[1]
        return device.prefill * inputs + (1 - device.prefill) * outputs

    def power_w(self, device: Physics, temp_c: float) -> float:
        """Return the power of a run without a neighbour."""
        clock = self.clock_mhz(device) / BASE_CLOCK_MHZ
        idle = device.idle_w * math.exp(device.leakage * (temp_c - BASE_TEMP_C))
        return (idle + device.dynamic_w * math.pow(clock, device.voltage)) * self.power_factor

    def log_time(self, device: Physics) -> float:
        """Return the expected logarithm of time per inference, neighbours included."""
        return math.log(self.time_s(device)) + self.neighbour * math.log(device.contended_by)

    def log_energy(self, device: Physics) -> float:
        """Return the expected logarithm of energy per inference, neighbours included."""
        power = math.log(self.power_w(device, self.temp_c))
        power += self.neighbour * math.log(device.contended_power)
        return self.log_time(device) + power + math.log(self.energy_factor)


# Changes a host to a share (0 to 1) of its size.
Script = Callable[[ScriptedHost, float], None]


def _cooling(host: ScriptedHost, size: float) -> None:
    host.temp_c += 24 * size
    host.throttled_thermal += 0.5 * size


def _thermal(host: ScriptedHost, size: float) -> None:
    host.throttled_thermal += 0.5 * size


def _power(host: ScriptedHost, size: float) -> None:
    host.throttled_power += 0.5 * size


def _limit(host: ScriptedHost, size: float) -> None:
    host.power_limit *= 1 - (0.12 + 0.33 * size) * (size > 0)
    host.temp_c -= 6 * size


def _clock(host: ScriptedHost, size: float) -> None:
    host.cap *= 1 - 0.28 * size
    host.temp_c -= 6 * size


def _memory_clock(host: ScriptedHost, size: float) -> None:
    host.memory_cap *= 1 - 0.4 * size


def _neighbour(host: ScriptedHost, size: float) -> None:
    host.neighbour = max(host.neighbour, 0.5 + 0.5 * size) if size else host.neighbour
    host.temp_c += 4 * size


def _software(*keys: str, slower: float) -> Script:
    def change(host: ScriptedHost, size: float) -> None:
        host.slowdown *= 1 + slower * size
        if size:
            host.software |= dict.fromkeys(keys, "new")

    return change


def _batch(host: ScriptedHost, size: float) -> None:
    if size:
        host.batch = 8 if size < 0.75 else 4


def _board(host: ScriptedHost, size: float) -> None:
    if size:
        host.board, host.slowdown = "GPU-2", host.slowdown * (1 + 0.15 * size)


def _memory(host: ScriptedHost, size: float) -> None:
    if size:
        host.mem_used_pct, host.slowdown = 97.0, host.slowdown * (1 + 0.25 * size)


def _errors(host: ScriptedHost, size: float) -> None:
    if size:
        host.ecc, host.slowdown = 3, host.slowdown * (1 + 0.1 * size)


def _prompts(host: ScriptedHost, size: float) -> None:
    host.tokens_in *= 1 + size
    host.tokens_out *= 1 + 0.5 * size


def _annotation(host: ScriptedHost, size: float) -> None:
    host.slowdown *= 1 + 0.25 * size
    if size:
        host.annotations += ("deployed v42",)


def _unknown(host: ScriptedHost, size: float) -> None:
    host.slowdown *= 1 + 0.2 * size


def _energy(host: ScriptedHost, size: float) -> None:
    host.energy_factor *= 1 + size


def _price(host: ScriptedHost, size: float) -> None:
    host.price_per_h *= 1 - 0.2 * size


def _only_update(host: ScriptedHost, size: float) -> None:
    if size:
        host.software |= {"driver": "560.28"}


def _only_annotation(host: ScriptedHost, size: float) -> None:
    if size:
        host.annotations += ("dashboards updated",)


def _only_heat(host: ScriptedHost, size: float) -> None:
    host.temp_c += 12 * size


def _only_flag(host: ScriptedHost, size: float) -> None:
    host.flagged_power += 0.5 * size


SCRIPTS: Mapping[str, Script] = {
    "cooling": _cooling,
    "thermal throttling": _thermal,
    "power limit": _power,
    "lower power limit": _limit,
    "clock": _clock,
    "neighbour": _neighbour,
    "software: driver": _software("driver", slower=0.15),
    "software: model": _software("model", slower=0.4),
    "software: torch": _software("torch", "cuda", slower=0.15),
    "batch": _batch,
    "board": _board,
    "memory pressure": _memory,
    "memory errors": _errors,
    "memory clock": _memory_clock,
    "prompt lengths": _prompts,
    "annotation": _annotation,
    "unknown": _unknown,
    "energy": _energy,
    "price": _price,
    "update without effect": _only_update,
    "annotation without effect": _only_annotation,
    "heat without effect": _only_heat,
    "power flag without effect": _only_flag,
}
# Scripts that change no time.
HARMLESS = (
    "price",
    "update without effect",
    "annotation without effect",
    "heat without effect",
    "power flag without effect",
)


EVERY_S = 300
J_PER_KWH = 3.6e6
RUNS_PER_H = 3600 // EVERY_S
# Half a run of tolerance: hours are multiples of a run.
TOLERANCE_H = 0.5 / RUNS_PER_H
# First causes whose true shares differ by less are equally right.
EQUAL_SHARES = 0.15


@dataclass(frozen=True)
class ScriptedChange:
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

    def apply(self, host: ScriptedHost, hour: float) -> None:
        """Change a host to its state at an hour."""
        since_h = hour - self.hour + TOLERANCE_H
        if since_h > 0 and hour + TOLERANCE_H < self.until_hour:
            share = min(1.0, since_h / self.ramp_h) if self.ramp_h else 1.0
            SCRIPTS[self.name](host, self.size * share)


@dataclass(frozen=True)
class ScriptedCase:
    """A history and what should be reported.

    Attributes:
        family: Kind of case.
        seed: Seed of its noise.
        hours: Length.
        device: What the device is like.
        changes: What is scripted.
        named: What a script is called where its signals are missing, or where it acts late.
        onset_h: Start of the reported change.
        noise: Standard deviation of the logarithm of time.
        phi: Its AR(1) coefficient.
        outliers: Share of runs that take up to half longer.
        is_noisy: Whether throttling and neighbours vary without any effect.
        daily: Amplitude of a daily rhythm of time.
        wander: Largest fall of the SM clock from run to run, as a share.
        electricity_per_kwh: Price of electricity that the device's price does not include.
        is_server: Whether the probe sends requests with tokens.
        missing: Fields that the device does not report.
    """

    family: str
    seed: int
    hours: float
    device: Physics
    changes: tuple[ScriptedChange, ...] = ()
    named: dict[str, str] = field(default_factory=dict)
    onset_h: float = 0.0
    noise: float = 0.008
    phi: float = 0.0
    outliers: float = 0.0
    is_noisy: bool = False
    daily: float = 0.0
    wander: float = 0.0
    electricity_per_kwh: float = 0.0
    is_server: bool = False
    missing: frozenset[str] = frozenset()

    def host_at(self, hour: float) -> ScriptedHost:
        """Return the state of the host at an hour."""
        host = ScriptedHost()
        for change in self.changes:
            change.apply(host, hour)
        return host

    def shares(self, metric: str = "throughput") -> dict[str, float]:
        """Return each cause's true part of the change at the onset; empty if nothing changed.

        The mean of the differences that a change makes over all orders in which the changes may be
        applied (Shapley), in logarithms.

        Args:
            metric: "cost", "latency", "energy" or "throughput".
        """
        moved = [change for change in self.changes if self._is_at_onset(change)]
        orders = list(permutations(moved))
        parts: dict[str, float] = {}
        for order in orders:
            was = self._log(metric, ())
            for count, change in enumerate(order, 1):
                value = self._log(metric, order[:count])
                name = self.named.get(change.name, change.name)
                parts[name] = parts.get(name, 0.0) + (value - was) / len(orders)
                was = value
        total = sum(parts.values())
        return {name: part / total for name, part in parts.items()} if total else {}

    def first_causes(self) -> set[str]:
        """Return the acceptable first causes; empty if nothing should be reported."""
        shares = self.shares() or self.shares("energy")
        most = max(shares.values(), default=0.0)
        return {name for name, share in shares.items() if share > most - EQUAL_SHARES}

    def _is_at_onset(self, change: ScriptedChange) -> bool:
        is_end = change.until_hour == self.onset_h
        return change.name not in HARMLESS and (change.hour == self.onset_h or is_end)

    def _log(self, metric: str, changes: Sequence[ScriptedChange]) -> float:
        """Return the expected logarithm of a metric under changes at their full size."""
        host = ScriptedHost()
        for change in changes:
            SCRIPTS[change.name](host, change.size)
        time, energy = host.log_time(self.device), host.log_energy(self.device)
        if metric == "energy":
            return energy
        if metric == "latency":
            return time + math.log(host.batch)
        if metric == "cost":
            hardware = ScriptedHost().price_per_h / 3600 * math.exp(time)
            return math.log(hardware + self.electricity_per_kwh / J_PER_KWH * math.exp(energy))
        return time


SUDDEN = tuple(name for name in SCRIPTS if name not in (*HARMLESS, "prompt lengths", "energy"))
GRADUAL = ("cooling", "thermal throttling", "power limit", "clock", "unknown")
PHYSICAL = ("cooling", "thermal throttling", "lower power limit", "clock", "neighbour")
DEPLOYED = ("software: driver", "software: model", "batch", "annotation", "unknown")
# What a cause is called if fields are missing.
MISSING = (
    ("cooling", {"throttled_thermal_pct", "throttled_power_pct"}, "cooling"),
    ("cooling", {"temp_max_c"}, "thermal throttling"),
    ("power limit", {"throttled_power_pct", "throttled_thermal_pct"}, "clock"),
    ("lower power limit", {"throttled_power_pct", "throttled_thermal_pct"}, "power limit"),
    ("lower power limit", {"sm_clock_mhz", "throttled_power_pct"}, "power limit"),
    ("lower power limit", {"power_limit_w"}, "power limit"),
    ("clock", {"sm_clock_mhz", "throttled_power_pct"}, "unknown"),
    ("neighbour", {"contended"}, "unknown"),
    ("cooling", {"sm_clock_mhz"}, "cooling"),
)


def cases(count: int, seed: int = 1) -> Iterator[ScriptedCase]:
    """Yield cases of all families in turn, with seeded parameters."""
    for index in range(count):
        number = seed * 100_000 + index
        rng = random.Random(number)
        yield _FAMILIES[index % len(_FAMILIES)](rng, number, index // len(_FAMILIES))


def _case(rng: random.Random, number: int, family: str, hour: float, **more: Any) -> ScriptedCase:
    device = physics_of(rng)
    if any(change.name == "memory clock" for change in more.get("changes", ())):
        # Without any wait for the memory its clock has no effect.
        device = replace(device, compute=rng.uniform(0.3, 0.7))
    values: dict[str, Any] = {
        "hours": hour + 18,
        "device": device,
        "onset_h": hour,
        "noise": rng.uniform(0.004, 0.012),
        "phi": rng.choice((0.0, 0.0, 0.4)),
        "outliers": rng.choice((0.0, 0.005)),
        "electricity_per_kwh": rng.choice((0.0, 0.0, rng.uniform(0.1, 0.4))),
        **more,
    }
    return ScriptedCase(family, number, **values)


def _settled_h(rng: random.Random) -> float:
    return rng.randrange(60 * RUNS_PER_H, 110 * RUNS_PER_H) / RUNS_PER_H


def _size(rng: random.Random) -> float:
    return rng.uniform(0.4, 1)


def _at(rng: random.Random, hour: float, *names: str) -> tuple[ScriptedChange, ...]:
    return tuple(ScriptedChange(name, hour, _size(rng)) for name in names)


def _single(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    name = SUDDEN[(nth + number * 5) % len(SUDDEN)]
    return _case(rng, number, "single", hour, changes=_at(rng, hour, name))


def _prompt_lengths(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    names = ("prompt lengths",) if nth % 2 else ("prompt lengths", DEPLOYED[nth // 2 % 5])
    changes = _at(rng, hour, *names)
    return _case(rng, number, "prompt lengths", hour, changes=changes, is_server=True)


def _slow(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), GRADUAL[nth % len(GRADUAL)]
    change = ScriptedChange(name, hour, rng.uniform(0.6, 1), rng.uniform(4, 18))
    return _case(rng, number, "slow", hour, changes=(change,), hours=hour + 40)


def _first_hours(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = rng.randrange(4 * RUNS_PER_H, 22 * RUNS_PER_H) / RUNS_PER_H
    name = SUDDEN[nth % len(SUDDEN)]
    return _case(rng, number, "first day", hour, changes=_at(rng, hour, name), hours=80)


def _first_days(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = rng.randrange(27 * RUNS_PER_H, 60 * RUNS_PER_H) / RUNS_PER_H
    name = SUDDEN[(nth + 7) % len(SUDDEN)]
    return _case(rng, number, "first days", hour, changes=_at(rng, hour, name))


def _noisy_baseline(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    changes = _at(rng, hour, SUDDEN[(nth + 3) % len(SUDDEN)])
    return _case(rng, number, "noisy signals", hour, changes=changes, is_noisy=True)


def _two_at_once(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, names = _settled_h(rng), (PHYSICAL[nth % 5], DEPLOYED[(nth // 5 + nth) % 5])
    return _case(rng, number, "two at once", hour, changes=_at(rng, hour, *names))


def _two_physical(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    pairs = (("cooling", "neighbour"), ("power limit", "neighbour"), ("cooling", "power limit"))
    hour = _settled_h(rng)
    return _case(rng, number, "two physical", hour, changes=_at(rng, hour, *pairs[nth % 3]))


def _known_clock(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return a device whose clock varies, so that the history shows how much of the time follows it."""
    del nth
    hour = _settled_h(rng)
    device = replace(physics_of(rng), compute=rng.uniform(0.2, 0.6), clock_noise=0.001)
    changes = _at(rng, hour, "clock", "software: driver")
    return _case(rng, number, "known clock", hour, changes=changes, device=device, wander=0.1)


def _update_the_day_before(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), PHYSICAL[nth % 5]
    kind = ("update without effect", "annotation without effect")[nth % 2]
    changes = (ScriptedChange(kind, hour - rng.uniform(10, 24)), *_at(rng, hour, name))
    return _case(rng, number, "update before", hour, changes=changes)


def _update_one_run_before(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return an update whose effect comes with the next load."""
    hour = _settled_h(rng)
    kind = ("update without effect", "annotation without effect")[nth % 2]
    changes = (ScriptedChange(kind, hour - 1 / RUNS_PER_H), *_at(rng, hour, "unknown"))
    named = {"unknown": ("software: driver", "annotation")[nth % 2]}
    return _case(rng, number, "update one run before", hour, changes=changes, named=named)


def _update_one_run_later(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, name = _settled_h(rng), (*PHYSICAL, "unknown")[nth % 6]
    late = ScriptedChange("update without effect", hour + 1 / RUNS_PER_H)
    changes = (*_at(rng, hour, name), late)
    return _case(rng, number, "update one run later", hour, changes=changes)


def _price_in_the_same_hour(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _settled_h(rng)
    price = ScriptedChange("price", hour + rng.choice((-4, 0, 2)) / RUNS_PER_H)
    changes = (*_at(rng, hour, SUDDEN[(nth + 5) % len(SUDDEN)]), price)
    return _case(rng, number, "price too", hour, changes=changes)


def _beside_heat(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return a change of unknown reason, or of another one, on an afternoon that gets hot."""
    hour, name = _settled_h(rng), ("unknown", "software: model", "neighbour")[nth % 3]
    changes = (*_at(rng, hour, name), ScriptedChange("heat without effect", hour))
    return _case(rng, number, "beside heat", hour, changes=changes)


def _beside_a_flag(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return an update, or another change, after which the driver counts throttling at the same clock."""
    hour, name = _settled_h(rng), ("software: driver", "unknown")[nth % 2]
    changes = _at(rng, hour, name, "power flag without effect")
    return _case(rng, number, "beside a flag", hour, changes=changes)


def _missing(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, fields, called) = _settled_h(rng), MISSING[nth % len(MISSING)]
    more = {"changes": _at(rng, hour, name), "named": {name: called}}
    return _case(rng, number, "missing signals", hour, missing=frozenset(fields), **more)


def _recovery(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    name, hour = PHYSICAL[nth % 5], _settled_h(rng)
    change = ScriptedChange(name, 6.0, _size(rng), until_hour=hour)
    return _case(rng, number, "recovery", hour, changes=(change,))


def _intermittent(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    del nth
    changes, hour, first = [], 50.0, 50.0
    while hour < 50 + 5 * 24:
        lasts_h = rng.uniform(1.5, 4)
        changes.append(ScriptedChange("neighbour", hour, _size(rng), until_hour=hour + lasts_h))
        hour += lasts_h + rng.uniform(2, 7)
    more = {"changes": tuple(changes), "hours": hour}
    return _case(rng, number, "intermittent", first, **more)


def _no_signal(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    """Return a change without any signal, sudden or slow."""
    hour = _settled_h(rng)
    ramp_h = rng.uniform(4, 18) if nth % 2 else 0.0
    change = ScriptedChange("unknown", hour, _size(rng), ramp_h)
    return _case(rng, number, "no signal", hour, changes=(change,), hours=hour + 30)


def _quiet(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    more = {"daily": rng.choice((0.0, 0.03)), "is_noisy": nth % 2 == 0, "hours": 10 * 24}
    return _case(rng, number, "quiet", 0.0, **more)


_FAMILIES: Sequence[Callable[[random.Random, int, int], ScriptedCase]] = (
    *(_single,) * 4,
    _slow,
    _first_hours,
    _first_days,
    _noisy_baseline,
    *(_two_at_once,) * 2,
    _two_physical,
    _known_clock,
    _update_the_day_before,
    _update_one_run_before,
    _update_one_run_later,
    _price_in_the_same_hour,
    _beside_heat,
    _beside_a_flag,
    _prompt_lengths,
    _missing,
    _recovery,
    _intermittent,
    _no_signal,
    *(_quiet,) * 4,
)


FACTORS = (3.0, 5.0, 10.0)
# What "unknown" slows down by, at size 1.
UNKNOWN_SLOWER = 0.2
# Without effect, and hours after the large change.
UNRELATED = (
    ("annotation without effect", -4.0),
    ("update without effect", -6.0),
    ("update without effect", 1 / RUNS_PER_H),
    ("heat without effect", 0.0),
    ("annotation without effect", -1.5),
    ("annotation without effect", 1.0),
)
SMALL = ("clock", "thermal throttling", "power limit", "neighbour", "memory clock")
DEPLOYED_TOO = (
    ("update without effect", "software: driver"),
    ("annotation without effect", "annotation"),
)


def large_cases(count: int, seed: int = 1) -> Iterator[ScriptedCase]:
    """Yield cases of all families in turn, with seeded parameters."""
    for index in range(count):
        number = seed * 100_000 + 50_000 + index
        rng = random.Random(number)
        yield _LARGE_FAMILIES[index % len(_LARGE_FAMILIES)](
            rng, number, index // len(_LARGE_FAMILIES)
        )


def _large_case(
    rng: random.Random, number: int, family: str, hour: float, **more: Any
) -> ScriptedCase:
    # Nothing else explains it: a neighbour that doubles the time of a run is no small change.
    device = replace(physics_of(rng), contended_by=rng.uniform(1.05, 1.3))
    noise, phi = rng.uniform(0.004, 0.03), rng.choice((0.0, 0.4))
    return ScriptedCase(
        family, number, hour + 18, device, onset_h=hour, noise=noise, phi=phi, **more
    )


def _hour(rng: random.Random, nth: int) -> float:
    """Return a start on the first day, or later."""
    first, last = ((5, 20), (30, 60), (60, 110))[nth % 3]
    return rng.randrange(first * RUNS_PER_H, last * RUNS_PER_H) / RUNS_PER_H


def _large(rng: random.Random, hour: float) -> ScriptedChange:
    return ScriptedChange("unknown", hour, (rng.choice(FACTORS) - 1) / UNKNOWN_SLOWER)


def _large_alone(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _hour(rng, nth)
    return _large_case(rng, number, "large", hour, changes=(_large(rng, hour),))


def _large_energy(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _hour(rng, nth)
    change = ScriptedChange("energy", hour, rng.choice(FACTORS) - 1)
    named = {"energy": "unknown"}
    return _large_case(rng, number, "large, energy", hour, changes=(change,), named=named)


def _beside(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, later_h) = _hour(rng, nth), UNRELATED[nth % len(UNRELATED)]
    changes = (_large(rng, hour), ScriptedChange(name, hour + later_h))
    return _large_case(rng, number, "large, unrelated", hour, changes=changes)


def _small(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour = _hour(rng, nth)
    small = ScriptedChange(SMALL[nth % len(SMALL)], hour, rng.uniform(0.1, 0.25))
    return _large_case(rng, number, "large, small signal", hour, changes=(_large(rng, hour), small))


def _deployed(rng: random.Random, number: int, nth: int) -> ScriptedCase:
    hour, (name, called) = _hour(rng, nth), DEPLOYED_TOO[nth % 2]
    changes = (_large(rng, hour), ScriptedChange(name, hour))
    more = {"changes": changes, "named": {"unknown": called}}
    return _large_case(rng, number, "large, deployed", hour, **more)


_LARGE_FAMILIES: Sequence[Callable[[random.Random, int, int], ScriptedCase]] = (
    _large_alone,
    _large_energy,
    _beside,
    _small,
    _deployed,
)


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
