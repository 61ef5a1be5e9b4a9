"""A model of a GPU under a probe, for scripted cases: time and energy from clock, memory, heat and neighbours.

Each case draws a device of its own (`Physics`): what part of its time follows the clock, how its power
follows clock and temperature, what a pass of a smaller batch costs. Nothing here imports the detectors.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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


def _moved(add: Mapping[str, float], scale: Mapping[str, float] | None = None) -> Script:
    """Return a script that adds to some attributes, and scales others by one and so much, at size 1."""

    def change(host: ScriptedHost, size: float) -> None:
        for name, amount in add.items():
            setattr(host, name, getattr(host, name) + amount * size)
        for name, share in (scale or {}).items():
            setattr(host, name, getattr(host, name) * (1 + share * size))

    return change


def _limit(host: ScriptedHost, size: float) -> None:
    host.power_limit *= 1 - (0.12 + 0.33 * size) * (size > 0)
    host.temp_c -= 6 * size


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


def _annotation(host: ScriptedHost, size: float) -> None:
    host.slowdown *= 1 + 0.25 * size
    if size:
        host.annotations += ("deployed v42",)


def _only_update(host: ScriptedHost, size: float) -> None:
    if size:
        host.software |= {"driver": "560.28"}


def _only_annotation(host: ScriptedHost, size: float) -> None:
    if size:
        host.annotations += ("dashboards updated",)


SCRIPTS: Mapping[str, Script] = {
    "cooling": _moved({"temp_c": 24, "throttled_thermal": 0.5}),
    "thermal throttling": _moved({"throttled_thermal": 0.5}),
    "power limit": _moved({"throttled_power": 0.5}),
    "lower power limit": _limit,
    "clock": _moved({"temp_c": -6}, {"cap": -0.28}),
    "neighbour": _neighbour,
    "software: driver": _software("driver", slower=0.15),
    "software: model": _software("model", slower=0.4),
    "software: torch": _software("torch", "cuda", slower=0.15),
    "batch": _batch,
    "board": _board,
    "memory pressure": _memory,
    "memory errors": _errors,
    "memory clock": _moved({}, {"memory_cap": -0.4}),
    "prompt lengths": _moved({}, {"tokens_in": 1, "tokens_out": 0.5}),
    "annotation": _annotation,
    "unknown": _moved({}, {"slowdown": 0.2}),
    "energy": _moved({}, {"energy_factor": 1}),
    "price": _moved({}, {"price_per_h": -0.2}),
    "update without effect": _only_update,
    "annotation without effect": _only_annotation,
    "heat without effect": _moved({"temp_c": 12}),
    "power flag without effect": _moved({"flagged_power": 0.5}),
}
# Scripts that change no time.
HARMLESS = (
    "price",
    "update without effect",
    "annotation without effect",
    "heat without effect",
    "power flag without effect",
)
