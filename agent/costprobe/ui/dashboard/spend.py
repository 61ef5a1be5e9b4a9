"""What the last day cost: `/api/spend`, by use, device, tenant and label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.periods import TimeSpan
from costprobe.core.schema import OWN_TAGS
from costprobe.spend.now import DayAllocation, day_allocations
from costprobe.spend.query import (
    LATE_NS,
    KeyAllocation,
    KeyCost,
    SpendBook,
    Usual,
    allocation_by,
    ended_values,
    label_spend,
    span_spend,
)
from costprobe.ui.dashboard.now import NS_PER_MS

# Length of a row of a device with fewer than three.
USUAL_S = 10.0
# Names of labels, and values of each.
LABELS_MAX = 50
# Tenants by name; the others are one part.
TENANTS_MAX = 20
# A smaller share without the label is a rounding error, or a window that began before the day.
LEAST_REST = 0.001


def spend_document(reader: StoreReader, book: SpendBook | None, now_ns: int) -> dict[str, Any]:
    """Return the allocation of the last day by currency, and the cost of each device, tenant and label.

    The costs of a label's values and of none add up to the cost of the devices, as do those of tenants.

    Args:
        reader: The store.
        book: Its spend by the hour, up to now; None without a price.
        now_ns: UTC in ns.

    Raises:
        StoreError: The store cannot be read.
    """
    allocations = [] if book is None else day_allocations(reader, book, now_ns)
    since_ns = allocations[0].since_ns if allocations else now_ns
    day = TimeSpan(since_ns, now_ns)
    has_tenants = bool(allocations and reader.series("tenant"))
    tenants = allocation_by("tenant", reader, day, Usual(USUAL_S)) if has_tenants else []
    return {
        "since_ms": since_ns // NS_PER_MS,
        "until_ms": now_ns // NS_PER_MS,
        "allocations": [_allocation(allocation) for allocation in allocations],
        "tenants": [_tenants(allocation) for allocation in tenants],
        "labels": _labels(reader, day) if allocations else [],
    }


def _allocation(allocation: DayAllocation) -> dict[str, Any]:
    return {
        "currency": allocation.currency,
        "cost": allocation.total,
        "coverage": allocation.coverage,
        "parts": [
            {"kind": part.kind, "name": part.name, "cost": part.cost} for part in allocation.parts
        ],
        "devices": [
            {"device": device, "cost": cost} for device, cost in allocation.by_device.items()
        ],
    }


def _tenants(allocation: KeyAllocation) -> dict[str, Any]:
    """Return the largest tenants, the sum of the others, and the cost without a tenant."""
    named = [part for part in allocation.parts if part.rest is None]
    others = named[TENANTS_MAX:]
    parts: list[tuple[str, str | None, KeyCost]] = [
        *((part.name, None, part) for part in named[:TENANTS_MAX]),
        ("", "others", KeyCost("", math.fsum(part.cost for part in others))),
        *((part.name, part.rest, part) for part in allocation.parts if part.rest is not None),
    ]
    return {
        "currency": allocation.currency,
        "cost": allocation.total,
        "left_out": len(others),
        "parts": [
            {
                "name": name,
                "rest": rest,
                "cost": part.cost,
                "cached_share": part.cached_share,
                "cache_saved": part.cache_saved,
            }
            for name, rest, part in parts
            if rest is None or part.cost
        ],
    }


def _labels(reader: StoreReader, day: TimeSpan) -> list[dict[str, Any]]:
    measured = [*reader.series("device"), *reader.series("allocation")]
    names = {name for series in measured for name in series.tags} - OWN_TAGS
    if not names:
        return []  # reading a day of all devices takes long
    costs = reader.values("device", "cost", day.start_ns - LATE_NS, day.end_ns + 1)
    allocations = list(ended_values(reader, "allocation", "cost", day))
    return _label_costs(sorted(names)[:LABELS_MAX], costs, allocations, day)


def _label_costs(
    names: Sequence[str],
    costs: Sequence[SeriesValues],
    allocations: Sequence[SeriesValues],
    day: TimeSpan,
) -> list[dict[str, Any]]:
    """Return the cost of each value of each label; None is the cost without the label."""
    usual = Usual(USUAL_S)
    totals = {
        currency: math.fsum(device.cost for device in spend.by_device.values())
        for currency, spend in span_spend(costs, day, usual).items()
    }
    found = []
    for name in names:
        labelled = label_spend(name, costs, allocations, day, usual)
        for currency, total in sorted(totals.items()):
            parts = labelled.get(currency, {})
            largest = sorted(parts.items(), key=lambda part: (-part[1], part[0]))[:LABELS_MAX]
            rest = total - math.fsum(cost for _, cost in largest)
            values = [*largest, (None, rest)] if rest > total * LEAST_REST else largest
            found += [
                {"label": name, "value": value, "currency": currency, "cost": cost}
                for value, cost in values
            ]
    return found
