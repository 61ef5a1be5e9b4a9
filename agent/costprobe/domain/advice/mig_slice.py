"""Advise a smaller MIG instance if the peaks of memory and utilization fit it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from costprobe.core.units import MONTH_H
from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.hint import Hint, NoHint, in_cents
from costprobe.domain.advice.history import History, days
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.rate import Rate

KIND = "mig_slice"
LEAST_DAYS = 7.0
# Headroom above the peaks.
MEMORY_SPARE = 1.2
UTIL_PCT_MAX = 80.0
GIB = 1 << 30

# Compute slices of an instance, and the share of the board's memory that it has (NVIDIA's MIG
# user guide, "Supported MIG Profiles").
_SEVENTHS: Mapping[int, Fraction] = {
    1: Fraction(1, 8),
    2: Fraction(2, 8),
    3: Fraction(4, 8),
    4: Fraction(4, 8),
    7: Fraction(1),
}
_QUARTERS: Mapping[int, Fraction] = {1: Fraction(1, 4), 2: Fraction(2, 4), 4: Fraction(1)}
_BOARDS: tuple[tuple[re.Pattern[str], Mapping[int, Fraction]], ...] = (
    (re.compile(r"\bA30\b"), _QUARTERS),
    (re.compile(r"\b([AH][18]00|H20|G?H200|G?B[23]00)(?!\d)"), _SEVENTHS),
)
_PROFILE = re.compile(r"\bMIG (?:(\d+)c\.)?(\d+)g\.")


def profiles_of(model: str) -> Mapping[int, Fraction] | None:
    """Return a board's instance sizes: compute slices to share of memory; None without MIG."""
    return next((sizes for pattern, sizes in _BOARDS if pattern.search(model)), None)


def slices_of(model: str) -> int | None:
    """Return the compute slices of a MIG device from its name; None if unknown."""
    match = _PROFILE.search(model)
    return int(match[1] or match[2]) if match else None


def board_slices(model: str) -> int:
    """Return the compute slices of a MIG device's board from its name; 0 if unknown."""
    return max(profiles_of(model) or (0,))


def advise(history: History) -> Iterator[Hint | NoHint]:
    """Examine boards that support MIG, and MIG devices."""
    divided = {device.device.parent for device in history.devices.values()}
    for name, device in history.devices.items():
        sizes = profiles_of(device.device.model)
        if sizes is None or name in divided:
            continue
        held = max(sizes)
        if device.device.is_slice:
            held = slices_of(device.device.model) or device.device.slices
        if held in sizes and held > 1:
            yield _of_device(device, sizes, held, _slack(history, name))


def _slack(history: History, device: str) -> float:
    """Return the slowdown that the latency bounds of the device's probes permit."""
    return min(
        (
            probe.bound_ms / probe.present.latency_p50_ms
            for probe in history.probes
            if probe.device == device and probe.bound_ms and probe.present.latency_p50_ms
        ),
        default=math.inf,
    )


def _of_device(
    device: DeviceHistory, sizes: Mapping[int, Fraction], current: int, slack: float
) -> Hint | NoHint:
    had = f"{days(device.known_days)} of telemetry, {days(device.busy_days)} of utilization"
    util_pct, used, total = (
        device.util_pct_peak,
        device.mem_used_bytes_max,
        device.mem_total_bytes,
    )
    missing = _missing(device)
    if missing or device.terms is None or util_pct is None or used is None or not total:
        reason, needed = missing or ("too little data", "telemetry")
        return NoHint(KIND, device.name, reason, had, needed)
    board_bytes = total / float(sizes[current])
    fits = [
        slices
        for slices, share in sorted(sizes.items())
        if slices < current
        and used * MEMORY_SPARE <= board_bytes * float(share)
        # The same load takes longer on fewer slices, at most in proportion.
        and util_pct * current / slices <= UTIL_PCT_MAX
        and current / slices <= slack
    ]
    if not fits:
        reason = f"its peaks, {used / GIB:.1f} GiB and {util_pct} %, do not fit a smaller instance"
        if slack < max(sizes):
            reason += " within the latency bound"
        return NoHint(KIND, device.name, reason, had)
    smallest = fits[0]
    room_gib = board_bytes * float(sizes[smallest]) / GIB
    memory = f"at most {used / GIB:.1f} GiB in use where the instance has about {room_gib:.1f}"
    util = (
        f"utilization was at most {util_pct} % in 99 % of the time, without probes: on fewer slices"
        f" at most {util_pct * current / smallest:.0f} %"
    )
    return _hint(device, device.terms.rate, (current, smallest), (memory, util), had)


def _missing(device: DeviceHistory) -> tuple[str, str] | None:
    """Return why the data is insufficient, and what is needed; None if it suffices."""
    if device.terms is None:
        return "it has no price", "a price"
    if device.mem_used_bytes_max is None or not device.mem_total_bytes:
        return "its memory use is unknown", "memory in use"
    if device.util_pct_peak is None and device.device.is_slice:
        reason = "its utilization is unknown: the driver reports none for MIG devices"
        return reason, f"{days(LEAST_DAYS)} of utilization"
    if device.busy_days < LEAST_DAYS:
        return "too little data for the peaks", f"{days(LEAST_DAYS)} of utilization"
    return None


def _hint(
    device: DeviceHistory,
    rate: Rate,
    slices: tuple[int, int],
    evidence: tuple[str, ...],
    had: str,
) -> Hint | NoHint:
    held, wanted = slices
    freed = Decimal(held - wanted) / held
    saving = in_cents(rate.per_hour * freed * MONTH_H * exact(device.up_share))
    if saving <= 0:
        return NoHint(KIND, device.name, "it costs nothing", had)
    return Hint(
        kind=KIND,
        subject=device.name,
        devices=(device.name,),
        action=f"a MIG instance of {wanted} slice{'s' if wanted > 1 else ''} instead of {held}",
        saving_per_month=saving,
        currency=rate.currency,
        evidence=evidence,
        had=had,
        assumes=(
            "the freed slices are used",
            f"an inference may take up to {held / wanted:.1f} times as long: probe it there first",
        ),
    )
