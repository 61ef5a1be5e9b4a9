"""Every supply of every workload (devices, schedule and price), by what a month on it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from costprobe.core.money import exact
from costprobe.core.periods import HOURS_A_WEEK
from costprobe.core.units import HOUR_S, MONTH_H, percent, significant
from costprobe.savings.evidence import History
from costprobe.savings.load import LoadPosition, cents, load_position
from costprobe.savings.placements import MeasuredWorkload, measured_workloads
from costprobe.savings.supply import (
    HEADROOM,
    LEAST_WEEKS,
    SCALED,
    Choice,
    DevicePrice,
    HeldOut,
    MonthlyCost,
    Placement,
    Scaling,
    break_even_share,
    failure,
    idle_blocks,
    idle_share,
    interval,
    is_known_by_minute,
    least_devices,
    monthly_cost,
    replayed,
    scaled_counts,
    tested,
)
from costprobe.savings.workload import WEEKS_WITH_HOLDOUT, HourLoad, Unit, WorkloadHistory

# A week contains every hour of the weekly pattern.
LEAST_HOURS = HOURS_A_WEEK
# A smaller saving is within the noise of the measurements.
LEAST_SHARE = Decimal("0.01")
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Supply:
    """A way to run a workload.

    Attributes:
        choice: Devices, their number and their price.
        action: The choice as text.
        cost_per_month: Currency for 730 h, electricity included if it is billed separately.
        electricity_per_month: That electricity; None if its power is unknown.
        energy_kwh_per_month: Electricity used; None if the power is unknown.
        carbon_kg_per_month: Its emissions; None if unknown.
        saving_per_month: Currency that it costs less than now.
        saving_low, saving_high: 95 % interval of it, from its spread over days; None if unknown.
        capacity_share: Capacity divided by the load of the highest minute; None without load.
        held_out: Its result on weeks that it was not decided from; None without any.
        break_even_share: Share of the hours from which a price that is always paid is cheaper than
            the present one by the hour; None for other prices.
        break_even_low_share, break_even_high_share: Its range if the present price is assumed, from
            the dearest to the cheapest cloud; None for a price that is known.
        months_to_break_even: Until the purchase price of owned devices is saved; None if never, or
            if nothing is bought.
        assumptions: What the cost rests on and was not measured.
    """

    choice: Choice
    action: str
    cost_per_month: Decimal
    electricity_per_month: Decimal | None
    energy_kwh_per_month: float | None
    carbon_kg_per_month: float | None
    saving_per_month: Decimal
    saving_low: float | None
    saving_high: float | None
    capacity_share: float | None
    held_out: HeldOut | None
    break_even_share: Decimal | None
    break_even_low_share: Decimal | None
    break_even_high_share: Decimal | None
    months_to_break_even: float | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a workload costs now, and on other supplies.

    Attributes:
        workload: The workload.
        bound_ms: Configured bound of the median latency; None if there is none.
        currency: ISO 4217 code; empty without a price.
        now: What it runs on; None if its cost is unknown.
        supplies: Cheaper ones, the largest saving first.
        rejected: Cheaper ones that failed on a week from which they were not decided, or were not tested
            on any, each with the reason.
        needs: What is missing for further supplies.
        devices_min: Devices of now that must not be released so that at most 1 % of the requests
            wait for a start; None if unknown.
        load: Where the load lies on the load curve of its service; None without a curve.
    """

    workload: WorkloadHistory
    bound_ms: float | None
    currency: str
    now: Supply | None
    supplies: Sequence[Supply]
    rejected: Sequence[tuple[str, str]]
    needs: Sequence[str]
    devices_min: int | None = None
    load: LoadPosition | None = None

    @property
    def best(self) -> Supply | None:
        """The supply with the largest saving; None if none is cheaper."""
        return next(iter(self.supplies), None)


def savings(history: History) -> list[Answer]:
    """Return the answer for each workload, the largest saving first."""
    answers = [
        replace(_answer(history, measured), load=load_position(history, measured.workload))
        for measured in measured_workloads(history)
    ]
    return sorted(
        answers,
        key=lambda answer: -answer.supplies[0].saving_per_month if answer.supplies else Decimal(0),
    )


