"""The books of what was paid for, brought up to date from the stored rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.config import Config
from agent.config_budget import BudgetConfig
from agent.costing.periods import HOUR_NS, Span, hour_phase_ns
from agent.costing.spend import MAX_HOURS, Payer, SpendBook, merged
from agent.model import NS_PER_S
from agent.storage.reader import StoreReader

DAY_NS = 24 * HOUR_NS
# Rows may come so late, and tell of a stretch so long, before an hour counts as final.
LATE_NS = 2 * HOUR_NS
# How long a window of a service is where its own rows are too few to tell.
WINDOW_S = 300.0


@dataclass(frozen=True, slots=True)
class Usual:
    """How long a stretch is that a row tells of, where rows are too few to tell.

    Attributes:
        device_s: Seconds of a row of `device`.
        service_s: Seconds of a row of `allocation`.
    """

    device_s: float
    service_s: float = WINDOW_S


def usual_of(config: Config) -> Usual:
    """What the configuration makes rows of."""
    return Usual(config.telemetry.aggregate_s)


def book_name(phase_ns: int) -> str:
    """The name of the kept document of a book."""
    return f"budget hours {phase_ns // NS_PER_S}"


def phase_of(budget: BudgetConfig, time_ns: int) -> int:
    """How far behind UTC's full hours those of a budget's place begin, in ns."""
    return hour_phase_ns(budget.timezone, time_ns)


def read_spend(
    book: SpendBook,
    reader: StoreReader,
    now_ns: int,
    usual: Usual,
    pause: Callable[[], bool] = lambda: False,
) -> bool:
    """Books what was stored since the last look; at first, of eight weeks.

    Args:
        book: Brought up to date.
        reader: The store.
        now_ns: UTC in ns.
        usual: How long stretches are where rows are too few to tell.
        pause: Called after each day that was read; True ends the reading there.

    Returns:
        False if it was ended before now.
    """
    if book.final_ns > now_ns:
        book.begin_anew()  # the calendar was ahead, and is right again
    oldest_ns = book.start_ns(book.hour_of(now_ns) - MAX_HOURS + 1)
    since_ns = max(book.final_ns, oldest_ns)
    book.cut(since_ns)
    payers = _payers(reader)
    while since_ns < now_ns:
        until_ns = min(since_ns + DAY_NS, now_ns)
        for payer, tags in payers.items():
            _book_one(book, reader, payer, tags, Span(since_ns, until_ns), usual)
        final_ns = book.start_ns(book.hour_of(min(until_ns, now_ns - LATE_NS)))
        book.final_ns = max(book.final_ns, final_ns)
        since_ns = until_ns
        if since_ns < now_ns and pause():
            return False
    return True


def _payers(reader: StoreReader) -> dict[Payer, Mapping[str, str]]:
    """Everything that rows tell the cost of, with tags that narrow to its series."""
    found: dict[Payer, Mapping[str, str]] = {}
    for series in reader.series("device"):
        device = series.tags.get("device")
        if device:
            payer = Payer("", device, series.tags.get("currency", ""))
            found[payer] = {"device": device}
    for series in reader.series("allocation"):
        device, service = series.tags.get("device"), series.tags.get("service")
        if device and service:
            payer = Payer(service, device, series.tags.get("currency", ""))
            found[payer] = {"device": device, "service": service}
    return found


def _book_one(
    book: SpendBook,
    reader: StoreReader,
    payer: Payer,
    tags: Mapping[str, str],
    span: Span,
    usual: Usual,
) -> None:
    measurement, usual_s = (
        ("allocation", usual.service_s) if payer.service else ("device", usual.device_s)
    )
    found = reader.values(measurement, "cost", span.start_ns - LATE_NS, span.end_ns + LATE_NS, tags)
    rows = merged(
        (series.times_ns, series.values)
        for series in found
        if series.tags.get("currency", "") == payer.currency
    )
    if rows:
        book.add_rows(payer, rows, span, usual_s)
