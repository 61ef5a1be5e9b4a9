"""What a workload costs a month on a number of devices at a price, by replaying its hours.

Devices that start when requests arrive and are released when they are idle are replayed by
minute. Hours of the week in which devices can be switched off, and a supply itself, are tested on
held-out weeks, which were not used to find them.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import tzinfo
from decimal import Decimal

from costprobe.core.hours import MINUTES
from costprobe.core.money import exact
from costprobe.core.periods import HOURS_A_DAY, HOURS_A_WEEK, WEEKDAYS
from costprobe.core.statistics import student_quantile
from costprobe.core.units import HOUR_S, KWH_J, MONTH_H
from costprobe.pricing.plans import Rate
from costprobe.savings.history import ColdStart
from costprobe.savings.workload import HourLoad, Minutes, WorkloadHistory, hour_of_week

# Share of the requests that may wait for a start where the least number of devices is searched.
WAITING_SHARE_MAX = 0.01
_MINUTE_S = 60.0

# Free capacity at the highest minute: load grows, and latency rises before a device is saturated.
HEADROOM = 0.2
# Upper end of two-sided 95 %.
_UPPER = 0.975
_ROUNDING = 1e-9

# Share of the held-out hours in which a supply may lack capacity for a minute.
SHORT_SHARE_MAX = 0.01

SCALED = "scaled by the hour of the week"

# Each hour of the week must be observed at least twice.
LEAST_WEEKS = 2
# Restarting takes minutes: shorter blocks are not worth it.
LEAST_BLOCK_H = 2
# A schedule that people can follow has few blocks.
BLOCKS_MAX = 3
# Probability of advice on load without a weekly pattern.
FALSE_ADVICE_MAX = 0.05


@dataclass(slots=True)
class ScaledHour:
    """An hour with devices that are started and released.

    Attributes:
        device_h: Device-hours, starts included.
        requests: Answered requests.
        starts: Starts of a device.
        waiting: Requests that wait for a start.
        wait_s: Sum of their waits.
    """

    device_h: float = 0.0
    requests: float = 0.0
    starts: int = 0
    waiting: float = 0.0
    wait_s: float = 0.0

    @property
    def waiting_share(self) -> float:
        """Share of the requests that wait for a start; 1 if there are starts and no known request."""
        if not self.requests:
            return float(self.starts > 0)
        return min(1.0, self.waiting / self.requests)

    @property
    def wait_mean_s(self) -> float | None:
        """Mean wait of all requests; None without a known request."""
        return self.wait_s / self.requests if self.requests else None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The replay of a workload on devices that are started and released.

    Attributes:
        least: Devices that are never released.
        cold_start: Start of a device; after as long without a request it is released.
        hours: By hour number since 1970.
    """

    least: int
    cold_start: ColdStart
    hours: Mapping[int, ScaledHour]

    @property
    def per_month(self) -> ScaledHour:
        """Its sums for a month of 730 h."""
        months = len(self.hours) / MONTH_H
        month = ScaledHour(*(one / months for one in astuple(self.over(self.hours))))
        return replace(month, starts=round(month.starts))

    def over(self, numbers: Iterable[int]) -> ScaledHour:
        """Return the sums over hours."""
        hours = (astuple(self.hours[number]) for number in numbers)
        return ScaledHour(*map(sum, zip(*hours, strict=True)))


@dataclass(frozen=True, slots=True)
class Watts:
    """Power of a device.

    Attributes:
        idle_w: Without work.
        busy_w: While it computes.
    """

    idle_w: float
    busy_w: float


