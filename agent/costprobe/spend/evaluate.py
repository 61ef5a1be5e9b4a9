"""Status of the configured budgets from the store, with their forecasts; stored with its events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costprobe.adapters.store.ledger import Ledger
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import Clock
from costprobe.core.periods import PERIOD_HOURS, hour_phase_ns
from costprobe.core.records import NS_PER_S, Event
from costprobe.spend.budget import (
    BudgetStatus,
    budget_point,
    budget_status,
    payers_of,
    restored_watches,
    watches_document,
)
from costprobe.spend.query import SpendBook
from costprobe.spend.settings import HISTORY_HOURS, BudgetConfig

logger = logging.getLogger(__name__)

WATCHES_STATE = "budgets"
ROWS_EVERY_NS = 600 * NS_PER_S


class SpendBooks:
    """The costs by the hour that budgets are computed from, a book for each offset of full hours.

    Args:
        budgets: All budgets of the configuration: the longest period is kept.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
    """

    def __init__(self, budgets: Iterable[BudgetConfig], usual_s: float) -> None:
        self._hours = max([HISTORY_HOURS, *(PERIOD_HOURS[budget.period] for budget in budgets)])
        self._usual_s = usual_s
        self._books: dict[int, SpendBook] = {}

    def read(
        self, reader: StoreReader, budgets: Iterable[BudgetConfig], now_ns: int
    ) -> list[SpendBook]:
        """Return the book of each budget, read on to a UTC ns.

        Raises:
            StoreError: The store cannot be read.
        """
        phases = [hour_phase_ns(budget.timezone, now_ns) for budget in budgets]
        for phase_ns in {*phases}:
            book = self._books.setdefault(phase_ns, SpendBook(phase_ns, self._hours))
            book.read(reader, now_ns, self._usual_s)
        return [self._books[phase_ns] for phase_ns in phases]


class BudgetTracker:
    """The budgets of a configuration.

    Args:
        budgets: The budgets.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
        ledger: Stores rows of `budget`, and the state for a restart.
        store_path: The store that costs are read from.
        clock: The host's clocks.
        tags: Host and static labels, on every row.
        on_event: Receives the event of a budget that is exceeded, or forecast to be.
    """

    def __init__(
        self,
        budgets: Sequence[BudgetConfig],
        usual_s: float,
        ledger: Ledger,
        store_path: Path,
        clock: Clock,
        tags: Mapping[str, str],
        *,
        on_event: Callable[[Event], None],
    ) -> None:
        self._budgets = tuple(budgets)
        self._ledger = ledger
        self._store_path = store_path
        self._clock = clock
        self._tags = dict(tags)
        self._on_event = on_event
        self._books = SpendBooks(budgets, usual_s)
        self._watches = restored_watches(budgets, ledger.state(WATCHES_STATE))
        self._documents: list[dict[str, Any]] = []
        self._interval: int | None = None

    def refresh(self) -> None:
        """Evaluate the budgets; store their rows once in ROWS_EVERY_NS of the wall clock, and with an event.

        A budget without costs yet has no row: they are unknown, not 0.
        """
        now_ns = self._clock.time_ns()
        before, self._interval = self._interval, now_ns // ROWS_EVERY_NS
        with closing(StoreReader.open(self._store_path)) as reader:
            found = budget_overviews(self._books, reader, self._budgets, now_ns)
        documents = []
        for budget, overview in zip(self._budgets, found, strict=True):
            status, watch = overview.status, self._watches[budget.name]
            events = watch.take(status)
            is_due = self._interval != before or bool(events)
            if is_due and payers_of(budget, overview.book.payers):
                self._ledger.append([budget_point(status, watch, self._tags)])
            for event in events:
                logger.warning("%s", event.detail)
                self._on_event(event)
            conditions = {"exceeded": watch.exceeded, "forecast_exceeded": watch.is_forecast}
            documents.append(status.document() | conditions)
        watches = watches_document(self._budgets, self._watches)
        if watches != self._ledger.state(WATCHES_STATE):
            self._ledger.put_state(WATCHES_STATE, watches)
        self._documents = documents

    def status(self) -> list[dict[str, Any]]:
        """Return each budget's status at the last evaluation; empty before the first."""
        return self._documents


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
        return self.status.document() | {"verdict": self.status.verdict(self.status.amount)}


def budget_overviews(
    books: SpendBooks, reader: StoreReader, budgets: Sequence[BudgetConfig], now_ns: int
) -> list[BudgetOverview]:
    """Return the status of each budget at a UTC ns.

    Args:
        books: Hours that were read before; updated, so that the next call reads only newer rows.
        reader: The store.
        budgets: The requested budgets.
        now_ns: UTC in ns.

    Raises:
        StoreError: The store cannot be read.
    """
    return [
        BudgetOverview(budget_status(budget, book, now_ns), book)
        for budget, book in zip(budgets, books.read(reader, budgets, now_ns), strict=True)
    ]
