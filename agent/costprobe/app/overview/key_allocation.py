"""What the devices cost in a period, divided by tenant, namespace, service or model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.budgeting.spend_reading import LATE_NS, Usual, span_spend
from costprobe.core.serving_words import UNATTRIBUTED
from costprobe.domain.costing.budgets.periods import TimeSpan

Key = Literal["tenant", "namespace", "service", "model"]
PROBING: Final = "probing"
UNALLOCATED: Final = "unallocated"
# Lines of no key.
Rest = Literal["unattributed", "probing", "unallocated"]


@dataclass(slots=True)
class KeyCost:
    """What one tenant, namespace, service or model cost.

    Attributes:
        name: Its name; that of the rest for a line of no key.
        cost: Currency.
        idle: The part of it in which the devices were idle; None if that is unknown.
        rest: Why the line has no key; None for a key.
    """

    name: str
    cost: float = 0.0
    idle: float | None = None
    rest: Rest | None = None


@dataclass(frozen=True, slots=True)
class KeyAllocation:
    """The cost of the devices in a period, in one currency.

    Attributes:
        currency: ISO 4217 code.
        total: What the devices cost; the parts add up to it.
        coverage: Share of the period that rows cover, over the devices.
        parts: The keys, the largest first, then what has none.
    """

    currency: str
    total: float
    coverage: float
    parts: tuple[KeyCost, ...]


def summed(
    reader: StoreReader,
    measurement: str,
    field: str,
    span: TimeSpan,
    tags: Mapping[str, str] | None = None,
) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield the tags and the sum of a field of each series in a span, its end included."""
    within = span.start_ns + 1, span.end_ns + 1
    for series in reader.hourly_sums(measurement, (field,), *within, tags)[field]:
        yield series.tags, math.fsum(series.values)


def allocation_by(
    key: Key, reader: StoreReader, span: TimeSpan, usual: Usual
) -> list[KeyAllocation]:
    """Return what the devices cost in a span by a key, one entry per currency, the largest first.

    The total is that of budgets and reports. Windows at the edges of the span may reach beyond it: if the
    parts exceed the total by them, they are reduced in proportion.

    Args:
        key: What the cost is divided by.
        reader: The store.
        span: The span.
        usual: Length of intervals if there are too few rows.

    Raises:
        StoreError: The store cannot be read.
    """
    edges_ns = span.start_ns, span.end_ns
    totals = reader.hourly_sums(
        "device", ("cost",), edges_ns[0] - LATE_NS, edges_ns[1] + LATE_NS, cuts_ns=edges_ns
    )
    spent = span_spend(totals["cost"], span, usual, lambda _device, _time_ns: "")
    by_key = _SOURCES[key](reader, span)
    for tags, cost in summed(reader, "allocation", "cost", span, {"part": PROBING}):
        by_key[tags.get("currency", "")].append(KeyCost(PROBING, cost, rest=PROBING))
    found = [
        _allocation(
            currency, [hour.cost for hour in spend.by_device.values()], spend.coverage, parts
        )
        for currency, spend in spent.items()
        for parts in [_merged(by_key.get(currency, []))]
    ]
    return sorted(found, key=lambda allocation: -allocation.total)


_Parts = dict[str, list[KeyCost]]


def _allocation(
    currency: str, device_costs: list[float], coverage: float, parts: list[KeyCost]
) -> KeyAllocation:
    total = math.fsum(device_costs)
    whole = math.fsum(part.cost for part in parts)
    if whole > total:
        for part in parts:
            part.cost *= total / whole
            part.idle = None if part.idle is None else part.idle * total / whole
    rest = max(0.0, total - whole)
    parts.sort(key=lambda part: (part.rest is not None, -part.cost, part.name))
    return KeyAllocation(
        currency, total, coverage, (*parts, KeyCost(UNALLOCATED, rest, rest=UNALLOCATED))
    )


def _merged(parts: list[KeyCost]) -> list[KeyCost]:
    """Return one part for each name; its idle part is known if that of all is."""
    merged: dict[tuple[str, Rest | None], KeyCost] = {}
    for part in parts:
        before = merged.setdefault((part.name, part.rest), KeyCost(part.name, 0.0, 0.0, part.rest))
        before.cost += part.cost
        is_known = before.idle is not None and part.idle is not None
        before.idle = (before.idle or 0.0) + (part.idle or 0.0) if is_known else None
    return list(merged.values())


def _by_tag(tag: str) -> Callable[[StoreReader, TimeSpan], _Parts]:
    """Return how rows of `allocation` are divided by one of their tags."""

    def divided(reader: StoreReader, span: TimeSpan) -> _Parts:
        found: _Parts = defaultdict(list)
        for tags, cost in summed(reader, "allocation", "cost", span):
            part, name = tags.get("part", ""), tags.get(tag)
            if name and part != PROBING:
                idle = {"idle": cost, "busy": 0.0}.get(part)
                found[tags.get("currency", "")].append(KeyCost(name, cost, idle))
        return found

    return divided


def _by_tenant(reader: StoreReader, span: TimeSpan) -> _Parts:
    found: _Parts = defaultdict(list)
    for tags, cost in summed(reader, "tenant", "cost", span):
        name = tags.get("tenant", UNATTRIBUTED)
        rest: Rest | None = "unattributed" if name == UNATTRIBUTED else None
        found[tags.get("currency", "")].append(KeyCost(name, cost, rest=rest))
    return found


def _by_model(reader: StoreReader, span: TimeSpan) -> _Parts:
    """Return the cost of models; a service of one model has its name, as has cost of no model."""
    sums: dict[str, dict[tuple[str, str, str], float]] = {}
    for field in ("cost_total", "cost_idle"):
        amounts: dict[tuple[str, str, str], float] = defaultdict(float)
        for tags, cost in summed(reader, "cost", field, span, {"basis": "serving"}):
            currency, service = tags.get("currency", ""), tags.get("service", "")
            model = tags.get("served_model", "")
            amounts[currency, service, model] += cost
            if model:
                # The row of the whole service contains that of each of its models.
                amounts[currency, service, ""] -= cost
        sums[field] = amounts
    found: _Parts = defaultdict(list)
    for place, cost in sums["cost_total"].items():
        currency, service, model = place
        idle = sums["cost_idle"].get(place)
        if model or cost > _LEAST:
            known = None if idle is None else max(0.0, idle)
            found[currency].append(KeyCost(model or service, max(0.0, cost), known))
    return found


# Rounding of the sums of models.
_LEAST: Final = 1e-9
_SOURCES: Final[Mapping[Key, Callable[[StoreReader, TimeSpan], _Parts]]] = {
    "tenant": _by_tenant,
    "namespace": _by_tag("namespace"),
    "service": _by_tag("service"),
    "model": _by_model,
}
