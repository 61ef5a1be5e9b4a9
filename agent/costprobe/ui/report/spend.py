"""Device cost in a period: totals, days and uses, separately for each currency."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from costprobe.adapters.storage.history import SeriesValues
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.money import exact, total_of
from costprobe.ui.report.model import Amount, Bucket, Spend, Use

HOUR_NS: Final = 3600 * NS_PER_S
DAY_NS: Final = 24 * HOUR_NS
# A period with a lower coverage is not used for comparison.
MIN_COVERED: Final = 0.5
# Finer than any currency's unit, coarser than the rounding error of float sums.
_DIGITS: Final = 9

CurrencyAt = Callable[[str, int], str]


class Period(NamedTuple):
    """A half-open time span in UTC ns."""

    since_ns: int
    until_ns: int

    @property
    def before(self) -> Period:
        """The preceding span of equal length."""
        return Period(2 * self.since_ns - self.until_ns, self.since_ns)

    @property
    def hours(self) -> float:
        """Its length in hours."""
        return (self.until_ns - self.since_ns) / HOUR_NS


class _Sums:
    """Cost by device and by day, and the hours with data."""

    def __init__(self) -> None:
        self.by_device: dict[str, list[float]] = defaultdict(list)
        self.by_day: dict[int, float] = defaultdict(float)
        self.hours: set[int] = set()

    def add(self, device: str, time_ns: int, cost: float) -> None:
        self.by_device[device].append(cost)
        self.by_day[time_ns // DAY_NS] += cost
        self.hours.add(time_ns // HOUR_NS)

    def amounts(self) -> list[Amount]:
        found = [Amount(name, rounded(math.fsum(costs))) for name, costs in self.by_device.items()]
        return sorted(found, key=lambda one: (-one.amount, one.name))

    def covered(self, period: Period) -> float:
        return min(1.0, len(self.hours) / period.hours)


def spent(
    costs: Iterable[SeriesValues],
    allocations: Iterable[SeriesValues],
    period: Period,
    currency_at: CurrencyAt,
) -> list[Spend]:
    """Sum the cost of a period and of the preceding one, one entry per currency.

    Args:
        costs: `cost` of the rows of `device`, over both periods at least, and none later.
        allocations: `cost` of the rows of `allocation`, over the period.
        period: The period.
        currency_at: Currency of a device's price at a UTC ns; rows of `device` do not contain it.
    """
    now: dict[str, _Sums] = defaultdict(_Sums)
    before: dict[str, _Sums] = defaultdict(_Sums)
    for series in costs:
        device = series.tags.get("device", "")
        days: dict[int, str] = {}
        for time_ns, cost in zip(series.times_ns, series.values, strict=True):
            # Price plans change at most daily.
            day = time_ns // DAY_NS
            currency = days.get(day)
            if currency is None:
                currency = days[day] = series.tags.get("currency") or currency_at(device, time_ns)
            if time_ns >= period.since_ns:
                now[currency].add(device, time_ns, cost)
            elif time_ns >= period.before.since_ns:
                before[currency].add(device, time_ns, cost)
    uses = _uses(allocations)
    return [
        _spend(currency, sums, before.get(currency), period, uses.get(currency, ()))
        for currency, sums in sorted(now.items())
    ]


def _spend(
    currency: str, sums: _Sums, before: _Sums | None, period: Period, uses: Sequence[Use]
) -> Spend:
    amounts = sums.amounts()
    earlier = None
    if before is not None and before.covered(period.before) >= MIN_COVERED:
        earlier = total_of([one.amount for one in before.amounts()])
    return Spend(
        currency,
        total=total_of([one.amount for one in amounts]),
        before=earlier,
        by_device=amounts,
        by_day=[
            Bucket(day * DAY_NS, round(cost, _DIGITS)) for day, cost in sorted(sums.by_day.items())
        ],
        by_use=uses,
        covered_share=sums.covered(period),
    )


def _uses(allocations: Iterable[SeriesValues]) -> Mapping[str, Sequence[Use]]:
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for series in allocations:
        tags = series.tags
        key = (tags.get("currency", "?"), tags.get("service", ""), tags.get("part", ""))
        found[key] += series.values
    uses: dict[str, list[Use]] = defaultdict(list)
    for (currency, service, part), values in found.items():
        amount = rounded(math.fsum(values))
        if amount:
            uses[currency].append(Use(service, part, amount))
    return {
        currency: sorted(of, key=lambda one: (-one.amount, one.service, one.part))
        for currency, of in uses.items()
    }


def rounded(amount: float) -> Decimal:
    """Remove the rounding error of a float sum."""
    return exact(round(amount, _DIGITS))
