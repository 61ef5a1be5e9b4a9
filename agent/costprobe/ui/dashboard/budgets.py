"""Money on the dashboard: budgets, computed once for all clients, and what the last day cost, by use and label."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.configuration import Config, demo_config, load
from costprobe.core.clock import Clock
from costprobe.core.config.load import ConfigError
from costprobe.core.money import money
from costprobe.core.outside import one_line
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import OWN_TAGS
from costprobe.core.units import counted, percent
from costprobe.spend.budget import BudgetStatus, period_words
from costprobe.spend.evaluate import BudgetOverview, SpendBooks
from costprobe.spend.now import DayAllocation, day_allocations, host_months
from costprobe.spend.query import (
    LATE_NS,
    KeyAllocation,
    KeyCost,
    allocation_by,
    ended_values,
    label_spend,
    span_spend,
)
from costprobe.ui.dashboard.cells import Content, part, planned, price, table
from costprobe.ui.dashboard.now import NS_PER_MS
from costprobe.ui.host_overview import Overview, overview
from costprobe.ui.text import cache_words, short, utc

# The daemon itself forecasts less often.
FRESH_S = 60.0
# Age at which the first screen is computed again.
SEEN_S = 4.0
# What takes longer is computed less often, to limit the CPU time.
REST_FACTOR = 20


class _KnownBudgets(NamedTuple):
    """What was computed last: configured budgets, and the month of the host in each currency."""

    time_ns: int
    planned: list[BudgetOverview]
    months: list[BudgetOverview]
    day: list[DayAllocation]


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
        self._lock, self._looking = Lock(), Lock()
        self._books = _books_of(self._config)
        self._known: _KnownBudgets | None = None
        self._fresh_until_ns = 0
        self._seen: tuple[_KnownBudgets | None, Overview] | None = None
        self._seen_until_ns = 0

    def document(self, reader: StoreReader) -> dict[str, Any]:
        """Return the response of `/api/budgets`; it is recomputed after FRESH_S.

        Raises:
            StoreError: The store cannot be read.
        """
        known = self._current(reader)
        assumed = self.overview(reader).assumed
        return {
            "time_ms": known.time_ns // NS_PER_MS,
            "budgets": [_card(one.status, assumed) for one in known.planned],
        }

    def overview(self, reader: StoreReader) -> Overview:
        """Return the present overview, with the budgets that `document` computed last.

        It does not wait for them: before their first computation the overview has no spend of the month.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._looking:
            begun_ns = self._clock.monotonic_ns()
            if (
                self._seen is None
                or begun_ns >= self._seen_until_ns
                or self._seen[0] is not self._known
            ):
                months = () if self._known is None else self._known.months
                seen = overview(reader, self._config, self._clock.time_ns(), months)
                self._seen = (self._known, seen)
                took_ns = self._clock.monotonic_ns() - begun_ns
                self._seen_until_ns = begun_ns + max(int(SEEN_S * NS_PER_S), REST_FACTOR * took_ns)
            return self._seen[1]

    def day(self, reader: StoreReader, *, is_waited_for: bool = True) -> list[DayAllocation] | None:
        """Return the allocation of the last day by currency; None if it is unknown and not waited for.

        Raises:
            StoreError: The store cannot be read.
        """
        known = self._current(reader) if is_waited_for else self._known
        return None if known is None else known.day

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
        planned, months = host_months(self._books, self._config.budget, reader, now_ns)
        day = day_allocations(reader, months[0].book, now_ns) if months else []
        return _KnownBudgets(now_ns, planned, months, day)


def _books_of(config: Config) -> SpendBooks:
    return SpendBooks(config.budget, config.telemetry.aggregate_s)


_VERDICTS: Final = {
    "exceeded": ("bad", "exceeded"),
    "will be exceeded": ("warn", "will be exceeded"),
}
# The first forecast of a period rests on little.
WELL_COVERED: Final = 0.9


def _card(status: BudgetStatus, assumed: Collection[str]) -> Mapping[str, Any]:
    """Return the contents of a budget's card: spend, forecast with its interval, and what they leave out."""
    budget, remaining = status.budget, status.remaining
    currency, amount, spent = budget.currency, status.amount, status.spent
    # Without a row the spend is unknown, not 0.
    so_far = price(spent, currency) if status.coverage else "no costs known"
    facts: list[tuple[str, Content, str]] = [
        ("spent", so_far, "over" if spent > amount else "spent")
    ]
    most = max(amount, spent, status.high or 0.0) * 1.02
    bar: list[list[Any]] = [["over" if spent > amount else "spent", spent / most]]
    forecast: Content = "not enough data"
    if status.expected is not None and status.low is not None and status.high is not None:
        low, high = (money(end, currency) for end in (status.low, status.high))
        forecast = part(money(status.expected, currency), value=status.expected)
        above = max(0.0, status.low - spent)
        bar += [["gap", above / most], ["band", max(0.0, status.high - spent - above) / most]]
        facts += [("80 % interval", f"{low} to {high}", "")]
    bar.append(["planned", amount / most])
    unknown = f"{percent(1 - status.coverage)} of the time so far was not measured"
    remarks = (
        f"{unknown}: its cost is in none of these amounts"
        if status.coverage < WELL_COVERED
        else "",
        f"{remaining.method}, from {remaining.hours:,} h" if remaining else "",
        status.note,
        f"prices in {currency} are assumed" if currency in assumed else "",
    )
    verdict = status.verdict(amount)
    return {
        "name": budget.name,
        "scope": f"{budget.scope}, {period_words(status)} ({budget.timezone})",
        "big": [so_far, part([" of ", planned(amount, currency)], "small")],
        "bar": bar,
        "state": _VERDICTS.get(verdict, ("good", "within the budget")),
        "facts": [
            *facts[:1],
            ("forecast", forecast, "band"),
            *facts[1:],
            ("budget", planned(amount, currency), "planned"),
            ("period elapsed", percent(status.elapsed_share), ""),
            ("covered so far", percent(status.coverage), ""),
            ("ends", utc(status.period.end_ns), ""),
        ],
        "remarks": [remark for remark in remarks if remark],
        "missing": [short(words) for words in status.missing],
    }


