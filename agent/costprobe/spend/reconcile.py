"""A bill against the measured cost of devices: every difference named, and their sum exact.

A host is billed by the hour or the day. In each of these periods, `c` was paid for `q` hours of the
instance, and the rows of its devices cover `h` hours with the cost `m`:

    billed - measured = other charges + commitments + (hours without data) + price - (not billed) + rest

Hours without data cost c (1 - h / q). The price is the difference between the mean rates that were paid
and measured, times the hours with data; rest is what the two rates leave, which vary within the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

from costprobe.adapters.clouds.bills import BillLine
from costprobe.core.money import exact, rounded, total_of
from costprobe.core.periods import HOUR_NS
from costprobe.core.units import HOUR_S

# Rates that differ by less are the same price.
_SAME_RATE: Final = Decimal("0.01")
_ZERO: Final = Decimal(0)
REMAINDER: Final = "remainder"


class Gap(NamedTuple):
    """A part of the difference between bill and measurement.

    Attributes:
        name: What it is.
        amount: Currency; below 0 where more was measured than billed.
        hours: Hours of the host that it is of; None for a charge that has none.
    """

    name: str
    amount: Decimal
    hours: float | None = None


class MeasuredHour(NamedTuple):
    """What the devices of a host cost in an hour.

    Attributes:
        cost: Currency.
        covered_s: Seconds that their rows cover, as a mean over the devices.
    """

    cost: float
    covered_s: float


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A bill of a host and its measured cost in a span.

    Attributes:
        currency: ISO 4217 code.
        cost_billed: Currency of all charges that name the host.
        cost_measured: Currency of its devices.
        gaps: Their sum is cost_billed - cost_measured.
        instance_h: Hours of the instance that were billed.
        counted_h: Hours of all instances that the charges count.
        covered_h: Billed hours of the instance with data.
        measured_h: All hours with data.
        billed_per_h: Currency per hour of the instance that was paid, commitments included; None without hours.
        measured_per_h: Currency per hour of its devices in the same time; None without data.
        resources: The resources of its charges.
    """

    currency: str
    cost_billed: Decimal
    cost_measured: Decimal
    gaps: tuple[Gap, ...]
    instance_h: float
    counted_h: float
    covered_h: float
    measured_h: float
    billed_per_h: Decimal | None
    measured_per_h: Decimal | None
    resources: tuple[str, ...]

    @property
    def is_other_price(self) -> bool:
        """Whether the price in force is not what was paid."""
        paid, used = self.billed_per_h, self.measured_per_h
        return bool(paid and used and paid > 0 and abs(paid - used) > _SAME_RATE * paid)

    @property
    def is_of_several(self) -> bool:
        """Whether more hours were billed than an instance can run in their time."""
        return self.counted_h > self.instance_h * (1 + float(_SAME_RATE))


@dataclass(slots=True)
class _Period:
    """A time in which an instance was billed, and measured."""

    start_ns: int
    end_ns: int
    paid: Decimal = _ZERO
    hours: Decimal = _ZERO
    cost: Decimal = _ZERO
    covered_h: float = 0.0
    # Cost and hours of the devices beyond those of the instance.
    beyond: Decimal = _ZERO
    beyond_h: float = 0.0

    @property
    def length_h(self) -> float:
        return (self.end_ns - self.start_ns) / HOUR_NS

    @property
    def used_h(self) -> float:
        """Hours of the instance; of the whole period where the bill does not count them."""
        return min(max(0.0, float(self.hours)), self.length_h) or self.length_h

    def measure(self, cost: Decimal, covered_h: float) -> None:
        """Take the cost of the devices, and the hours that their rows cover."""
        self.covered_h = min(covered_h, self.used_h)
        self.beyond_h = covered_h - self.covered_h
        if self.beyond_h:
            self.beyond = rounded(cost * exact(self.beyond_h) / exact(covered_h))
        self.cost = cost - self.beyond


def reconciled(lines: Sequence[BillLine], hours: Mapping[int, MeasuredHour]) -> Reconciliation:
    """Compare the charges of a host with the cost of its devices.

    Args:
        lines: The charges, at least one, all in one currency.
        hours: Its hours, by their number since 1970, UTC; none without rows.
    """
    compute = [line for line in lines if line.kind == "compute"]
    periods = _periods(compute)
    measured = {hour: exact(one.cost) for hour, one in hours.items()}
    billed_hours: set[int] = set()
    for period in periods:
        within = range(period.start_ns // HOUR_NS, period.end_ns // HOUR_NS)
        billed_hours.update(within)
        period.measure(
            total_of([measured[hour] for hour in within if hour in measured]),
            sum(hours[hour].covered_s for hour in within if hour in hours) / HOUR_S,
        )
    paid = total_of([period.paid for period in periods])
    used_h = sum(period.used_h for period in periods)
    covered_h = sum(period.covered_h for period in periods)
    without = total_of(
        [rounded(p.paid * (1 - exact(p.covered_h) / exact(p.used_h))) for p in periods]
    )
    cost = total_of([period.cost for period in periods])
    rates = (
        rounded(paid / exact(used_h)) if used_h else None,
        rounded(cost / exact(covered_h)) if covered_h else None,
    )
    price = _ZERO
    if rates[0] is not None and rates[1] is not None:
        price = rounded((rates[0] - rates[1]) * exact(covered_h))
    outside = [hour for hour in measured if hour not in billed_hours]
    gaps = [
        *_other_charges(lines),
        Gap("commitments, paid elsewhere", total_of([c.billed for c in compute]) - paid),
        Gap("hours without data", without, used_h - covered_h),
        Gap("price", price, covered_h),
        Gap(
            "measured, but not billed",
            -total_of([*(measured[hour] for hour in outside), *(p.beyond for p in periods)]),
            sum(hours[hour].covered_s for hour in outside) / HOUR_S
            + sum(period.beyond_h for period in periods),
        ),
    ]
    billed, whole = total_of([line.billed for line in lines]), total_of(list(measured.values()))
    rest = billed - whole - total_of([gap.amount for gap in gaps])
    return Reconciliation(
        currency=lines[0].currency,
        cost_billed=billed,
        cost_measured=whole,
        gaps=(*(gap for gap in gaps if gap.amount), Gap(REMAINDER, rest)),
        instance_h=used_h,
        counted_h=float(sum(period.hours for period in periods)),
        covered_h=covered_h,
        measured_h=sum(hour.covered_s for hour in hours.values()) / HOUR_S,
        billed_per_h=rates[0],
        measured_per_h=rates[1],
        resources=tuple(sorted({line.resource for line in lines if line.resource})),
    )


def _other_charges(lines: Iterable[BillLine]) -> Iterator[Gap]:
    amounts: dict[str, list[Decimal]] = defaultdict(list)
    for line in lines:
        if line.kind != "compute":
            amounts[line.kind].append(line.billed)
    for kind in sorted(amounts):
        yield Gap(kind, total_of(amounts[kind]))


def _periods(lines: Iterable[BillLine]) -> list[_Period]:
    """Return the times of charges in full hours; those that overlap are one."""
    found: list[_Period] = []
    for line in sorted(lines, key=lambda line: line.start_ns):
        start_ns = line.start_ns // HOUR_NS * HOUR_NS
        end_ns = -(-line.end_ns // HOUR_NS) * HOUR_NS
        if not found or start_ns >= found[-1].end_ns:
            found.append(_Period(start_ns, end_ns))
        last = found[-1]
        last.end_ns = max(last.end_ns, end_ns)
        last.paid += line.effective
        last.hours += line.hours or 0
    return found
