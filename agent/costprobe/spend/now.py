"""What the host costs an hour and this month, what of it is idle, and who used the last 24 hours.

The last 24 hours are divided by service, model, idle time, probing and remainder. Answers are
plain records; unknown values are None.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, Literal

from costprobe.adapters.databases.question import Question
from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.columns import number
from costprobe.core.periods import HOUR_NS, HOURS_A_DAY, TimeSpan
from costprobe.core.records import NS_PER_S, is_slice_kind, natural
from costprobe.spend.evaluate import BudgetOverview, SpendBooks, budget_overviews
from costprobe.spend.query import (
    Group,
    SpendBook,
    cost_per_hour,
    coverage_of,
    divided_by_model,
    seconds_of,
    store_sums,
)
from costprobe.spend.settings import BudgetConfig

# Longest interval of a row of `device`: the row before the hour defines the start of its first.
EDGE_NS: Final = 600 * NS_PER_S
# Name of the period that is read where no budget of the host is configured; its amount is not used.
UNPLANNED: Final = "month"
# A device without a reading for this long has no present power.
PRESENT_NS: Final = 120 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Spending:
    """What the host costs, in one currency.

    Attributes:
        currency: ISO 4217 code; empty if it is unknown.
        per_hour: Cost of the last hour's covered time, per hour.
        idle_share: Share of the last hour's cost in which devices did nothing: 1 minus utilization; None
            without a utilization.
        month: Spend and forecast of this month, or of the period of the host's budget.
        is_planned: Whether `month` has a configured amount.
    """

    currency: str
    per_hour: float | None
    idle_share: float | None
    month: BudgetOverview | None
    is_planned: bool


@dataclass(frozen=True, slots=True)
class AllocatedCost:
    """A part of the last day's cost.

    Attributes:
        kind: service, model, idle, probing or remainder. The cost of models is part of their service's.
        name: Service or model; empty for the others.
        cost: Currency.
    """

    kind: Literal["service", "model", "idle", "probing", "remainder"]
    name: str
    cost: float


@dataclass(frozen=True, slots=True)
class DayAllocation:
    """What the host cost in the last 24 h, and for what.

    Attributes:
        currency: ISO 4217 code; empty if it is unknown.
        since_ns: Start of the day, a full hour, UTC in ns.
        total: Cost of all devices.
        coverage: Share of the day that rows cover.
        parts: Services, idle time, probing and the remainder add up to the total.
        by_device: Cost of each device.
    """

    currency: str
    since_ns: int
    total: float
    coverage: float
    parts: Sequence[AllocatedCost]
    by_device: Mapping[str, float]


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


def host_months(
    books: SpendBooks, configured: Sequence[BudgetConfig], reader: StoreReader, now_ns: int
) -> tuple[list[BudgetOverview], list[BudgetOverview]]:
    """Return the status of the configured budgets, and what the host spends in each currency.

    Args:
        books: Hours that were read before; updated.
        configured: The budgets of the configuration.
        reader: The store.
        now_ns: UTC in ns.

    Raises:
        StoreError: The store cannot be read.
    """
    currencies = {series.tags.get("currency", "") for series in reader.series("device")} - {""}
    of_host = host_budgets(configured, currencies)
    unplanned = [budget for budget in of_host if budget not in configured]
    found = budget_overviews(books, reader, [*configured, *unplanned], now_ns)
    months = [one for one in found if one.status.budget in of_host]
    return found[: len(configured)], months


def spending(
    reader: StoreReader,
    configured: Sequence[BudgetConfig],
    usual_s: float,
    now_ns: int,
    months: Sequence[BudgetOverview],
) -> list[Spending]:
    """Return what the host costs, one entry per currency, the largest first.

    Args:
        reader: The store.
        configured: The budgets of the configuration.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
        now_ns: UTC in ns.
        months: The spend of this month of each currency.

    Raises:
        StoreError: The store cannot be read.
    """
    hour = TimeSpan(now_ns - HOUR_NS, now_ns)
    costs = reader.values("device", "cost", hour.start_ns - EDGE_NS, now_ns + 1)
    used = reader.values("device", "util_pct", hour.start_ns, now_ns + 1)
    of_devices: dict[tuple[str, str], list[SeriesValues]] = defaultdict(list)
    for series in costs:
        tags = series.tags
        of_devices[tags.get("currency", ""), tags.get("device", "")].append(series)
    per_hour: dict[str, list[float]] = defaultdict(list)
    for (currency, _), rows in of_devices.items():
        if (rate := cost_per_hour(rows, usual_s, hour)) is not None:
            per_hour[currency].append(rate)
    idle = _idle_shares(costs, used, hour)
    by_currency = {overview.status.budget.currency: overview for overview in months}
    found = [
        Spending(
            currency,
            per_hour=math.fsum(per_hour[currency]) if currency in per_hour else None,
            idle_share=idle.get(currency),
            month=by_currency.get(currency),
            is_planned=currency in by_currency
            and by_currency[currency].status.budget in configured,
        )
        for currency in {*per_hour, *by_currency}
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


def day_allocations(reader: StoreReader, book: SpendBook, now_ns: int) -> list[DayAllocation]:
    """Return the allocation of the last 24 h, from a full hour on, one entry per currency.

    The total is that of budgets; the parts are the rows of `allocation`, divided among models. The remainder is what no part has: devices without a service, and time
    that is not yet allocated.

    Args:
        reader: The store.
        book: Its spend by the hour, up to now.
        now_ns: UTC in ns.

    Raises:
        StoreError: The store cannot be read.
    """
    day = TimeSpan(book.start_ns(book.hour_of(now_ns) - HOURS_A_DAY + 1), now_ns)
    by = ("service", "part", "currency")
    each = partial(store_sums, reader, day)
    (allocated,) = each(Question("allocation", "cost", "sum", by=by))
    of_services = {group: cost for group, cost in allocated.items() if group[0]}
    by_model = divided_by_model(each, of_services)
    found = []
    for currency in sorted({payer.currency for payer in book.payers}):
        paid = {
            payer.device: book.between(payer, day)
            for payer in book.payers
            if not payer.service and payer.currency == currency
        }
        known = {device: hour for device, hour in paid.items() if hour.covered_s > 0}
        parts = {group[:-1]: cost for group, cost in allocated.items() if group[-1] == currency}
        models = {group[:-1]: cost for group, cost in by_model.items() if group[-1] == currency}
        if known:
            total = math.fsum(hour.cost for hour in known.values())
            found.append(
                DayAllocation(
                    currency,
                    day.start_ns,
                    total,
                    coverage_of((hour.covered_s for hour in known.values()), seconds_of(day)),
                    _listed(total, parts, models),
                    {device: known[device].cost for device in sorted(known, key=natural)},
                )
            )
    return sorted(found, key=lambda allocation: -allocation.total)


def _listed(
    total: float, parts: Mapping[Group, float], models: Mapping[Group, float]
) -> list[AllocatedCost]:
    used: dict[str, float] = defaultdict(float)
    of_models: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    idle = probing = 0.0
    for (service, part), cost in parts.items():
        if part == "idle":
            idle += cost
        elif part == "probing":
            probing += cost
        elif service:
            used[service] += cost
    for (service, model, part), cost in models.items():
        if model and part not in ("idle", "probing"):
            of_models[service][model] += cost
    listed = []
    for service, cost in sorted(used.items(), key=lambda item: (-item[1], item[0])):
        listed.append(AllocatedCost("service", service, cost))
        own = sorted(of_models[service].items(), key=lambda item: -item[1])
        listed += [AllocatedCost("model", *model) for model in own]
    if parts:
        listed += [AllocatedCost("idle", "", idle), AllocatedCost("probing", "", probing)]
    # Rounding, and the edge of the hour: never below zero.
    rest = max(0.0, total - idle - probing - math.fsum(used.values()))
    return [*listed, AllocatedCost("remainder", "", rest)]
