"""A smaller part of a board, where peaks of memory and utilization would fit into it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from agent.advising.device_history import DeviceHistory
from agent.advising.hint import Hint, Unsaid, in_cents
from agent.advising.history import History, days
from agent.costing.money import exact
from agent.pricing.plans import Rate
from agent.units import MONTH_H

KIND = "mig_slice"
LEAST_DAYS = 7.0
# What must stay free beyond the peaks.
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
_PROFILE = re.compile(r"\bMIG (\d+)g\.")


def profiles_of(model: str) -> Mapping[int, Fraction] | None:
    """The share of memory by compute slices of a board's instances; None where it has none."""
    return next((sizes for pattern, sizes in _BOARDS if pattern.search(model)), None)


def slices_of(model: str) -> int | None:
    """Compute slices of a MIG device, from its name; None where that does not tell."""
    found = _PROFILE.search(model)
    return int(found[1]) if found else None


def board_slices(model: str) -> int:
    """Compute slices of the board of a MIG device, from its name; 0 where that does not tell."""
    return max(profiles_of(model) or (0,))


def advise(history: History) -> Iterator[Hint | Unsaid]:
    """Looks at boards that can be divided, and at MIG devices."""
    divided = {device.device.parent for device in history.devices.values()}
    for name, device in history.devices.items():
        sizes = profiles_of(device.device.model)
        if sizes is None or name in divided:
            continue
        held = max(sizes)
        if device.device.kind == "mig":
            held = slices_of(device.device.model) or device.device.slices
        if held in sizes and held > 1:
            yield _of_device(device, sizes, held, _slack(history, name))


def _slack(history: History, device: str) -> float:
    """How many times as long inferences may take within the bounds of the device's probes."""
    return min(
        (
            probe.bound_ms / probe.present.latency_p50_ms
            for probe in history.probes
            if probe.device == device and probe.bound_ms and probe.present.latency_p50_ms
        ),
        default=math.inf,
    )


def _of_device(
    device: DeviceHistory, sizes: Mapping[int, Fraction], held: int, slack: float
) -> Hint | Unsaid:
    had = f"{days(device.known_days)} of telemetry, {days(device.busy_days)} of utilization"
    util_pct, used, total = (
        device.util_pct_peak,
        device.mem_used_bytes_max,
        device.mem_total_bytes,
    )
    missing = _missing(device)
    if missing or device.terms is None or util_pct is None or used is None or not total:
        reason, needed = missing or ("too little is known", "telemetry")
        return Unsaid(KIND, device.name, reason, had, needed)
    board_bytes = total / float(sizes[held])
    fits = [
        slices
        for slices, share in sorted(sizes.items())
        if slices < held
        and used * MEMORY_SPARE <= board_bytes * float(share)
        # The same work takes longer on fewer slices, at most in proportion.
        and util_pct * held / slices <= UTIL_PCT_MAX
        and held / slices <= slack
    ]
    if not fits:
        reason = f"its peaks, {used / GIB:.1f} GiB and {util_pct} %, fit into no smaller part"
        if slack < max(sizes):
            reason += " that is sure to keep the latency bound"
        return Unsaid(KIND, device.name, reason, had)
    wanted = fits[0]
    room_gib = board_bytes * float(sizes[wanted]) / GIB
    memory = f"at most {used / GIB:.1f} GiB in use where the instance has about {room_gib:.1f}"
    util = (
        f"utilization was at most {util_pct} % in 99 % of the time, probes aside: on fewer slices"
        f" at most {util_pct * held / wanted:.0f} %"
    )
    return _hint(device, device.terms.rate, (held, wanted), (memory, util), had)


def _missing(device: DeviceHistory) -> tuple[str, str] | None:
    """Why there is too little data, and what is needed; None where there is enough."""
    if device.terms is None:
        return "nothing prices it", "a price"
    if device.mem_used_bytes_max is None or not device.mem_total_bytes:
        return "its memory is not known", "memory in use"
    if device.util_pct_peak is None and device.device.kind == "mig":
        reason = "its utilization is not known: the driver tells none of MIG devices"
        return reason, f"{days(LEAST_DAYS)} of utilization"
    if device.busy_days < LEAST_DAYS:
        return "too little to know the peaks", f"{days(LEAST_DAYS)} of utilization"
    return None


def _hint(
    device: DeviceHistory,
    rate: Rate,
    slices: tuple[int, int],
    evidence: tuple[str, ...],
    had: str,
) -> Hint | Unsaid:
    held, wanted = slices
    freed = Decimal(held - wanted) / held
    saving = in_cents(rate.per_hour * freed * MONTH_H * exact(device.up_share))
    if saving <= 0:
        return Unsaid(KIND, device.name, "it costs nothing", had)
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
            "the slices that it frees are put to use",
            f"an inference may take up to {held / wanted:.1f} times as long: probe it there first",
        ),
    )
