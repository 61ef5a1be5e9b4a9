"""What the host costs: an hour, this month, and what of it is idle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from costprobe.adapters.storage.history import SeriesValues
from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.budgeting.budget_status import BudgetOverview
from costprobe.app.budgeting.spend_reading import Usual, span_spend
from costprobe.app.overview.records import Spending
from costprobe.core.device_kinds import is_slice_kind
from costprobe.core.records import NS_PER_S
from costprobe.core.row_values import number
from costprobe.core.units import HOUR_S
from costprobe.domain.costing.budgets.periods import TimeSpan
from costprobe.domain.costing.budgets.settings import BudgetConfig

HOUR_NS: Final = 3600 * NS_PER_S
# Longest interval of a row of `device`: the row before the hour defines the start of its first.
EDGE_NS: Final = 600 * NS_PER_S
# Name of the period that is read where no budget of the host is configured; its amount is not used.
UNPLANNED: Final = "month"
# A device without a reading for this long has no present power.
PRESENT_NS: Final = 120 * NS_PER_S


def host_budgets(
    configured: Iterable[BudgetConfig], currencies: Iterable[str]
) -> list[BudgetConfig]:
    """Return what the spend of the host is compared with: one budget per currency, if necessary an unplanned one.

    Of several budgets of the host a month's is preferred.
    """
    of_host = [budget for budget in configured if budget.device is None is budget.service]
    of_host.sort(key=lambda budget: budget.period != "month")
    found = []
    for currency in sorted(set(currencies)):
        unplanned = BudgetConfig(
            name=UNPLANNED, amount=Decimal(1), currency=currency, period="month"
        )
        found.append(next((b for b in of_host if b.currency == currency), unplanned))
    return found


def is_planned(configured: Iterable[BudgetConfig], budget: BudgetConfig) -> bool:
    """Return whether a budget is configured."""
    return any(budget is own for own in configured)


def paid_currencies(reader: StoreReader) -> set[str]:
    """Return the currencies that devices are paid in.

    Raises:
        StoreError: The store cannot be read.
    """
    return {series.tags.get("currency", "") for series in reader.series("device")} - {""}


def spending(
    reader: StoreReader,
    configured: Sequence[BudgetConfig],
    usual: Usual,
    now_ns: int,
    months: Sequence[BudgetOverview],
) -> list[Spending]:
    """Return what the host costs, one entry per currency, the largest first.

    Args:
        reader: The store.
        configured: The budgets of the configuration.
        usual: Length of a row's interval if there are too few rows.
        now_ns: UTC in ns.
        months: The spend of this month of each currency.

    Raises:
        StoreError: The store cannot be read.
    """
    hour = TimeSpan(now_ns - HOUR_NS, now_ns)
    costs = reader.values("device", "cost", hour.start_ns - EDGE_NS, now_ns + 1)
    used = reader.values("device", "util_pct", hour.start_ns, now_ns + 1)
    spent = span_spend(costs, hour, usual, lambda *_: "")
    idle = _idle_shares(costs, used, hour)
    by_currency = {overview.status.budget.currency: overview for overview in months}
    found = [
        Spending(
            currency,
            per_hour=math.fsum(
                device.cost / device.covered_s * HOUR_S
                for device in spent[currency].by_device.values()
            )
            if currency in spent
            else None,
            idle_share=idle.get(currency),
            month=by_currency.get(currency),
            is_planned=currency in by_currency
            and is_planned(configured, by_currency[currency].status.budget),
        )
        for currency in {*spent, *by_currency}
    ]
    return sorted(found, key=lambda one: (-(one.per_hour or 0.0), one.currency))


def _idle_shares(
    costs: Iterable[SeriesValues], used: Iterable[SeriesValues], hour: TimeSpan
) -> dict[str, float]:
    """Return 1 minus utilization, weighted by cost, by currency."""
    util_of = {
        series.tags.get("device", ""): dict(zip(series.times_ns, series.values, strict=True))
        for series in used
    }
    paid: dict[str, float] = defaultdict(float)
    unused: dict[str, float] = defaultdict(float)
    for series in costs:
        utils = util_of.get(series.tags.get("device", ""), {})
        currency = series.tags.get("currency", "")
        for time_ns, cost in zip(series.times_ns, series.values, strict=True):
            if time_ns >= hour.start_ns and time_ns in utils:
                paid[currency] += cost
                unused[currency] += cost * (1 - min(100.0, utils[time_ns]) / 100)
    return {currency: unused[currency] / cost for currency, cost in paid.items() if cost > 0}


def present_power_w(reader: StoreReader, now_ns: int) -> float | None:
    """Return the present power of all boards in W; None if it is unknown.

    Raises:
        StoreError: The store cannot be read.
    """
    watts = [
        power_w
        for row in reader.last("device", now_ns)
        if row.time_ns >= now_ns - PRESENT_NS
        and not is_slice_kind(row.tags.get("kind", ""))
        and (power_w := number(row, "power_w")) is not None
    ]
    return math.fsum(watts) if watts else None
