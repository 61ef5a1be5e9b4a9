"""Budgets as they stand, read from the store, each with the forecast that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.budgeting.harmonic import MissingLibraryError, UnfitError, harmonic_forecast
from agent.config import Config
from agent.config_budget import BudgetConfig
from agent.costing.budget import BudgetStatus, budget_status
from agent.costing.budget_forecast import Forecast, HourRate, Rest, robust_forecast
from agent.costing.spend import SpendBook
from agent.daemon.budgets import budget_document, restored_book
from agent.daemon.spend_reading import book_name, phase_of, read_spend, usual_of
from agent.storage.reader import StoreReader


@dataclass(frozen=True, slots=True)
class Standing:
    """A budget as it stands.

    Attributes:
        status: What is spent, and where it is heading.
        book: The hours that this was read from.
        note: Why the forecast is not by the method that was asked for; empty where it is.
    """

    status: BudgetStatus
    book: SpendBook
    note: str

    def document(self) -> dict[str, Any]:
        """The budget as JSON, with what is to be said of its forecast."""
        found = budget_document(self.status)
        return {**found, "note": found["note"] or self.note, "verdict": verdict(self.status)}


def verdict(status: BudgetStatus) -> str:
    """`exceeded`, `will be exceeded`, or empty while the budget holds as far as is known."""
    if status.spent > status.amount:
        return "exceeded"
    is_heading_there = status.expected is not None and status.expected > status.amount
    return "will be exceeded" if is_heading_there else ""


def standings_of(
    config: Config,
    reader: StoreReader,
    budgets: Iterable[BudgetConfig],
    now_ns: int,
    method: str = "auto",
    books: MutableMapping[int, SpendBook] | None = None,
) -> list[Standing]:
    """Each budget as it stands.

    Args:
        config: The configuration: how often it makes rows.
        reader: The store.
        budgets: Those that are asked for.
        now_ns: UTC ns of the present.
        method: `harmonic`, `robust`, or `auto`: harmonic where it can be had, else robust.
        books: Hours that were read before, by how far behind UTC they begin; brought up to date,
            so that who looks again reads only what came since.

    Raises:
        MissingLibraryError: `harmonic` was asked for and its library is not installed.
        UnfitError: `harmonic` was asked for and the past does not suit it.
    """
    states = reader.states()
    books = {} if books is None else books
    current: set[int] = set()
    found = []
    for budget in budgets:
        phase_ns = phase_of(budget, now_ns)
        if phase_ns not in books:
            kept, _ = states.get(book_name(phase_ns), (None, 0))
            books[phase_ns] = restored_book(kept, phase_ns)
        if phase_ns not in current:
            read_spend(books[phase_ns], reader, now_ns, usual_of(config))
            current.add(phase_ns)
        chosen = _Chosen(method)
        status = budget_status(budget, books[phase_ns], now_ns, chosen.forecast)
        found.append(Standing(status, books[phase_ns], chosen.note))
    return found


class _Chosen:
    """The forecast that was asked for; `note` says why it is another."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.note = ""

    def forecast(
        self, history: Sequence[HourRate], rest: Sequence[Rest], timezone: str
    ) -> Forecast | None:
        """The library's forecast where it is wanted and can be had, else the robust rate's."""
        if self._method != "robust":
            try:
                return harmonic_forecast(history, rest, timezone)
            except (MissingLibraryError, UnfitError) as error:
                if self._method == "harmonic":
                    raise
                self.note = f"the robust rate: {error}"
        return robust_forecast(history, rest, timezone)
