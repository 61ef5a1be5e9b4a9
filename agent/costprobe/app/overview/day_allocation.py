"""What the last 24 hours cost: by service, model, idle time, probing and remainder."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.overview.key_allocation import summed
from costprobe.app.overview.records import AllocatedCost, DayAllocation
from costprobe.core.device_names import natural
from costprobe.core.records import NS_PER_S
from costprobe.core.row_values import number
from costprobe.core.weekly_hours import HOURS_A_DAY
from costprobe.domain.costing.budgets.periods import TimeSpan
from costprobe.domain.costing.budgets.spend import Payer, SpendBook, coverage_of

# Cost by service and part, of one currency.
_Parts = Mapping[tuple[str, str], float]


def day_allocations(reader: StoreReader, book: SpendBook, now_ns: int) -> list[DayAllocation]:
    """Return the allocation of the last 24 h, from a full hour on, one entry per currency.

    The total is that of budgets; the parts are the rows of `allocation`, and of models the shares of
    their cost of working time. The remainder is what no part has: devices without a service, and time
    that is not yet allocated.

    Args:
        reader: The store.
        book: Its spend by the hour, up to now.
        now_ns: UTC in ns.

    Raises:
        StoreError: The store cannot be read.
    """
    day = TimeSpan(book.start_ns(book.hour_of(now_ns) - HOURS_A_DAY + 1), now_ns)
    parts: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    for tags, cost in summed(reader, "allocation", "cost", day):
        key = tags.get("service", ""), tags.get("part", "")
        parts[tags.get("currency", "")][key] += cost
    models = _models(reader, day) if parts else {}
    elapsed_s = (day.end_ns - day.start_ns) / NS_PER_S
    found = []
    for currency in sorted({payer.currency for payer in book.payers}):
        paid = {
            payer.device: book.between(payer, day)
            for payer in book.payers
            if payer == Payer("", payer.device, currency)
        }
        known = {device: hour for device, hour in paid.items() if hour.covered_s > 0}
        if known:
            total = math.fsum(hour.cost for hour in known.values())
            covered_s = {device: hour.covered_s for device, hour in known.items()}
            found.append(
                DayAllocation(
                    currency,
                    day.start_ns,
                    total,
                    coverage_of(covered_s, elapsed_s),
                    _listed(total, parts.get(currency, {}), models),
                    {device: known[device].cost for device in sorted(known, key=natural)},
                )
            )
    return sorted(found, key=lambda allocation: -allocation.total)


def _models(reader: StoreReader, day: TimeSpan) -> dict[str, dict[str, float]]:
    """Return the cost of the working time of each model, by service."""
    costs: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in reader.points("cost", day.start_ns + 1, day.end_ns + 1, {"basis": "serving"}):
        model, total = row.tags.get("served_model", ""), number(row, "cost_total")
        if model and total is not None:
            costs[row.tags.get("service", "")][model] += total - (number(row, "cost_idle") or 0.0)
    return costs


def _listed(
    total: float, parts: _Parts, models: Mapping[str, Mapping[str, float]]
) -> list[AllocatedCost]:
    used: dict[str, float] = defaultdict(float)
    idle = probing = 0.0
    for (service, part), cost in parts.items():
        if part == "idle":
            idle += cost
        elif part == "probing":
            probing += cost
        elif service:
            used[service] += cost
    listed = []
    for service, cost in sorted(used.items(), key=lambda item: (-item[1], item[0])):
        listed.append(AllocatedCost("service", service, cost))
        working = models.get(service, {})
        whole = math.fsum(working.values())
        for model, own in sorted(working.items(), key=lambda item: -item[1]):
            if whole > 0:
                listed.append(AllocatedCost("model", model, cost * own / whole))
    if parts:
        listed += [AllocatedCost("idle", "", idle), AllocatedCost("probing", "", probing)]
    # Rounding, and the edge of the hour: never below zero.
    rest = max(0.0, total - idle - probing - math.fsum(used.values()))
    return [*listed, AllocatedCost("remainder", "", rest)]
