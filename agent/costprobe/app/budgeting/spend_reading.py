"""Update spend books from the stored rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from costprobe.adapters.storage.history import SeriesValues
from costprobe.adapters.storage.reader import StoreReader
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.budgets.periods import (
    HOUR_NS,
    PERIOD_HOURS,
    TimeSpan,
    hour_phase_ns,
)
from costprobe.domain.costing.budgets.settings import BudgetConfig
from costprobe.domain.costing.budgets.spend import (
    HISTORY_HOURS,
    CostRow,
    Payer,
    SpendBook,
    SpendHour,
    coverage_of,
    spend_by_step,
)

DAY_NS = 24 * HOUR_NS
# Longest delay and longest interval of rows before an hour counts as final.
LATE_NS = 2 * HOUR_NS
# Length of a service's window if there are too few rows to derive it.
WINDOW_S = 300.0


@dataclass(frozen=True, slots=True)
class Usual:
    """Length of a row's interval if there are too few rows to derive it.

    Attributes:
        device_s: Seconds of a row of `device`.
        service_s: Seconds of a row of `allocation`.
    """

    device_s: float
    service_s: float = WINDOW_S


def book_name(phase_ns: int) -> str:
    """Return the name of a book's stored document."""
    return f"budget hours {phase_ns // NS_PER_S}"


def hours_of(budgets: Iterable[BudgetConfig]) -> int:
    """Return the number of hours that the books of budgets keep: the longest period, or the history."""
    return max([HISTORY_HOURS, *(PERIOD_HOURS[budget.period] for budget in budgets)])


def phase_of(budget: BudgetConfig, time_ns: int) -> int:
    """Return the offset in ns of a budget's full hours from UTC's."""
    return hour_phase_ns(budget.timezone, time_ns)


def read_spend(
    book: SpendBook,
    reader: StoreReader,
    now_ns: int,
    usual: Usual,
    pause: Callable[[], bool] | None = None,
) -> bool:
    """Add the rows since the last call; all hours of the book at the first.

    Args:
        book: The book to update.
        reader: The store.
        now_ns: UTC in ns.
        usual: Length of intervals if there are too few rows.
        pause: Called after each day; True ends the reading. None to read all at once.

    Returns:
        False if it was ended early.
    """
    if book.final_ns > now_ns:
        book.clear()  # the wall clock was set back
    oldest_ns = book.start_ns(book.hour_of(now_ns) - book.hours + 1)
    since_ns = max(book.final_ns, oldest_ns)
    book.cut(since_ns)
    payers = _payers(reader)
    while since_ns < now_ns:
        until_ns = now_ns if pause is None else min(since_ns + DAY_NS, now_ns)
        for payer, tags in payers.items():
            _book_one(book, reader, payer, tags, TimeSpan(since_ns, until_ns), usual)
        final_ns = book.start_ns(book.hour_of(min(until_ns, now_ns - LATE_NS)))
        book.final_ns = max(book.final_ns, final_ns)
        since_ns = until_ns
        if since_ns < now_ns and pause is not None and pause():
            return False
    return True


def _payers(reader: StoreReader) -> dict[Payer, Mapping[str, str]]:
    """Return all payers in the store, with the tags of their series."""
    payers: dict[Payer, Mapping[str, str]] = {}
    for series in reader.series("device"):
        device = series.tags.get("device")
        if device:
            payer = Payer("", device, series.tags.get("currency", ""))
            payers[payer] = {"device": device}
    for series in reader.series("allocation"):
        device, service = series.tags.get("device"), series.tags.get("service")
        if device and service:
            payer = Payer(service, device, series.tags.get("currency", ""))
            payers[payer] = {"device": device, "service": service}
    return payers