def _answer(history: History, measured: MeasuredWorkload) -> Answer:
    workload, placement = measured.workload, measured.placements[0]
    currency, missing = _missing(history, measured)
    parts = [f"{name} is {part}" for name in workload.services if (part := history.part_of(name))]
    # What the devices of a part must do depends on other hosts.
    needs = parts or [*missing, *measured.missing]
    if parts or missing:
        return Answer(workload, measured.bound_ms, currency, None, [], [], needs)
    fit, held_out = workload.split()
    needs += _start_needed(workload, placement, held_out)
    needs += _weeks_needed(workload)
    price = history.prices[placement.device][0]
    if price.rate.plan == "assumed":
        needs.append("the price of its devices in [[price]]: it is only assumed")
    as_now = Choice(placement, (placement.held,) * HOURS_A_WEEK, price)
    now = monthly_cost(workload, as_now)
    if now.total is None:
        needs.append(_watts_needed("its devices"))
        return Answer(workload, measured.bound_ms, currency, None, [], [], needs)
    supplies, rejected = [], []
    least = max(_CENT, now.total * LEAST_SHARE)
    for choice in _choices_of(workload, measured.placements, history.prices, fit, held_out):
        cost = now if choice == as_now else monthly_cost(workload, choice)
        if choice.price.rate.currency != currency or cost.total is None:
            if cost.total is None:
                needs.append(_watts_needed(choice.placement.words))
            continue
        supply = _supply(history, workload, choice, (now, cost), held_out)
        if supply.saving_per_month < least:
            continue
        reason = failure(supply.held_out, held_out, workload, as_now, choice)
        if reason:
            rejected.append((supply.action, reason))
        else:
            supplies.append(supply)
    supplies.sort(key=lambda supply: (-supply.saving_per_month, supply.action))
    return Answer(
        workload=workload,
        bound_ms=measured.bound_ms,
        currency=currency,
        now=_supply(history, workload, as_now, (now, now), {}),
        supplies=supplies,
        rejected=rejected,
        needs=list(dict.fromkeys(needs)),
        devices_min=_devices_min(placement, fit),
    )


def _missing(history: History, measured: MeasuredWorkload) -> tuple[str, list[str]]:
    """Return the currency, empty without a price, and what an answer requires and does not have."""
    workload = measured.workload
    prices = [history.prices.get(name) for name in workload.devices]
    known = [found[0] for found in prices if found]
    if len(known) < len(prices):
        return "", ["a price of its devices in [[price]]"]
    rates = {(price.rate.currency, price.rate.per_hour, price.rate.plan) for price in known}
    if len(rates) > 1:
        return "", ["one price of its devices: they are priced differently"]
    currency = known[0].rate.currency
    if len(workload.hours) < LEAST_HOURS:
        hours = f"known: {len(workload.hours)} of {LEAST_HOURS} hours"
        return currency, [f"a week of utilization; {hours}"]
    return currency, []


def _weeks_needed(workload: WorkloadHistory) -> list[str]:
    """Return the weeks without which supplies are not tested, or hours off not found."""
    if workload.is_stated or workload.weeks > LEAST_WEEKS:
        return []
    if workload.weeks < WEEKS_WITH_HOLDOUT:
        return ["two weeks of utilization: each cheaper supply is tested on the last one"]
    return ["three weeks of utilization: hours to switch off are tested on the last one"]


def _start_needed(
    workload: WorkloadHistory, placement: Placement, held_out: Mapping[int, HourLoad]
) -> list[str]:
    """Return what would allow scaling to zero, if there are gaps between requests."""
    is_known = is_known_by_minute(workload.hours) and bool(held_out)
    if placement.cold_start is not None or not is_known:
        return []
    if idle_share(workload.hours) < LEAST_SHARE:
        return []
    of = f" of {' and '.join(workload.services)}" if workload.services else ""
    ways = [f"set cold_start{of} in [[service]]"]
    if workload.probe:
        ways.append(
            f"run: costprobe probe {workload.probe} --device {workload.devices[0]} --cold-start"
        )
    return [f"the time of a cold start, to compare scale to zero; {', or '.join(ways)}"]


