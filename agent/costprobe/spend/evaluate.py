"""Status of the configured budgets from the store, with their forecasts; stored with its events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import Any

from costprobe.adapters.store.ledger import Ledger
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.periods import hour_phase_ns
from costprobe.core.records import NS_PER_S, Event
from costprobe.spend.budget import (
    BudgetFlags,
    BudgetStatus,
    BudgetWatch,
    budget_point,
    budget_status,
    payers_of,
    spent_since,
)
from costprobe.spend.query import SpendBook, Usual, book_name, hours_of, read_spend
from costprobe.spend.settings import BudgetConfig

logger = logging.getLogger(__name__)

WATCHES_STATE = "budgets"
EVERY_NS = 600 * NS_PER_S
# Pause after each day that is read at the first start, so that measuring is not delayed.
PAUSE_S = 0.05


class BudgetTracker:
    """The budgets of a configuration.

    Args:
        budgets: The budgets.
        usual: Length of a row's interval if there are too few rows.
        ledger: Stores rows of `budget`, and the state for a restart.
        store_path: The store that costs are read from.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        on_event: Receives the event of a budget that is exceeded, or forecast to be.
        stop: Set when the daemon ends.
    """

    def __init__(  # noqa: PLR0913 - the parts that it combines
        self,
        budgets: Sequence[BudgetConfig],
        usual: Usual,
        ledger: Ledger,
        store_path: Path,
        clock: Clock,
        tags: Mapping[str, str],
        *,
        on_event: Callable[[Event], None],
        stop: Flag,
    ) -> None:
        self._budgets = tuple(budgets)
        self._ledger = ledger
        self._store_path = store_path
        self._clock = clock
        self._tags = dict(tags)
        self._usual = usual
        self._on_event = on_event
        self._stop = stop
        self._books: dict[int, SpendBook] = {}
        self._watches = self._stored_watches()
        self._lock = Lock()
        self._documents: list[dict[str, Any]] = []
        # Budgets that are not exceeded: the hour of the last evaluation, and what was spent before it.
        self._open: list[tuple[BudgetConfig, int, float]] = []
        self._started_ns = clock.monotonic_ns()
        self._interval: int | None = None
        self._lacks_costs = True

    def refresh_if_due(self) -> None:
        """Refresh once in each interval of EVERY_NS, aligned to the wall clock.

        In the first one after the start each call does while a budget has no costs yet: they are
        unknown, not 0. Each call does that finds a budget newly exceeded.
        """
        is_early = self._clock.monotonic_ns() - self._started_ns < EVERY_NS
        interval = self._clock.time_ns() // EVERY_NS
        is_due = interval != self._interval or (is_early and self._lacks_costs)
        if is_due or self._is_newly_exceeded():
            self.refresh()
            self._interval = interval

    def _is_newly_exceeded(self) -> bool:
        """Return whether a budget is exceeded that was not at its last evaluation."""
        now_ns = self._clock.time_ns()
        books = self._read(now_ns) if self._open else None
        if books is None:
            return False
        return any(
            spent + spent_since(budget, books[budget.name], hour, now_ns) > budget.amount
            for budget, hour, spent in self._open
        )

    def refresh(self) -> None:
        """Read the spend since the last evaluation, and report budgets that are exceeded."""
        now_ns = self._clock.time_ns()
        books = self._read(now_ns)
        if books is None:
            return
        documents = []
        self._lacks_costs, self._open = False, []
        for budget in self._budgets:
            status = budget_status(budget, books[budget.name], now_ns)
            flags, events = self._watches[budget.name].take(status)
            if not flags.is_exceeded:
                hour = books[budget.name].hour_of(now_ns)
                spent = status.spent - spent_since(budget, books[budget.name], hour, now_ns)
                self._open.append((budget, hour, spent))
            if payers_of(budget, books[budget.name].payers):
                self._ledger.append([budget_point(status, flags, self._tags)])
            else:
                self._lacks_costs = True
            for event in events:
                logger.warning("%s", event.detail)
                self._on_event(event)
            documents.append(_budget_document(status, flags))
        self._ledger.put_state(
            WATCHES_STATE,
            {
                budget.name: {
                    "budget": _identity(budget),
                    "watch": self._watches[budget.name].document(),
                }
                for budget in self._budgets
            },
        )
        with self._lock:
            self._documents = documents

    def status(self) -> list[dict[str, Any]]:
        """Return each budget's status at the last evaluation; empty before the first."""
        with self._lock:
            return list(self._documents)

    def _read(self, now_ns: int) -> dict[str, SpendBook] | None:
        """Return the spend until now by budget; None if the daemon ends."""
        books = {
            budget.name: self._book(hour_phase_ns(budget.timezone, now_ns))
            for budget in self._budgets
        }
        with closing(StoreReader.open(self._store_path)) as reader:
            for book in {book.phase_ns: book for book in books.values()}.values():
                final_ns = book.final_ns
                is_read = read_spend(
                    book, reader, now_ns, self._usual, lambda: self._stop.wait(PAUSE_S)
                )
                if not is_read:
                    return None
                if book.final_ns != final_ns:
                    self._ledger.put_state(book_name(book.phase_ns), book.to_document())
        return books

    def _book(self, phase_ns: int) -> SpendBook:
        """Return the spend book of a phase, restored from the ledger if it is not loaded yet."""
        book = self._books.get(phase_ns)
        if book is None:
            stored = self._ledger.state(book_name(phase_ns))
            hours = hours_of(self._budgets)
            book = self._books[phase_ns] = _restored_book(stored, phase_ns, hours)
        return book

    def _stored_watches(self) -> dict[str, BudgetWatch]:
        """Return the stored watch of each budget; a changed budget starts a new one."""
        stored = self._ledger.state(WATCHES_STATE)
        watches = {}
        for budget in self._budgets:
            watch = BudgetWatch()
            document = stored.get(budget.name) if isinstance(stored, dict) else None
            if isinstance(document, dict) and document.get("budget") == _identity(budget):
                try:
                    watch = BudgetWatch.restore(document["watch"])
                except (KeyError, TypeError, ValueError) as error:
                    logger.warning(
                        "the stored state of budget %s is damaged: %s", budget.name, error
                    )
            watches[budget.name] = watch
        return watches