def _book_one(
    book: SpendBook,
    reader: StoreReader,
    payer: Payer,
    tags: Mapping[str, str],
    span: TimeSpan,
    usual: Usual,
) -> None:
    measurement, usual_s = (
        ("allocation", usual.service_s) if payer.service else ("device", usual.device_s)
    )
    edges_ns = (span.start_ns, span.end_ns)
    around_ns = edges_ns[0] - LATE_NS, edges_ns[1] + LATE_NS
    found = reader.hourly_sums(measurement, ("cost",), *around_ns, tags, cuts_ns=edges_ns)
    rows = cost_rows(
        series for series in found["cost"] if series.tags.get("currency", "") == payer.currency
    )
    if rows:
        book.add_rows(payer, rows, span, usual_s)


def cost_rows(all_series: Iterable[SeriesValues]) -> list[CostRow]:
    """Return the rows of one payer in the order of their ends, summed over its series."""
    rows: dict[int, CostRow] = {}
    for series in all_series:
        for time_ns, cost, end in zip(series.times_ns, series.values, series.ends, strict=True):
            before = rows.get(time_ns)
            if before is None:
                rows[time_ns] = CostRow(end.end_ns, cost, end.rows, end.step_ns)
                continue
            rows[time_ns] = CostRow(
                max(before.end_ns, end.end_ns),
                before.cost + cost,
                max(before.rows, end.rows),
                end.step_ns,
            )
    return sorted(rows.values())


@dataclass(frozen=True, slots=True)
class SpanSpend:
    """What the devices cost in a span, in one currency.

    Attributes:
        by_device: Cost and covered seconds of each device that has a row in it.
        by_step: Cost by the number of a step since 1970, such as a day.
        coverage: Share of the span that rows cover, over these devices.
    """

    by_device: Mapping[str, SpendHour]
    by_step: Mapping[int, float]
    coverage: float


def span_spend(
    costs: Iterable[SeriesValues],
    span: TimeSpan,
    usual: Usual,
    currency_at: Callable[[str, int], str],
    step_ns: int = DAY_NS,
) -> dict[str, SpanSpend]:
    """Return what the devices cost in a span, by currency: as budgets and forecasts count it.

    Args:
        costs: `cost` of the rows of `device`, over the span and LATE_NS around it.
        span: The span.
        usual: Length of intervals if there are too few rows.
        currency_at: Currency of a device's price at a UTC ns, for rows without one.
        step_ns: Length of a step.
    """
    by_payer: dict[tuple[str, str], list[SeriesValues]] = {}
    for series in costs:
        device = series.tags.get("device", "")
        for currency, part in _by_currency(series, currency_at):
            by_payer.setdefault((currency, device), []).append(part)
    by_device: dict[str, dict[str, SpendHour]] = {}
    by_step: dict[str, dict[int, float]] = {}
    for (currency, device), payer_series in by_payer.items():
        cost = covered_s = 0.0
        steps = by_step.setdefault(currency, {})
        rows = cost_rows(payer_series)
        for step, amount, part_s in spend_by_step(rows, usual.device_s, span, step_ns):
            steps[step] = steps.get(step, 0.0) + amount
            cost, covered_s = cost + amount, covered_s + part_s
        if covered_s > 0:
            by_device.setdefault(currency, {})[device] = SpendHour(cost, covered_s)
    length_s = (span.end_ns - span.start_ns) / NS_PER_S
    return {
        currency: SpanSpend(
            hours,
            by_step[currency],
            coverage_of({n: hour.covered_s for n, hour in hours.items()}, length_s),
        )
        for currency, hours in by_device.items()
    }


def _by_currency(
    series: SeriesValues, currency_at: Callable[[str, int], str]
) -> Iterable[tuple[str, SeriesValues]]:
    """Return the values of a series by currency; price plans without one change at most daily."""
    if series.tags.get("currency"):
        return [(series.tags["currency"], series)]
    days: dict[int, str] = {}
    parts: dict[str, SeriesValues] = {}
    device = series.tags.get("device", "")
    for time_ns, value, end in zip(series.times_ns, series.values, series.ends, strict=True):
        day = time_ns // DAY_NS
        if day not in days:
            days[day] = currency_at(device, time_ns)
        parts.setdefault(days[day], SeriesValues(series.tags, [], [])).add(time_ns, value, end)
    return parts.items()