def _watts_needed(devices: str) -> str:
    return (
        f"the power of {devices}, because electricity is billed separately: run a probe of"
        " the model on it"
    )


def _devices_min(placement: Placement, fit: Mapping[int, HourLoad]) -> int | None:
    start = placement.cold_start
    if start is None or not is_known_by_minute(fit):
        return None
    return least_devices(fit, placement.needed, placement.held, start)


def _choices_of(
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
            scaled = scaled_counts(fit, workload, placement)
            if min(scaled) < count:
                schedules.append((SCALED, scaled))
        if off:
            words = f"off {', '.join(block.words for block in blocks)}"
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
                words = f"{title}, released after {start.seconds:.3g} s"
                counts = (count,) * HOURS_A_WEEK
                yield Choice(placement, counts, price, schedule=words, scaling=scaling)


def _may_mix(base: DevicePrice, price: DevicePrice) -> bool:
    same = base.rate.currency == price.rate.currency
    return base.is_always_paid and same and base.electricity_per_j == price.electricity_per_j


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


def _supply(
    history: History,
    workload: WorkloadHistory,
    choice: Choice,
    costs: tuple[MonthlyCost, MonthlyCost],
    held_out: Mapping[int, HourLoad],
) -> Supply:
    """Return a supply from the cost of the present one and its own, both known."""
    before, cost = costs
    total = cost.hardware + (cost.electricity or 0)
    total_before = before.hardware + (before.electricity or 0)
    low, high = interval(before, cost) or (None, None)
    grams = history.grams_per_kwh.get(choice.placement.device)
    is_known = grams is not None and cost.energy_kwh is not None
    peak, now = workload.peak, history.prices[workload.devices[0]][0]
    return Supply(
        choice=choice,
        action=_action_of(choice),
        cost_per_month=cents(total),
        electricity_per_month=None if cost.electricity is None else cents(cost.electricity),
        energy_kwh_per_month=cost.energy_kwh,
        carbon_kg_per_month=(cost.energy_kwh or 0) * (grams or 0) / 1000 if is_known else None,
        saving_per_month=cents(total_before - total),
        saving_low=low,
        saving_high=high,
        capacity_share=choice.count * choice.placement.speed / peak if peak else None,
        held_out=tested(held_out, workload, choice) if held_out else None,
        break_even_share=_break_even_share(now, choice, now.rate.per_hour),
        break_even_low_share=_break_even_share(now, choice, now.rate.high_per_hour),
        break_even_high_share=_break_even_share(now, choice, now.rate.low_per_hour),
        months_to_break_even=_break_even(choice, total_before, cost),
        assumptions=tuple(_assumptions_of(choice, now, workload)),
    )


def _action_of(choice: Choice) -> str:
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


def _break_even_share(now: DevicePrice, choice: Choice, per_hour: Decimal | None) -> Decimal | None:
    """Return the break-even utilization at a price of now; None without one.

    Args:
        now: The price in force.
        choice: A supply.
        per_hour: Currency per device-hour of now.
    """
    price = choice.price
    if per_hour is None or now.is_always_paid or not price.is_always_paid:
        return None
    watts = choice.placement.watts
    drawn_j = exact(0.0 if watts is None else watts.busy_w * HOUR_S)
    on_demand = per_hour + drawn_j * exact(now.electricity_per_j)
    return break_even_share(
        price.rate.per_hour, on_demand, drawn_j * exact(price.electricity_per_j)
    )


def _break_even(choice: Choice, before: Decimal, cost: MonthlyCost) -> float | None:
    """Return cash / (cost now - running cost), because depreciation is not paid a second time."""
    depreciation = sum(
        (
            count * (MONTH_H * price.rate.per_hour - price.running_per_month)
            for count, price in choice.always_paid
            if price.cash
        ),
        Decimal(0),
    )
    saved = before - (cost.hardware + (cost.electricity or 0) - depreciation)
    return float(choice.cash / saved) if choice.cash and saved > 0 else None


def _assumptions_of(
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
    if choice.schedule.startswith(SCALED):
        yield "no hour needs more devices than in the weeks of this data, as on a holiday"
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
