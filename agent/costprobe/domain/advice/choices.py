"""The combinations of devices, schedule and price that a workload can run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from costprobe.core.units import percent, significant
from costprobe.core.weekly_hours import HOURS_A_WEEK
from costprobe.domain.advice.scaling import (
    Scaling,
    idle_share,
    is_known_by_minute,
    least_devices,
    replayed,
)
from costprobe.domain.advice.supply import HEADROOM, Choice, DevicePrice, Placement
from costprobe.domain.advice.switched_off import idle_blocks, words_of
from costprobe.domain.advice.workload import HourLoad, Unit, WorkloadHistory, hour_of_week


def choices_of(
    workload: WorkloadHistory,
    placements: Sequence[Placement],
    prices: Mapping[str, Sequence[DevicePrice]],
    fit: Mapping[int, HourLoad],
    held_out: Mapping[int, HourLoad],
) -> Iterator[Choice]:
    """Yield every combination of placement, schedule and price."""
    peak = max(hour.peak for hour in fit.values())
    blocks = idle_blocks(fit, held_out, workload.zone)
    off = {slot for block in blocks for slot in block.hours_of_week}
    for placement in placements:
        count = placement.needed(peak)
        schedules = [("", (count,) * HOURS_A_WEEK)]
        if count > 1 and not placement.is_indivisible:
            scaled = _scaled_counts(fit, workload, placement)
            if min(scaled) < count:
                schedules.append(("scaled by the hour of the week", scaled))
        if off:
            words = f"off {words_of(blocks)}"
            for title, counts in list(schedules):
                kept = tuple(0 if slot in off else n for slot, n in enumerate(counts))
                schedules.append((f"{title}, {words}" if title else words, kept))
        priced = prices.get(placement.device, ())
        yield from _scaled_choices(workload, placement, count, priced, fit, held_out)
        for title, counts in schedules:
            for price in priced:
                if price.is_always_paid and title and not price.electricity_per_j:
                    continue
                choice = Choice(placement, counts, price, schedule=title)
                yield choice
                if price.is_always_paid:
                    continue
                mixed = (_with_base(choice, base) for base in priced if _may_mix(base, price))
                yield from (found for found in mixed if found is not None)


def _scaled_choices(
    workload: WorkloadHistory,
    placement: Placement,
    count: int,
    prices: Sequence[DevicePrice],
    fit: Mapping[int, HourLoad],
    held_out: Mapping[int, HourLoad],
) -> Iterator[Choice]:
    """Yield devices that are started and released: down to none, and to as many as must stay."""
    start = placement.cold_start
    if start is None or not held_out or not is_known_by_minute(workload.hours):
        return
    fewest = least_devices(fit, placement.needed, count, start)
    lowest = 0 if idle_share(fit) else 1
    leasts = {lowest, max(lowest, fewest)}
    for least in sorted(leasts - {count}):
        scaling = replayed(workload.hours, placement.needed, least, start)
        for price in prices:
            if not price.is_always_paid:
                title = f"scale to {least}" if least else "scale to zero"
                words = f"{title}, released after {scaling.timeout_s:.3g} s"
                counts = (count,) * HOURS_A_WEEK
                yield Choice(placement, counts, price, schedule=words, scaling=scaling)


def _may_mix(base: DevicePrice, price: DevicePrice) -> bool:
    same = base.rate.currency == price.rate.currency
    return base.is_always_paid and same and base.electricity_per_j == price.electricity_per_j


def _scaled_counts(
    hours: Mapping[int, HourLoad], workload: WorkloadHistory, placement: Placement
) -> tuple[int, ...]:
    """Return the devices that each hour of the week needed at its highest minute, at least one."""
    everywhere = placement.needed(max(hour.peak for hour in hours.values()))
    peaks: dict[int, float] = {}
    for number, hour in hours.items():
        slot = hour_of_week(number, workload.zone)
        peaks[slot] = max(peaks.get(slot, 0.0), hour.peak)
    return tuple(
        placement.needed(peaks[slot]) if slot in peaks else everywhere
        for slot in range(HOURS_A_WEEK)
    )


def _with_base(choice: Choice, base_price: DevicePrice) -> Choice | None:
    """Return a choice of which a part is paid in every hour; None if none of it is best, or all.

    The base is the number of devices at which k x fixed price + the remaining device-hours x hourly
    price is lowest over the hours of the week.
    """

    def cost(base: int) -> Decimal:
        uncovered = sum(max(0, count - base) for count in choice.counts)
        hourly = choice.price.rate.per_hour * uncovered / HOURS_A_WEEK
        return base * base_price.rate.per_hour + hourly

    base = min(range(choice.count + 1), key=cost)
    if base in (0, choice.count):
        return None
    return Choice(choice.placement, choice.counts, choice.price, base, base_price, choice.schedule)


def action_of(choice: Choice) -> str:
    """Return devices, schedule and price as text."""
    placement, count = choice.placement, choice.count
    if placement.held and count < placement.held:
        words = f"{count} of {placement.words}"
    else:
        words = placement.words if placement.held or count == 1 else f"{count} x {placement.words}"
    parts = [words, choice.schedule]
    if choice.base_price is not None:
        others = f", the rest {choice.price.words}" if choice.base < choice.count else ""
        parts.append(f"{choice.base} {choice.base_price.words}{others}")
    else:
        parts.append(choice.price.words)
    return "; ".join(part for part in parts if part)


def assumptions_of(
    choice: Choice, present: DevicePrice, workload: WorkloadHistory
) -> Iterator[str]:
    """Yield what the cost of a choice rests on and was not measured.

    Args:
        choice: The choice.
        present: The price in force of the devices of now.
        workload: The workload.
    """
    placement = choice.placement
    if present.is_always_paid and not (choice.price is present and placement.held == choice.count):
        end = "are sold at their book value" if present.rate.plan == "owned" else "are given back"
        yield f"the devices of now {end}: until then they are paid too"
    yield from _speed_assumptions(placement, workload.unit)
    if not placement.held:
        yield f"{percent(HEADROOM)} of the capacity is free at the highest minute"
    elif choice.count < placement.held:
        yield (
            f"{percent(HEADROOM)} of the capacity is free at the highest minute, and the load of several"
            " devices can share one"
        )
    if choice.schedule.startswith("scaled"):
        yield "devices start before the hour in which they are needed"
    if choice.scaling is not None:
        yield from _scaling_assumptions(choice.scaling, workload.row_s)
    if 0 in choice.counts:
        yield "no service must be available in the hours off"
    for price in (choice.price, choice.base_price):
        if price is not None:
            yield from _price_assumptions(price)


def _speed_assumptions(placement: Placement, unit: Unit | None) -> Iterator[str]:
    if unit is not None:
        yield (
            f"a device can do {significant(unit.per_device_s, 3)} {unit.words} a second"
            f" ({unit.measured_by}), and nothing else runs on it"
        )
    if placement.evidence:
        yield f"the devices run only this model, measured by {placement.evidence}"
        if not placement.held:
            yield "the quality is that of now: model, weights and input shapes are the same"


def _scaling_assumptions(scaling: Scaling, row_s: float) -> Iterator[str]:
    start = scaling.cold_start
    yield f"a start takes {start.seconds:.3g} s ({start.words}), and a device is available at once"
    yield f"the price is paid by the second; gaps shorter than a row ({row_s:g} s) are not seen"
    yield f"requests may wait {start.seconds:.3g} s, and arrive evenly in each row"


def _price_assumptions(price: DevicePrice) -> Iterator[str]:
    if price.is_always_paid and price.rate.plan == "reserved":
        yield "the devices are needed for the whole term"
    if price.rate.plan == "spot" and price.interruptions_per_month is None:
        yield "interruptions cost nothing: set interruptions_per_month and recovery in the plan"
    if price.interruptions_per_month:
        yield (
            f"{price.interruptions_per_month:g} interruptions a month, each losing"
            f" {price.recovery_s:g} s of work"
        )