@dataclass(frozen=True, slots=True)
class Placement:
    """A kind of device on which the workload can run, as measured.

    Attributes:
        device: Name of a device of this kind; its price applies.
        words: The kind as text, such as "gpu0", "cpu, batch 8".
        speed: Throughput relative to a device that it runs on now.
        held: How many the workload runs on now; 0 for another kind.
        is_indivisible: Whether these are rented together, so that none can be released alone.
        least: How many the memory in use needs.
        latency_p50_ms: Median latency of the model; None if unknown.
        watts: None if unknown.
        evidence: What was measured.
        cold_start: Start of the model on it; None if unknown.
    """

    device: str
    words: str
    speed: float = 1.0
    held: int = 0
    is_indivisible: bool = False
    least: int = 1
    latency_p50_ms: float | None = None
    watts: Watts | None = None
    evidence: str = ""
    cold_start: ColdStart | None = None

    def needed(self, peak: float) -> int:
        """Return how many devices carry a peak load with headroom, at most those that carry it now."""
        count = max(self.least, math.ceil(peak / self.speed / (1 - HEADROOM) - _ROUNDING))
        if self.is_indivisible:
            return self.held
        return min(count, self.held) if self.held else count


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """A price of a kind of device.

    Attributes:
        words: The plan as text.
        rate: Per device-hour.
        electricity_per_j: Currency per joule; 0 if the rate includes electricity.
        is_always_paid: Whether hours are paid for in which the device is off.
        cash: Purchase price of an owned device.
        running_per_month: Its monthly costs beside electricity and depreciation.
        interruptions_per_month: Expected interruptions of a spot device; None if unknown.
        recovery_s: Time until the work continues after an interruption, with the repeated work.
    """

    words: str
    rate: Rate
    electricity_per_j: float = 0.0
    is_always_paid: bool = False
    cash: Decimal = Decimal(0)
    running_per_month: Decimal = Decimal(0)
    interruptions_per_month: float | None = None
    recovery_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A supply of a workload.

    Attributes:
        placement: The kind of device.
        counts: Number of devices in each hour of the week, 0 = Monday 00:00.
        price: DevicePrice of the devices, beside those of the base.
        base: Number of devices that are paid for in every hour at the price of the base.
        base_price: None without a base.
        schedule: The counts as text.
        scaling: Replay of devices that are started and released; None if they are not.
    """

    placement: Placement
    counts: tuple[int, ...]
    price: DevicePrice
    base: int = 0
    base_price: DevicePrice | None = None
    schedule: str = ""
    scaling: Scaling | None = None

    def up(self, numbers: Iterable[int], zone: tzinfo | None) -> dict[int, float]:
        """Return the device-hours that each hour is paid for, by its number since 1970."""
        if self.scaling is not None:
            return {number: self.scaling.hours[number].device_h for number in numbers}
        return {number: self.counts[hour_of_week(number, zone)] for number in numbers}

    @property
    def count(self) -> int:
        """Largest number of devices."""
        return max(self.counts)

    @property
    def always_paid(self) -> list[tuple[int, DevicePrice]]:
        """Numbers of devices that are paid for in every hour, with their prices."""
        paid = [(self.count, self.price)] if self.price.is_always_paid else []
        return paid if self.base_price is None else [*paid, (self.base, self.base_price)]

    @property
    def cash(self) -> Decimal:
        """Purchase price of the devices to buy."""
        return sum((count * price.cash for count, price in self.always_paid), Decimal(0))


@dataclass(frozen=True, slots=True)
class MonthlyCost:
    """Result of a replay, for a month of 730 h.

    Attributes:
        hardware: Currency for devices, exact.
        electricity: Currency for electricity billed separately; None if the power is unknown.
        energy_kwh: None if the power is unknown.
        by_day: Currency by number of the day since 1970, each scaled to a month.
    """

    hardware: Decimal
    electricity: Decimal | None
    energy_kwh: float | None
    by_day: Mapping[int, float]

    @property
    def total(self) -> Decimal | None:
        """Hardware and electricity; None if the latter is unknown."""
        return None if self.electricity is None else self.hardware + self.electricity


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A supply on the held-out weeks, from which it was not decided.

    Attributes:
        hours: Number of these hours.
        hours_short: Hours in which the load of a minute exceeded the capacity.
        refused_per_week: Mean requests in hours in which everything was off.
        refused_per_week_max: Those of the worst week.
        scaled: Sums over these hours of devices that are started and released; None if they are not.
    """

    hours: int
    hours_short: int
    refused_per_week: float
    refused_per_week_max: float
    scaled: ScaledHour | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """The same hours on some days.

    Attributes:
        hour: First hour of the day, 0 to 23.
        length_h: Number of hours.
        days: Days on which it starts, 0 = Monday.
    """

    hour: int
    length_h: int
    days: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """Hours of the week at which it starts."""
        return [day * HOURS_A_DAY + self.hour for day in self.days]

    @property
    def hours_of_week(self) -> set[int]:
        """Hours of the week that it contains."""
        return {
            (start + step) % HOURS_A_WEEK for start in self.starts for step in range(self.length_h)
        }

    @property
    def words(self) -> str:
        """The block as text, such as "mon tue 20:00 to 08:00 1 day later"."""
        if self.length_h == HOURS_A_WEEK:
            return "all week"
        first = " ".join(WEEKDAYS[day] for day in self.days)
        end_day, end_hour = divmod(self.hour + self.length_h, HOURS_A_DAY)
        if end_hour == 0:
            end_day, end_hour = end_day - 1, HOURS_A_DAY
        end = f"{end_hour:02}:00"
        if end_day and len(self.days) == 1:
            end = f"{WEEKDAYS[(self.days[0] + end_day) % len(WEEKDAYS)]} {end}"
        elif end_day:
            end = f"{end} {end_day} day{'s' if end_day > 1 else ''} later"
        return f"{first} {self.hour:02}:00 to {end}"


