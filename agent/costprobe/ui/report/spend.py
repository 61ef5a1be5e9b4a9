"""Device cost in a period: totals, days and uses, separately for each currency."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, NamedTuple

from costprobe.adapters.store.read import SeriesValues
from costprobe.core.money import exact, total_of
from costprobe.core.periods import DAY_NS, HOUR_NS, TimeSpan
from costprobe.core.records import natural
from costprobe.core.units import HOUR_S
from costprobe.spend.query import SpanSpend, Usual, hourly_change, label_spend, span_spend
from costprobe.ui.report.model import (
    Amount,
    Bucket,
    Spend,
    Use,
)

# Smaller than any currency's unit, larger than the rounding error of float sums.
_DIGITS: Final = 9


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


def spent(
    costs: Iterable[SeriesValues],
    allocations: Iterable[SeriesValues],
    period: Period,
    usual: Usual,
    label: str = "",
) -> list[Spend]:
    """Return the cost of a period, compared with the preceding one, one entry per currency.

    Args:
        costs: `cost` of the rows of `device`, over both periods and LATE_NS around them.
        allocations: `cost` of the rows of `allocation`, over the period.
        period: The period.
        usual: Length of rows if there are too few to derive it.
        label: Tag that the cost is divided by; empty for none.
    """
    costs, allocations = list(costs), list(allocations)
    now, before = (span_spend(costs, TimeSpan(*span), usual) for span in (period, period.before))
    uses = _uses(allocations)
    spends = [
        _spend(currency, spend, before.get(currency), period, uses.get(currency, ()))
        for currency, spend in sorted(now.items())
    ]
    if not label:
        return spends
    labelled = label_spend(label, costs, allocations, TimeSpan(*period), usual)
    return [
        replace(spend, by_label=_with_remainder(spend.total, labelled.get(spend.currency, {})))
        for spend in spends
    ]


def _with_remainder(total: Decimal, labelled: Mapping[str, float]) -> list[Amount]:
    """Return the cost of each value of a label, and that of none, the largest first."""
    parts = [Amount(value, rounded(cost)) for value, cost in labelled.items()]
    parts.append(Amount("", total - total_of([part.amount for part in parts])))
    return sorted(
        (p for p in parts if p.amount), key=lambda part: (-part.amount, natural(part.name))
    )


def _spend(
    currency: str, spend: SpanSpend, before: SpanSpend | None, period: Period, uses: Sequence[Use]
) -> Spend:
    amounts = [
        Amount(name, rounded(device_spend.cost)) for name, device_spend in spend.by_device.items()
    ]
    amounts.sort(key=lambda entry: (-entry.amount, natural(entry.name)))
    length_s = period.hours * HOUR_S
    per_hour = before and hourly_change(before.by_device, spend.by_device, length_s, length_s)
    return Spend(
        currency,
        total=total_of([entry.amount for entry in amounts]),
        coverage=spend.coverage,
        before=None
        if before is None
        else total_of([rounded(device_spend.cost) for device_spend in before.by_device.values()]),
        coverage_before=None if before is None else before.coverage,
        per_hour=per_hour[1] if per_hour else None,
        per_hour_before=per_hour[0] if per_hour else None,
        by_device=amounts,
        by_day=[
            Bucket(day * DAY_NS, round(cost, _DIGITS)) for day, cost in sorted(spend.by_day.items())
        ],
        by_use=uses,
    )


def _uses(allocations: Iterable[SeriesValues]) -> Mapping[str, Sequence[Use]]:
    by_key: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for series in allocations:
        tags = series.tags
        key = (tags.get("currency", ""), tags.get("service", ""), tags.get("part", ""))
        by_key[key] += series.values
    uses: dict[str, list[Use]] = defaultdict(list)
    for (currency, service, part), values in by_key.items():
        amount = rounded(math.fsum(values))
        if amount:
            uses[currency].append(Use(service, part, amount))
    return {
        currency: sorted(uses_of_currency, key=lambda use: (-use.amount, use.service, use.part))
        for currency, uses_of_currency in uses.items()
    }


def rounded(amount: float) -> Decimal:
    """Remove the rounding error of a float sum."""
    return exact(round(amount, _DIGITS))
