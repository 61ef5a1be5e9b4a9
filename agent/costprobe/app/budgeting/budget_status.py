"""Budget status from the store, each with the requested forecast."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.budgeting.budgets import budget_document, restored_book
from costprobe.app.budgeting.harmonic import MissingLibraryError, UnfitError, harmonic_forecast
from costprobe.app.budgeting.spend_reading import (
    Usual,
    book_name,
    hours_of,
    phase_of,
    read_spend,
)
from costprobe.domain.costing.budgets.budget import BudgetStatus, budget_status
from costprobe.domain.costing.budgets.budget_forecast import (
    Forecast,
    HourRate,
    RemainingHour,
    robust_forecast,
)
from costprobe.domain.costing.budgets.settings import BudgetConfig
from costprobe.domain.costing.budgets.spend import SpendBook


@dataclass(frozen=True, slots=True)
class BudgetOverview:
    """A budget's status and the hours that it is computed from.

    Attributes:
        status: Spend and forecast.
        book: These hours.
        note: Reason why another forecast method was used; empty if the requested one was.
    """

    status: BudgetStatus
    book: SpendBook
    note: str

    def document(self) -> dict[str, Any]:
        """Return the budget as JSON, with a note on its forecast."""
        document = budget_document(self.status)
        return {
            **document,
            "note": document["note"] or self.note,
            "verdict": self.status.verdict(self.status.amount),
        }


def budget_overviews(
    configured: Iterable[BudgetConfig],
    usual: Usual,
    reader: StoreReader,
    budgets: Iterable[BudgetConfig],
    now_ns: int,
    method: str = "auto",
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
        method: `harmonic`, `robust`, or `auto`: harmonic if it is available, else robust.
        books: Hours that were read before, by phase; updated, so that the next call reads only
            newer rows.

    Raises:
        MissingLibraryError: `harmonic` was requested and its library is not installed.
        UnfitError: `harmonic` was requested and the history is not suitable.
    """
    states = reader.states()
    books = {} if books is None else books
    current: set[int] = set()
    hours = hours_of(configured)
    overviews = []
    for budget in budgets:
        phase_ns = phase_of(budget, now_ns)
        if phase_ns not in books or books[phase_ns].hours != hours:
            stored, _ = states.get(book_name(phase_ns), (None, 0))
            books[phase_ns] = restored_book(stored, phase_ns, hours)
        if phase_ns not in current:
            read_spend(books[phase_ns], reader, now_ns, usual)
            current.add(phase_ns)
        chosen = _Chosen(method)
        status = budget_status(budget, books[phase_ns], now_ns, chosen.forecast)
        overviews.append(BudgetOverview(status, books[phase_ns], chosen.note))
    return overviews


class _Chosen:
    """The requested forecast; `note` gives the reason if another was used."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.note = ""

    def forecast(
        self, history: Sequence[HourRate], remaining: Sequence[RemainingHour], timezone: str
    ) -> Forecast | None:
        """Return the library's forecast if requested and available, else the robust rate's."""
        if self._method != "robust":
            try:
                return harmonic_forecast(history, remaining, timezone)
            except (MissingLibraryError, UnfitError) as error:
                if self._method == "harmonic":
                    raise
                self.note = f"the robust rate: {error}"
        return robust_forecast(history, remaining, timezone)