def monthly_cost(workload: WorkloadHistory, choice: Choice) -> MonthlyCost:
    """Replay a workload's hours on a supply.

    Devices paid by the hour cost their price in the hours in which they are up, and only in the share
    of the time in which the workload's devices existed; others cost it in every hour. A device draws
    its idle power while it is up, and the rest of its busy power while it computes:
    E = 3,600 s x (up x P_idle + load / speed x (P_busy - P_idle)).
    """
    price = choice.price
    billed = exact(workload.billed_hours) / workload.span_hours
    up_by_hour = choice.up(workload.hours, workload.zone)
    rates = {up: _hardware_per_h(up, choice, billed) for up in set(up_by_hour.values())}
    hardware = sum((rates[up] for up in up_by_hour.values()), Decimal(0)) / len(up_by_hour)
    energy_j = _energy_j(workload, choice.placement, up_by_hour, float(billed))
    energy_kwh = electricity = None
    if energy_j is not None:
        energy_kwh = math.fsum(energy_j.values()) / len(energy_j) * MONTH_H / KWH_J
        electricity = exact(energy_kwh * KWH_J * price.electricity_per_j)
    elif price.electricity_per_j == 0:
        electricity = Decimal(0)
    days: dict[int, list[float]] = {}
    per_h = {up: float(rate) for up, rate in rates.items()}
    for number, up in up_by_hour.items():
        power_cost = energy_j[number] * price.electricity_per_j if energy_j else 0.0
        cost = MONTH_H * (per_h[up] + power_cost)
        days.setdefault(number // HOURS_A_DAY, []).append(cost)
    by_day = {day: statistics.fmean(costs) for day, costs in days.items()}
    return MonthlyCost(MONTH_H * hardware, electricity, energy_kwh, by_day)


def _hardware_per_h(up: float, choice: Choice, billed: Decimal) -> Decimal:
    """Return the cost of an hour, with the expected cost of a spot device's interruptions."""
    price = choice.price
    count = exact(choice.count if price.is_always_paid else max(0, up - choice.base))
    share = Decimal(1) if price.is_always_paid else billed
    lost = exact((price.interruptions_per_month or 0) * price.recovery_s / HOUR_S) / MONTH_H
    base = choice.base * choice.base_price.rate.per_hour if choice.base_price else Decimal(0)
    return count * share * price.rate.per_hour * (1 + lost) + base


def _energy_j(
    workload: WorkloadHistory, placement: Placement, up_by_hour: Mapping[int, float], billed: float
) -> dict[int, float] | None:
    watts = placement.watts
    if watts is None:
        return None
    energy_j = {}
    for number, up in up_by_hour.items():
        busy = min(up, workload.hours[number].mean / placement.speed)
        power_w = up * watts.idle_w + busy * (watts.busy_w - watts.idle_w)
        energy_j[number] = power_w * HOUR_S * billed
    return energy_j


def interval(now: MonthlyCost, other: MonthlyCost) -> tuple[float, float] | None:
    """Return the 95 % interval of a monthly saving, from its spread over days; None for one day.

    With two days of each day of the week the spread is that around the mean of the day of the week: a
    quiet weekend in each week is known, and no uncertainty.
    """
    savings = {day: now.by_day[day] - other.by_day[day] for day in now.by_day}
    groups: dict[int, list[float]] = {}
    for day, saving in savings.items():
        groups.setdefault(day % len(WEEKDAYS), []).append(saving)
    if len(groups) < len(WEEKDAYS) or min(map(len, groups.values())) < LEAST_WEEKS:
        groups = {0: list(savings.values())}
    free = len(savings) - len(groups)
    if not free:
        return None
    means = {key: statistics.fmean(group) for key, group in groups.items()}
    squares = math.fsum((one - means[key]) ** 2 for key, group in groups.items() for one in group)
    half = student_quantile(_UPPER, free) * math.sqrt(squares / free / len(savings))
    mean = statistics.fmean(savings.values())
    return mean - half, mean + half


def break_even_share(
    fixed_per_hour: Decimal,
    on_demand_per_hour: Decimal,
    electricity_per_hour: Decimal = Decimal(0),
) -> Decimal | None:
    """Return the break-even utilization of a device that is paid for in every hour.

    An on-demand device is paid for only in hours of use; a reserved or owned one in every hour, plus
    electricity if that is paid separately. Their costs are equal at
    share x on_demand = fixed + share x electricity.

    Args:
        fixed_per_hour: Currency per hour of the reserved or owned device.
        on_demand_per_hour: Currency per hour of on-demand use, electricity included.
        electricity_per_hour: Currency for the fixed device's electricity in an hour of use.

    Returns:
        None if on demand costs no more than the electricity, so that there is no break-even;
        above 1 if on demand is always cheaper.
    """
    saved = on_demand_per_hour - electricity_per_hour
    return fixed_per_hour / saved if saved > 0 else None


def tested(held_out: Mapping[int, HourLoad], workload: WorkloadHistory, choice: Choice) -> HeldOut:
    """Replay held-out hours on a supply."""
    hours_short = 0
    refused: dict[int, float] = {}
    first = min(held_out)
    for number, hour in held_out.items():
        up = choice.counts[hour_of_week(number, workload.zone)]
        is_as_now = choice.placement.held and up >= choice.placement.held
        if (
            not is_as_now
            and hour.peak > up * choice.placement.speed
            and not (up == 0 and hour.is_idle)
        ):
            hours_short += 1
        week = (number - first) // HOURS_A_WEEK
        refused[week] = refused.get(week, 0.0) + (hour.requests if up == 0 else 0.0)
    return HeldOut(
        hours=len(held_out),
        hours_short=hours_short,
        refused_per_week=statistics.fmean(refused.values()),
        refused_per_week_max=max(refused.values()),
        scaled=None if choice.scaling is None else choice.scaling.over(held_out),
    )


def failure(
    result: HeldOut | None,
    held_out: Mapping[int, HourLoad],
    workload: WorkloadHistory,
    now: Choice,
    choice: Choice,
) -> str:
    """Return why a supply failed on held-out hours, or was not tested; empty if neither.

    Without held-out hours only a stated load, or a supply with no less capacity than now, needs no test.

    Args:
        result: Its result on the held-out hours; None without any.
        held_out: The hours.
        workload: The workload, with these hours.
        now: What it runs on.
        choice: The supply.
    """
    if workload.is_stated:
        return ""
    if result is None:
        keeps_all = bool(choice.placement.held) and min(choice.counts) >= now.count
        if keeps_all and choice.scaling is None:
            return ""
        return f"from {workload.days:.1f} days of data, not tested on another week"
    where = f"of the last {result.hours} hours, which the choice did not use"
    if result.hours_short > SHORT_SHARE_MAX * result.hours:
        return f"too small in {result.hours_short} {where}"
    if choice.scaling is not None:
        last = replace(workload, hours=held_out)
        before, after = monthly_cost(last, now).total, monthly_cost(last, choice).total
        if before is not None and after is not None and after >= before:
            return f"saved nothing in the {where.removeprefix('of the ')}"
    return _unsteady(workload, choice) if choice.schedule.startswith(SCALED) else ""


def _unsteady(workload: WorkloadHistory, choice: Choice) -> str:
    """Return why devices scaled by the hour of the week would not have held in each week; empty if so.

    Each week is tested on the devices that the other weeks needed.
    """
    weeks = workload.by_week()
    for week in weeks:
        others = {
            number: hour for each in weeks if each is not week for number, hour in each.items()
        }
        counts = scaled_counts(others, workload, choice.placement)
        result = tested(week, workload, replace(choice, counts=counts))
        if result.hours_short > SHORT_SHARE_MAX * result.hours:
            return (
                f"too small in {result.hours_short} of {result.hours} hours of a week, decided from"
                " the other weeks"
            )
    return ""


def scaled_counts(
    hours: Mapping[int, HourLoad], workload: WorkloadHistory, placement: Placement
) -> tuple[int, ...]:
    """Return the devices that each hour of the week and its neighbours needed, at least one."""
    everywhere = placement.needed(max(hour.peak for hour in hours.values()))
    peaks: dict[int, float] = {}
    for number, hour in hours.items():
        middle = hour_of_week(number, workload.zone)
        for near in (middle - 1, middle, middle + 1):
            slot = near % HOURS_A_WEEK
            peaks[slot] = max(peaks.get(slot, 0.0), hour.peak)
    return tuple(
        placement.needed(peaks[slot]) if slot in peaks else everywhere
        for slot in range(HOURS_A_WEEK)
    )


def replayed(
    hours: Mapping[int, HourLoad], needed: Callable[[float], int], least: int, start: ColdStart
) -> Scaling:
    """Replay a workload by minute.

    Device k is used in the minutes that need k devices or more. It is released after an idle time
    as long as its start: an idle device costs as much by then as the start that it avoids. Whatever
    the gaps, this costs at most twice as much as knowing them in advance (ski rental: Karlin,
    Manasse, Rudolph and Sleator, "Competitive snoopy caching", Algorithmica 3, 1988).

    The first request of a start waits for all of it; those that arrive meanwhile, evenly over their
    minute, wait for the rest. There is no other queue: what is needed has free capacity. No device
    is up before the first hour; a gap in the telemetry is not a gap between requests.

    Args:
        hours: By hour number, each known by minute.
        needed: Returns the devices for a load.
        least: Devices that are never released.
        start: Start of a device.
    """
    scaled: dict[int, ScaledHour] = {}
    idle_s: list[float] = []
    before = None
    for number, minutes in _by_hour(hours):
        hour = scaled[number] = ScaledHour(requests=math.fsum(minutes.requests))
        if before is not None and number != before + 1:
            idle_s = [0.0] * len(idle_s)
        before = number
        up_s = 0.0
        for minute, load in enumerate(minutes.load):
            need = max(1, needed(load)) if minutes.held >> minute & 1 else 0
            idle_s += [math.inf] * (need - len(idle_s))
            up_s += _MINUTE_S * least
            for level in range(least, len(idle_s)):
                if level >= need:
                    up_s += min(_MINUTE_S, max(0.0, start.seconds - idle_s[level]))
                    idle_s[level] += _MINUTE_S
                    continue
                if idle_s[level] > start.seconds:
                    up_s += start.seconds
                    _add_start(hour, minutes.requests[minute], need, start.seconds)
                up_s += _MINUTE_S
                idle_s[level] = 0.0
        hour.device_h = up_s / HOUR_S
    return Scaling(least, start, scaled)


def _by_hour(hours: Mapping[int, HourLoad]) -> Iterator[tuple[int, Minutes]]:
    for number in sorted(hours):
        minutes = hours[number].minutes
        if minutes is not None:
            yield number, minutes


def _add_start(hour: ScaledHour, per_minute: float, need: int, start_s: float) -> None:
    """Add a start of one of the devices that a minute needs, and the requests that wait for it.

    Args:
        hour: The hour.
        per_minute: Requests of the minute, and of those after it.
        need: Devices that the minute needs; each answers the same share.
        start_s: Duration of the start.
    """
    meanwhile = max(0.0, per_minute - 1) * start_s / _MINUTE_S / need
    hour.starts += 1
    hour.waiting += 1 + meanwhile
    hour.wait_s += start_s + meanwhile * start_s / 2


def least_devices(
    hours: Mapping[int, HourLoad], needed: Callable[[float], int], most: int, start: ColdStart
) -> int:
    """Return the fewest devices that must never be released so that few requests wait for a start.

    Args:
        hours: By hour number, each known by minute.
        needed: Returns the devices for a load.
        most: Devices that carry every load; with so many none waits.
        start: Start of a device.
    """

    def is_enough(least: int) -> bool:
        scaling = replayed(hours, needed, least, start)
        return scaling.over(hours).waiting_share <= WAITING_SHARE_MAX

    # The more devices stay, the fewer starts there are.
    return bisect_left(range(most), x=True, key=is_enough)


def is_known_by_minute(hours: Mapping[int, HourLoad]) -> bool:
    """Return whether the requests of all hours are known by minute."""
    return all(hour.minutes is not None for hour in hours.values())


def idle_share(hours: Mapping[int, HourLoad]) -> float:
    """Return the share of the minutes of hours known by minute that are known to be without work."""
    minutes = sum(len(one.load) - one.held.bit_count() for _, one in _by_hour(hours))
    return minutes / (MINUTES * len(hours))


def idle_blocks(
    found_in: Mapping[int, HourLoad], held_out: Mapping[int, HourLoad], zone: tzinfo | None
) -> list[Block]:
    """Return blocks that were idle in every week, and are so by more than chance.

    The candidates are the longest blocks that were idle in every week of `found_in`. A candidate is
    kept if it was idle every time in the held-out weeks too, and if that is unlikely without a weekly
    pattern: a share q of all windows of its length was idle, so m independent windows are all idle
    with probability q^m (a binomial test with no failure). With k candidates q^m must be at most
    0.05 / k (Bonferroni), so on load without a pattern at most one of 20 searches finds any.

    Args:
        found_in: Load by hour number.
        held_out: Load of later weeks; without any there are no blocks.
        zone: Time zone of the hours of the week; None for the host's own.
    """
    if not any(hour.is_idle for hour in found_in.values()):
        return []
    slots: dict[int, list[bool]] = {}
    for number, hour in found_in.items():
        slots.setdefault(hour_of_week(number, zone), []).append(hour.is_idle)
    idle = {slot for slot, states in slots.items() if len(states) >= LEAST_WEEKS and all(states)}
    candidates = sorted(_blocks(idle), key=lambda block: -block.length_h * len(block.days))
    candidates = candidates[:BLOCKS_MAX]
    everything = {**found_in, **held_out}
    return [
        block
        for block in candidates
        if _is_no_chance(block, held_out, everything, zone, FALSE_ADVICE_MAX / len(candidates))
    ]


def _is_no_chance(
    block: Block,
    held_out: Mapping[int, HourLoad],
    everything: Mapping[int, HourLoad],
    zone: tzinfo | None,
    probability_max: float,
) -> bool:
    starts = {*block.starts}
    windows = [
        state
        for number in everything  # a window of the held-out weeks may begin before them
        if hour_of_week(number, zone) in starts
        and (state := _window(held_out, number, block.length_h, block.length_h // 2)) is not None
    ]
    anywhere = [
        state
        for number in everything
        if (state := _window(everything, number, block.length_h, block.length_h)) is not None
    ]
    if not windows or not all(windows):
        return False
    idle_share = sum(anywhere) / len(anywhere)
    return bool(idle_share ** len(windows) <= probability_max)


def _window(hours: Mapping[int, HourLoad], first: int, length_h: int, least_h: int) -> bool | None:
    """Return whether consecutive hours were idle; None if fewer than `least_h` of them are known."""
    window = [hours.get(number) for number in range(first, first + length_h)]
    known = [hour for hour in window if hour is not None]
    return all(hour.is_idle for hour in known) if len(known) >= least_h else None


def _blocks(idle: set[int]) -> list[Block]:
    """Return the blocks of idle hours; runs at the same time of several days are one block."""
    same: dict[tuple[int, int], list[int]] = {}
    for start, length_h in idle_runs(idle):
        if length_h >= LEAST_BLOCK_H:
            day, hour = divmod(start, HOURS_A_DAY)
            same.setdefault((hour, length_h), []).append(day)
    return [Block(hour, length_h, tuple(days)) for (hour, length_h), days in same.items()]


def idle_runs(slots: set[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive hours as (first hour, length); Sunday continues on Monday."""
    if len(slots) == HOURS_A_WEEK:
        return [(0, HOURS_A_WEEK)]
    runs = []
    for start in sorted(slots):
        if (start - 1) % HOURS_A_WEEK not in slots:
            length_h = 1
            while (start + length_h) % HOURS_A_WEEK in slots:
                length_h += 1
            runs.append((start, length_h))
    return runs
