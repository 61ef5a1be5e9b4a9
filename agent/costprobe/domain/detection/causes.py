"""Correlated signals of a drift: clocks, throttling, temperature, neighbours, software.

Each rule compares the conditions before and after a change. A signal has changed if it moved by the
least difference that matters and by more than its own noise, in the direction that explains the
change. Rules that detect a cause precede rules that detect its effect: a hot device throttles and
its clock falls, and the heat is the cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costprobe.core.records import BOARD
from costprobe.domain.detection.conditions import Comparison

# Smallest differences that count, whatever the noise.
THROTTLED_PCT = 1.0
TEMPERATURE_C = 3.0
HOTTER_C = 8.0
CLOCK_SHARE = 0.01
LIMIT_SHARE = 0.01
CONTENDED_SHARE = 0.2
MEMORY_SHARE = 0.1
NEARLY_FULL_SHARE = 0.9
SHARE_ERRORS = 2.5
TOKENS_SHARE = 0.05
# Software in the order in which it names a change: what is deployed precedes what it brings along.
SOFTWARE = (
    "model",
    "weights",
    "dtype",
    "inputs",
    "torch",
    "driver",
    "device_name",
    "cuda",
    "cudnn",
)


@dataclass(frozen=True, slots=True)
class Share:
    """Part of an observed change that a cause explains; 1 is all of it, negative if it counteracts.

    Attributes:
        mean: Best estimate.
        low: 5 % quantile.
        high: 95 % quantile.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Cause:
    """A signal correlated with a change.

    Attributes:
        name: Short stable name, for a tag or a rule: "cooling", "software: driver".
        text: Observation, for people.
        signals: Names of the Conditions it was observed in.
        time_effect: Expected ln of the time per inference after over before, from the signal alone;
            None if its size has no measurable effect, as that of an update.
        energy_effect: The same of the energy per inference.
        share: Its share of the observed change; None if not computed.
        coincides: Whether its own change point is that of the change; None if unknown.
        method: Source of the effect: "history" for a regression over the series' own runs, "physics"
            for a formula, "remainder" for what other causes do not explain (the cause coincides, and
            its effect is not measurable separately); empty if not computed.
    """

    name: str
    text: str
    signals: tuple[str, ...] = ()
    time_effect: float | None = None
    energy_effect: float | None = None
    share: Share | None = None
    coincides: bool | None = None
    method: Literal["", "history", "physics", "remainder"] = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a series changed.

    Attributes:
        name: Name of the cause with the largest share; "unknown" if all together explain less than
            half of the change.
        causes: The candidates, the largest share first.
        explained: Share of the change that they explain together; None if not computed.
    """

    name: str
    causes: tuple[Cause, ...] = ()
    explained: Share | None = None


def _board(compared: Comparison) -> Cause | None:
    old, new = compared.before.software.get(BOARD), compared.after.software.get(BOARD)
    return None if old == new else Cause(BOARD, f"another board: {old or 'none'} → {new or 'none'}")


def _software(compared: Comparison) -> Cause | None:
    before, after = compared.before.software, compared.after.software
    keys = sorted(
        (key for key in {*before, *after} - {BOARD} if before.get(key) != after.get(key)),
        key=lambda key: (SOFTWARE.index(key) if key in SOFTWARE else len(SOFTWARE), key),
    )
    if not keys or not before or not after:
        return None
    moves = (f"{key} {before.get(key, 'none')} → {after.get(key, 'none')}" for key in keys)
    return Cause(f"software: {keys[0]}", ", ".join(moves))


def _batch(compared: Comparison) -> Cause | None:
    before, after = compared.before.batch, compared.after.batch
    if before is None or after is None or before == after:
        return None
    return Cause("batch", f"batch {before} → {after}", ("batch",))


def _contention(compared: Comparison) -> Cause | None:
    before, after = compared.before.contended_share, compared.after.contended_share
    if before is None or after is None:
        return None
    difference = after.mean - before.mean
    # The standard error of a share, with the prior of one run of each kind.
    share = (before.mean * before.count + 1) / (before.count + 2)
    variance = share * (1 - share) * (1 / before.count + 1 / after.count)
    if abs(difference) < max(CONTENDED_SHARE, SHARE_ERRORS * math.sqrt(variance)):
        return None
    if compared.sign and difference * compared.sign < 0:
        return None
    was = f" ({before.mean * 100:.0f} % before)" if difference < 0 or before.mean else ""
    text = f"another process used the device in {after.mean * 100:.0f} % of the runs{was}"
    return Cause("neighbour", text, ("contended_share",))


def _ecc(compared: Comparison) -> Cause | None:
    before, after = compared.before.ecc_uncorrected, compared.after.ecc_uncorrected
    if before is None or after is None or after <= before or compared.sign < 0:
        return None
    return Cause(
        "memory errors", f"{after - before} new uncorrected memory errors", ("ecc_uncorrected",)
    )


def _heat(compared: Comparison) -> Cause | None:
    temp_c = compared.move("temp_c", TEMPERATURE_C)
    hotter = "" if temp_c is None else f"temperature {temp_c[0]:.0f} → {temp_c[1]:.0f} °C"
    thermal = compared.move("throttled_thermal_pct", THROTTLED_PCT)
    if thermal is not None:
        text = _share_text("thermal throttling", thermal)
        if temp_c is None:
            return Cause("thermal throttling", text, ("throttled_thermal_pct",))
        return Cause("cooling", f"{text}, {hotter}", ("throttled_thermal_pct",))
    # Without a counter of throttling: a clock that falls while the device gets hotter. A cap of the
    # clock makes it colder.
    is_uncounted = compared.after.throttled_thermal_pct is None
    if is_uncounted and temp_c is not None and _clock(compared) is not None:
        return Cause("cooling", f"{hotter}, without a counter of throttling", ("temp_c",))
    return None


def _power_limit(compared: Comparison) -> Cause | None:
    texts, signals = [], []
    before = compared.before.power_limit_w
    limit_w = compared.move("power_limit_w", LIMIT_SHARE * before.mean if before else 0.0, -1)
    if limit_w is not None:
        texts.append(f"power limit {limit_w[0]:.0f} → {limit_w[1]:.0f} W")
        signals.append("power_limit_w")
    throttled = compared.move("throttled_power_pct", THROTTLED_PCT)
    if throttled is not None:
        texts.append(_share_text("power throttling", throttled))
        signals.append("throttled_power_pct")
    return Cause("power limit", ", ".join(texts), tuple(signals)) if texts else None


def _clock(compared: Comparison) -> Cause | None:
    before = compared.before.sm_clock_mhz
    least = CLOCK_SHARE * before.mean if before else 0.0
    moved = compared.move("sm_clock_mhz", least, direction=-1)
    if moved is None:
        return None
    return Cause("clock", f"SM clock {moved[0]:.0f} → {moved[1]:.0f} MHz", ("sm_clock_mhz",))


def _memory_clock(compared: Comparison) -> Cause | None:
    before = compared.before.mem_clock_mhz
    least = CLOCK_SHARE * before.mean if before else 0.0
    moved = compared.move("mem_clock_mhz", least, direction=-1)
    if moved is None:
        return None
    text = f"memory clock {moved[0]:.0f} → {moved[1]:.0f} MHz"
    return Cause("memory clock", text, ("mem_clock_mhz",))


def _prompt_lengths(compared: Comparison) -> Cause | None:
    texts, signals = [], []
    for signal, word in (("tokens_in", "input"), ("tokens_out", "output")):
        before = getattr(compared.before, signal)
        moved = compared.move(signal, TOKENS_SHARE * before.mean if before else 0.0)
        if moved is not None:
            texts.append(f"{word} tokens {moved[0]:.0f} → {moved[1]:.0f}")
            signals.append(signal)
    return Cause("prompt lengths", ", ".join(texts), tuple(signals)) if texts else None


def _memory(compared: Comparison) -> Cause | None:
    moved = compared.move("mem_used_share", MEMORY_SHARE)
    if moved is None or max(moved) < NEARLY_FULL_SHARE:
        return None
    return Cause(
        "memory pressure", f"device memory {moved[1] * 100:.0f} % full", ("mem_used_share",)
    )


def _temperature(compared: Comparison) -> Cause | None:
    moved = compared.move("temp_c", HOTTER_C)
    if moved is None or _heat(compared) is not None:
        return None
    return Cause("temperature", f"temperature {moved[0]:.0f} → {moved[1]:.0f} °C", ("temp_c",))


RULES: Sequence[Callable[[Comparison], Cause | None]] = (
    _board,
    _software,
    _batch,
    _contention,
    _ecc,
    _heat,
    _power_limit,
    _clock,
    _memory_clock,
    _prompt_lengths,
    _memory,
    _temperature,
)
UNKNOWN = "unknown"
_UNKNOWN_ACTION = (
    "compare the runs before and after with `costprobe trend`, and look for changes then"
)
_ACTIONS: Mapping[str, str] = {
    BOARD: "compare the boards with `nvidia-smi -L`, and accept the new level or replace the board",
    "software": "roll back the update, or accept the new level if it was intended",
    "annotation": "roll back what was deployed, or accept the new level if it was intended",
    "batch": "restore the batch, or accept the new level if it was intended",
    "neighbour": "move the other process to another device (`nvidia-smi` lists it)",
    "memory errors": "drain the device and check it with `nvidia-smi -q -d ECC`",
    "cooling": "check fan and airflow (`nvidia-smi -q -d TEMPERATURE`)",
    "thermal throttling": "check fan and airflow (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`)",
    "power limit": "check the power limit and the power supply (`nvidia-smi -q -d POWER`); restore the limit"
    " with `nvidia-smi -pl WATTS`",
    "clock": "check clock limits and power states (`nvidia-smi -q -d CLOCK`)",
    "memory clock": "check clock limits and power states (`nvidia-smi -q -d CLOCK`)",
    "prompt lengths": "compare the probe's prompts with those before",
    "memory pressure": "free memory of the device (`nvidia-smi` lists its processes)",
    "replicas": "hold fewer devices, or accept the new level if the capacity is intended",
    "temperature": "check fan and airflow (`nvidia-smi -q -d TEMPERATURE`)",
}


def causes(compared: Comparison) -> tuple[Cause, ...]:
    """Return the signals that changed between two periods.

    Without their shares, what is deployed precedes what the device does, and a cause its effect.
    """
    return tuple(cause for rule in RULES if (cause := rule(compared)) is not None)


def action_of(name: str) -> str:
    """Return what to do about the cause of a deterioration.

    Args:
        name: Name of a cause, or "unknown".
    """
    return _ACTIONS.get(name.partition(":")[0], _UNKNOWN_ACTION)


def _share_text(name: str, moved: tuple[float, float]) -> str:
    """Describe a share of the time; with the one before if that is not about 0."""
    before, after = moved
    was = f"{before:.0f} → " if before >= THROTTLED_PCT else ""
    return f"{name} {was}{after:.0f} % of the time"