# Length of a row of a device with fewer than three.
USUAL_S = 10.0
# Names of labels, and values of each.
LABELS_MAX = 50
# Tenants by name; the others are one part.
TENANTS_MAX = 20
# A smaller share without the label is a rounding error, or a window that began before the day.
LEAST_REST = 0.001


WORDS: Final = {
    "idle": "paid while services wait",
    "probing": "probing",
    "remainder": "no service, or not yet allocated",
}
# Of the cost without a tenant: its words, and the kind of use that has its colour.
RESTS: Final = {
    "unattributed": ("unattributed", "idle"),
    "probing": ("probing", "probing"),
    "unallocated": ("no service with tenants, or not yet allocated", "remainder"),
}
_HEADS: Final = ("#Cost", "#Share", "Share as a bar~")


def spend_document(
    reader: StoreReader, day: Sequence[DayAllocation], now_ns: int, note: str = ""
) -> dict[str, Any]:
    """Return tables of what the last day cost by use, tenant and label; each adds up to the devices.

    Args:
        reader: The store.
        day: The allocation of the last day, by currency.
        now_ns: UTC in ns.
        note: What is said of the prices.

    Raises:
        StoreError: The store cannot be read.
    """
    if not day:
        return {
            "tables": [table("", ("Use",), (), none="No device had a price in the last 24 hours.")]
        }
    span = TimeSpan(day[0].since_ns, now_ns)
    tenants = allocation_by("tenant", reader, span, USUAL_S) if reader.series("tenant") else []
    labels = _labels(reader, span)
    by_label = table("By label of services, probes and hosts", ("Label", "Value", "#Cost"), labels)
    return {
        "tables": [
            *(_uses(one, note) for one in day),
            *(_tenants(one) for one in tenants),
            *([by_label] if labels else []),
        ]
    }


def _shares(
    caption: str, head: str, parts: Iterable[tuple[str, str, float]], total: float, currency: str
) -> dict[str, Any]:
    """Return a table of parts, each a kind, a name and a cost, with their shares of the total."""

    def row(kind: str, name: str, cost: float) -> list[Content]:
        share = cost / total if total > 0 else 0.0
        bar = part("", bar=[[kind, share]])
        return [part(name, f"key {kind}"), price(cost, currency), percent(share), bar]

    total_row = ["Total", price(total, currency), percent(1), ""]
    return table(caption, (head, *_HEADS), [row(*one) for one in parts], total_row)


def _uses(one: DayAllocation, note: str) -> dict[str, Any]:
    known = f", {percent(one.coverage)} of it measured" if one.coverage < 0.995 else ""  # noqa: PLR2004 - rounded
    parts = [(each.kind, each.name or WORDS[each.kind], each.cost) for each in one.parts]
    caption = f"Hardware and electricity since {utc(one.since_ns)}{known}{note}."
    return _shares(caption, "Use", parts, one.total, one.currency)


def _tenants(allocation: KeyAllocation) -> dict[str, Any]:
    """Return the largest tenants, the sum of the others, and the cost without a tenant."""
    named = [one for one in allocation.parts if one.rest is None]
    others = named[TENANTS_MAX:]

    def line(one: KeyCost) -> tuple[str, str, float]:
        if one.rest is not None:
            words, kind = RESTS[one.rest]
            return kind, words, one.cost
        cached = cache_words(one.cached_share, one.cache_saved, allocation.currency)
        return "tenant", one_line(one.name) + (f" ({cached})" if cached else ""), one.cost

    parts = [line(one) for one in named[:TENANTS_MAX]]
    if others:
        parts.append(
            ("tenant", counted(len(others), "more tenant"), math.fsum(one.cost for one in others))
        )
    parts += [line(one) for one in allocation.parts if one.rest is not None and one.cost]
    caption = "The same cost by tenant; unattributed: services with tenants whose counters do not explain it."
    return _shares(caption, "Tenant", parts, allocation.total, allocation.currency)


def _labels(reader: StoreReader, day: TimeSpan) -> list[list[Content]]:
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
) -> list[list[Content]]:
    """Return name, value and cost of each label; the value "none" is the cost without the label."""
    totals = {one: spend.total for one, spend in span_spend(costs, day, USUAL_S).items()}
    found = []
    for name in names:
        labelled = label_spend(name, costs, allocations, day, USUAL_S)
        for currency, total in sorted(totals.items()):
            parts = labelled.get(currency, {})
            largest = sorted(parts.items(), key=lambda part: (-part[1], part[0]))[:LABELS_MAX]
            rest = total - math.fsum(cost for _, cost in largest)
            values = [*largest, (None, rest)] if rest > total * LEAST_REST else largest
            found += [[name, value or "none", price(cost, currency)] for value, cost in values]
    return found