def _restored_book(stored: object, phase_ns: int, hours: int) -> SpendBook:
    """Return a stored book; a new one if it is damaged, or keeps other hours."""
    if isinstance(stored, dict):
        try:
            book = SpendBook.from_document(stored)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            logger.warning(
                "the stored hours of the budgets are damaged and will be read again: %s", error
            )
        else:
            if (book.phase_ns, book.hours) == (phase_ns, hours):
                return book
    return SpendBook(phase_ns, hours)


def _budget_document(status: BudgetStatus, flags: BudgetFlags | None = None) -> dict[str, Any]:
    """Return a budget's status as JSON, with its conditions if flags are given."""
    budget, remaining = status.budget, status.remaining
    document: dict[str, Any] = {
        "budget": budget.name,
        "scope": budget.scope,
        "period": budget.period,
        "timezone": budget.timezone,
        "period_start_ns": status.period.start_ns,
        "period_end_ns": status.period.end_ns,
        "time_ns": status.time_ns,
        "currency": budget.currency,
        "amount": float(budget.amount),
        "spent": status.spent,
        "forecast": status.expected,
        "forecast_low": status.low,
        "forecast_high": status.high,
        "method": None if remaining is None else remaining.method,
        "history_h": 0 if remaining is None else remaining.hours,
        "note": status.note,
        "elapsed_share": status.elapsed_share,
        "coverage": status.coverage,
        "missing": list(status.missing),
        "foreign": dict(status.foreign),
    }
    if flags is not None:
        document["exceeded"] = flags.is_exceeded
        document["forecast_exceeded"] = flags.is_forecast
    return document


def _identity(budget: BudgetConfig) -> dict[str, Any]:
    return budget.model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class BudgetOverview:
    """A budget's status and the hours that it is computed from.

    Attributes:
        status: Spend and forecast.
        book: These hours.
    """

    status: BudgetStatus
    book: SpendBook

    def document(self) -> dict[str, Any]:
        """Return the budget as JSON."""
        return {
            **_budget_document(self.status),
            "verdict": self.status.verdict(self.status.amount),
        }


def budget_overviews(
    configured: Iterable[BudgetConfig],
    usual: Usual,
    reader: StoreReader,
    budgets: Iterable[BudgetConfig],
    now_ns: int,
    *,
    books: MutableMapping[int, SpendBook] | None = None,
) -> list[BudgetOverview]:
    """Return the status of each budget.

    Args:
        configured: All budgets of the configuration, for which the stored hours are kept.
        usual: Length of a row's interval if there are too few rows.
        reader: The store.
        budgets: The requested budgets.
        now_ns: UTC in ns.
        books: Hours that were read before, by phase; updated, so that the next call reads only
            newer rows.
    """
    states = reader.states()
    books = {} if books is None else books
    current: set[int] = set()
    hours = hours_of(configured)
    overviews = []
    for budget in budgets:
        phase_ns = hour_phase_ns(budget.timezone, now_ns)
        if phase_ns not in books or books[phase_ns].hours != hours:
            stored, _ = states.get(book_name(phase_ns), (None, 0))
            books[phase_ns] = _restored_book(stored, phase_ns, hours)
        if phase_ns not in current:
            read_spend(books[phase_ns], reader, now_ns, usual)
            current.add(phase_ns)
        status = budget_status(budget, books[phase_ns], now_ns)
        overviews.append(BudgetOverview(status, books[phase_ns]))
    return overviews
