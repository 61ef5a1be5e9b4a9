"""Correlated signals of a drift: clocks, throttling, temperature, neighbours, software.

Each rule compares the conditions before and after a change. Rules that detect a cause precede rules
that detect its effect: a hot device throttles and its clock falls, and the heat is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from costprobe.core.records import BOARD
from costprobe.domain.costing.comparison.change import CostChange

# Smallest differences that count; smaller ones are noise or rounding.
THROTTLED_PCT = 1.0
TEMPERATURE_C = 5.0
HOTTER_C = 8.0
CLOCK_SHARE = 0.02
CONTENDED_SHARE = 0.2
MEMORY_SHARE = 0.1
NEARLY_FULL_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a device and its probe over a period; None if unknown.

    Attributes:
        software: Versions and hashes of what was measured, and under BOARD the identity of the
            device.
        batch: Items per forward pass.
        sm_clock_mhz: Mean clock of the streaming multiprocessors.
        throttled_power_pct: Share of the time throttled by the power limit, in percent.
        throttled_thermal_pct: Share of the time throttled by temperature, in percent.
        temp_c: Highest temperature.
        contended_share: Share of the samples during which another process used the device.
        ecc_uncorrected: Uncorrected memory errors since the driver was loaded.
        mem_used_share: Share of the device's memory in use.
    """

    software: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    batch: int | None = None
    sm_clock_mhz: float | None = None
    throttled_power_pct: float | None = None
    throttled_thermal_pct: float | None = None
    temp_c: float | None = None
    contended_share: float | None = None
    ecc_uncorrected: int | None = None
    mem_used_share: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A signal correlated with a change.

    Attributes:
        name: Short stable name, for a tag or a rule: "cooling", "software: driver".
        text: Observation, for people.
    """

    name: str
    text: str


def _board(before: Conditions, after: Conditions) -> Cause | None:
    old, new = before.software.get(BOARD), after.software.get(BOARD)
    return None if old == new else Cause(BOARD, f"another board: {old or 'none'} → {new or 'none'}")


def _software(before: Conditions, after: Conditions) -> Cause | None:
    keys = sorted(
        key
        for key in {*before.software, *after.software} - {BOARD}
        if before.software.get(key) != after.software.get(key)
    )
    if not keys or not before.software or not after.software:
        return None
    moves = (
        f"{key} {before.software.get(key, 'none')} → {after.software.get(key, 'none')}"
        for key in keys
    )
    return Cause(f"software: {keys[0]}", ", ".join(moves))


def _batch(before: Conditions, after: Conditions) -> Cause | None:
    if before.batch is None or after.batch is None or before.batch == after.batch:
        return None
    return Cause("batch", f"batch {before.batch} → {after.batch}")


def _contention(before: Conditions, after: Conditions) -> Cause | None:
    rise = _rise(before.contended_share, after.contended_share)
    if rise is None or rise < CONTENDED_SHARE or after.contended_share is None:
        return None
    return Cause(
        "neighbour",
        f"another process used the device in {after.contended_share * 100:.0f} % of the runs",
    )


def _ecc(before: Conditions, after: Conditions) -> Cause | None:
    rise = _rise(before.ecc_uncorrected, after.ecc_uncorrected)
    if rise is None or rise <= 0:
        return None
    return Cause("memory errors", f"{rise:.0f} new uncorrected memory errors")


def _heat(before: Conditions, after: Conditions) -> Cause | None:
    rise_pct = _rise(before.throttled_thermal_pct, after.throttled_thermal_pct)
    if rise_pct is None or rise_pct < THROTTLED_PCT:
        return None
    words = [f"thermal throttling {after.throttled_thermal_pct:.0f} % of the time"]
    rise_c = _rise(before.temp_c, after.temp_c)
    if rise_c is None or rise_c < TEMPERATURE_C:
        return Cause("thermal throttling", words[0])
    words.append(f"temperature {before.temp_c:.0f} → {after.temp_c:.0f} °C")
    return Cause("cooling", ", ".join(words))


def _power_limit(before: Conditions, after: Conditions) -> Cause | None:
    rise_pct = _rise(before.throttled_power_pct, after.throttled_power_pct)
    if rise_pct is None or rise_pct < THROTTLED_PCT:
        return None
    return Cause("power limit", f"power throttling {after.throttled_power_pct:.0f} % of the time")


def _clock(before: Conditions, after: Conditions) -> Cause | None:
    if not before.sm_clock_mhz or after.sm_clock_mhz is None:
        return None
    if abs(after.sm_clock_mhz / before.sm_clock_mhz - 1) < CLOCK_SHARE:
        return None
    return Cause("clock", f"SM clock {before.sm_clock_mhz:.0f} → {after.sm_clock_mhz:.0f} MHz")


def _memory(before: Conditions, after: Conditions) -> Cause | None:
    rise = _rise(before.mem_used_share, after.mem_used_share)
    full = after.mem_used_share
    if rise is None or rise < MEMORY_SHARE or full is None or full < NEARLY_FULL_SHARE:
        return None
    return Cause("memory pressure", f"device memory {full * 100:.0f} % full")


def _temperature(before: Conditions, after: Conditions) -> Cause | None:
    rise_c = _rise(before.temp_c, after.temp_c)
    if rise_c is None or rise_c < HOTTER_C or _heat(before, after) is not None:
        return None
    return Cause("temperature", f"temperature {before.temp_c:.0f} → {after.temp_c:.0f} °C")


RULES: Sequence[Callable[[Conditions, Conditions], Cause | None]] = (
    _board,
    _software,
    _batch,
    _contention,
    _ecc,
    _heat,
    _power_limit,
    _clock,
    _memory,
    _temperature,
)
_PRICES = {"hardware price": "price plan", "electricity price": "electricity tariff"}


def causes(before: Conditions, after: Conditions) -> tuple[Cause, ...]:
    """Return the signals that changed between two periods, the most likely cause first."""
    return tuple(cause for rule in RULES if (cause := rule(before, after)) is not None)


def explain(
    change_pct: float,
    split: CostChange | None,
    before: Conditions,
    after: Conditions,
    since: str,
) -> tuple[str, str]:
    """Return the cause of a change as a name, and as one actionable sentence.

    Args:
        change_pct: Relative change in percent, at a constant price.
        split: Decomposition of a cost change; None for other metrics.
        before: Conditions before the change.
        after: Conditions after the change.
        since: Start of the change, for people: "14:05 UTC".

    Returns:
        The name of the first cause, or "unknown"; and the sentence.
    """
    head = f"{change_pct:+.1f} % since {since}"
    candidates = causes(before, after)
    if split is not None:
        factor, share = split.largest
        head = f"{split.change_pct:+.1f} % since {since}: {share * 100:.0f} % of it is {factor}"
        if factor in _PRICES and not candidates:
            return _PRICES[factor], head
    if not candidates:
        return "unknown", f"{head}; no other monitored signal changed"
    return candidates[0].name, f"{head}; {', '.join(cause.text for cause in candidates)}"


def _rise(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
