"""Money on the dashboard: budgets, computed once for all clients, and what the last day cost, by use and label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.configuration import Config, demo_config, load
from costprobe.core.clock import Clock
from costprobe.core.config.load import ConfigError
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import OWN_TAGS
from costprobe.spend.budget import period_words
from costprobe.spend.evaluate import BudgetOverview, SpendBooks
from costprobe.spend.now import DayAllocation, day_allocations, host_months
from costprobe.spend.query import (
    LATE_NS,
    KeyAllocation,
    KeyCost,
    SpendBook,
    allocation_by,
    ended_values,
    label_spend,
    span_spend,
)
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.host_overview import Overview, overview

# The daemon itself forecasts less often.
FRESH_S = 60.0
# Many budgets take longer: limit the CPU time.
REST_FACTOR = 20
_KEPT = (
    "budget",
    "scope",
    "period",
    "timezone",
    "currency",
    "amount",
    "spent",
    "forecast",
    "forecast_low",
    "forecast_high",
    "method",
    "history_h",
    "note",
    "verdict",
    "elapsed_share",
    "coverage",
    "missing",
)


class _KnownBudgets(NamedTuple):
    """What was computed last: configured budgets, and the month of the host in each currency."""

    time_ns: int
    planned: list[BudgetOverview]
    months: list[BudgetOverview]


class DashboardBudgets:
    """The budgets of a configuration file, which may change while the dashboard is running.

    Args:
        clock: Clocks of the host.
        path: The configuration file; None in demo mode, which has no budget.
        config: Configuration at the start of the server; None for that of demo mode. If the file
            becomes invalid, the last valid configuration stays in force, as in the daemon.
    """

    def __init__(
        self, clock: Clock, path: Path | None = None, config: Config | None = None
    ) -> None:
        self._clock = clock
        self._path = path
        self._config = config or demo_config()
        self._lock = Lock()
        self._books = _books_of(self._config)
        self._known: _KnownBudgets | None = None
        self._fresh_until_ns = 0

    def document(self, reader: StoreReader) -> dict[str, Any]:
        """Return the response of `/api/budgets`; it is recomputed after FRESH_S.

        Raises:
            StoreError: The store cannot be read.
        """
        known = self._current(reader)
        return {
            "time_ms": known.time_ns // NS_PER_MS,
            "budgets": [_entry(overview) for overview in known.planned],
        }

    def overview(self, reader: StoreReader) -> Overview:
        """Return the present overview, with the budgets that `document` computed last.

        It does not wait for them: before their first computation the overview has no spend of the month.

        Raises:
            StoreError: The store cannot be read.
        """
        months = () if self._known is None else self._known.months
        return overview(reader, self._config, self._clock.time_ns(), months)

    def book(self, reader: StoreReader) -> SpendBook | None:
        """Return the spend by the hour; None where no device has a price.

        Raises:
            StoreError: The store cannot be read.
        """
        return next((overview.book for overview in self._current(reader).months), None)

    def _current(self, reader: StoreReader) -> _KnownBudgets:
        with self._lock:
            begun_ns = self._clock.monotonic_ns()
            if self._known is None or begun_ns >= self._fresh_until_ns:
                self._known = self._computed(reader)
                ended_ns = self._clock.monotonic_ns()
                rest_ns = max(int(FRESH_S * NS_PER_S), REST_FACTOR * (ended_ns - begun_ns))
                self._fresh_until_ns = ended_ns + rest_ns
            return self._known

    def _computed(self, reader: StoreReader) -> _KnownBudgets:
        if self._path is not None:
            # `costprobe config check` reports the problem; the dashboard keeps the last valid configuration.
            with suppress(ConfigError):
                before, self._config = self._config.budget, load(self._path)
                if self._config.budget != before:
                    self._books = _books_of(self._config)
        now_ns = self._clock.time_ns()
        return _KnownBudgets(now_ns, *host_months(self._books, self._config.budget, reader, now_ns))


def _books_of(config: Config) -> SpendBooks:
    return SpendBooks(config.budget, config.telemetry.aggregate_s)


def _entry(overview: BudgetOverview) -> Mapping[str, Any]:
    document = overview.document()
    return {
        **{name: document[name] for name in _KEPT},
        "period_words": period_words(overview.status),
        "period_start_ms": document["period_start_ns"] // NS_PER_MS,
        "period_end_ms": document["period_end_ns"] // NS_PER_MS,
    }


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
    tenants = allocation_by("tenant", reader, day, USUAL_S) if has_tenants else []
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
    allocations = ended_values(reader, "allocation", ("cost",), day)["cost"]
    return _label_costs(sorted(names)[:LABELS_MAX], costs, allocations, day)


def _label_costs(
    names: Sequence[str],
    costs: Sequence[SeriesValues],
    allocations: Sequence[SeriesValues],
    day: TimeSpan,
) -> list[dict[str, Any]]:
    """Return the cost of each value of each label; None is the cost without the label."""
    totals = {one: spend.total for one, spend in span_spend(costs, day, USUAL_S).items()}
    found = []
    for name in names:
        labelled = label_spend(name, costs, allocations, day, USUAL_S)
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
