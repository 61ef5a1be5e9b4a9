"""What a workload costs a month on a number of devices at a price, by replaying its hours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal

from costprobe.core.units import HOUR_S, KWH_J, MONTH_H
from costprobe.core.weekly_hours import HOURS_A_DAY
from costprobe.domain.advice.cold_starts import ColdStart
from costprobe.domain.advice.scaling import Scaling
from costprobe.domain.advice.workload import WorkloadHistory, hour_of_week
from costprobe.domain.costing.money import exact
from costprobe.domain.pricing.rate import Rate

# Free capacity at the highest minute: load grows, and latency rises before a device is saturated.
HEADROOM = 0.2
# Two-sided 95 % of a normal distribution.
_Z = 1.96
_ROUNDING = 1e-9


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
        if min(self.counts) == self.count:
            return dict.fromkeys(numbers, self.count)
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
    """Return the 95 % interval of a monthly saving, from its spread over days; None for one day."""
    savings = [now.by_day[day] - other.by_day[day] for day in now.by_day]
    if len(savings) <= 1:
        return None
    half = _Z * statistics.stdev(savings) / math.sqrt(len(savings))
    mean = statistics.fmean(savings)
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
