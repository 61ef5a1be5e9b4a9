"""Budgets at work: looked at every ten minutes, kept as rows, and told once when they are passed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import Any

from agent.clock import Clock
from agent.config import Config
from agent.config_budget import BudgetConfig
from agent.costing.budget import BudgetStatus, budget_status
from agent.costing.budget_watch import BudgetWatch, Standing, budget_point
from agent.costing.spend import SpendBook
from agent.daemon.accounts import Ledger
from agent.daemon.spend_reading import book_name, phase_of, read_spend, usual_of
from agent.model import Event
from agent.storage.reader import StoreReader

logger = logging.getLogger(__name__)

WATCHES_STATE = "budgets"
# Reading eight weeks at the first start leaves the processor to measuring in between.
PAUSE_S = 0.05


class Budgets:
    """The budgets of a configuration.

    Args:
        config: The configuration: its budgets, and how often it makes rows.
        ledger: Keeps rows of `budget`, and what was spent and told over a restart.
        store_path: The store that costs are read from.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        on_event: Told when a budget is exceeded or will be.
        stop: Set when the daemon ends.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        store_path: Path,
        clock: Clock,
        tags: Mapping[str, str],
        *,
        on_event: Callable[[Event], None],
        stop: Flag,
    ) -> None:
        self._budgets = config.budget
        self._ledger = ledger
        self._store_path = store_path
        self._clock = clock
        self._tags = dict(tags)
        self._usual = usual_of(config)
        self._on_event = on_event
        self._stop = stop
        self._books: dict[int, SpendBook] = {}
        self._watches = self._remembered()
        self._lock = Lock()
        self._documents: list[dict[str, Any]] = []

    def refresh(self) -> None:
        """Reads what was spent since the last look and tells of the budgets that it passes."""
        now_ns = self._clock.time_ns()
        documents = []
        books = {budget.name: self._book(phase_of(budget, now_ns)) for budget in self._budgets}
        with closing(StoreReader.open(self._store_path)) as reader:
            for book in {book.phase_ns: book for book in books.values()}.values():
                final_ns = book.final_ns
                is_read = read_spend(
                    book, reader, now_ns, self._usual, lambda: self._stop.wait(PAUSE_S)
                )
                if not is_read:
                    return
                if book.final_ns != final_ns:
                    self._ledger.put_state(book_name(book.phase_ns), book.to_document())
        for budget in self._budgets:
            status = budget_status(budget, books[budget.name], now_ns)
            standing, events = self._watches[budget.name].take(status)
            self._ledger.append([budget_point(status, standing, self._tags)])
            for event in events:
                logger.warning("%s", event.detail)
                self._on_event(event)
            documents.append(budget_document(status, standing))
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
        """Where each budget stood at the last look; empty before the first."""
        with self._lock:
            return list(self._documents)

    def _book(self, phase_ns: int) -> SpendBook:
        """The book of a place's hours, as it was kept where there is none yet."""
        book = self._books.get(phase_ns)
        if book is None:
            kept = self._ledger.state(book_name(phase_ns))
            book = self._books[phase_ns] = restored_book(kept, phase_ns)
        return book

    def _remembered(self) -> dict[str, BudgetWatch]:
        """What was told of each budget in its period; one that was changed is told anew."""
        kept = self._ledger.state(WATCHES_STATE)
        watches = {}
        for budget in self._budgets:
            watch = BudgetWatch()
            document = kept.get(budget.name) if isinstance(kept, dict) else None
            if isinstance(document, dict) and document.get("budget") == _identity(budget):
                try:
                    watch = BudgetWatch.restore(document["watch"])
                except (KeyError, TypeError, ValueError) as error:
                    logger.warning("what was told of budget %s is damaged: %s", budget.name, error)
            watches[budget.name] = watch
        return watches


def restored_book(kept: object, phase_ns: int) -> SpendBook:
    """A book as it was kept; one that is damaged, or of other hours, begins anew."""
    if isinstance(kept, dict):
        try:
            book = SpendBook.from_document(kept)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            logger.warning("the hours of the budgets are damaged and are read anew: %s", error)
        else:
            if book.phase_ns == phase_ns:
                return book
    return SpendBook(phase_ns)


def budget_document(status: BudgetStatus, standing: Standing | None = None) -> dict[str, Any]:
    """Where a budget stands, as JSON; without a standing, which conditions hold is not told."""
    budget, rest = status.budget, status.rest
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
        "method": None if rest is None else rest.method,
        "hours": 0 if rest is None else rest.hours,
        "note": status.note,
        "elapsed_share": status.elapsed_share,
        "coverage": status.coverage,
        "missing": list(status.missing),
        "foreign": dict(status.foreign),
    }
    if standing is not None:
        document["exceeded"] = standing.is_exceeded
        document["forecast_exceeded"] = standing.is_forecast
    return document


def _identity(budget: BudgetConfig) -> dict[str, Any]:
    return budget.model_dump(mode="json")
