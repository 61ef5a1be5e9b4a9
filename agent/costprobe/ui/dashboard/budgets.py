"""Budgets on the dashboard: the figures of `costprobe budget`, cached for all clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config, demo_config, load
from costprobe.core.clock import Clock
from costprobe.core.config.load import ConfigError
from costprobe.core.records import NS_PER_S
from costprobe.spend.budget import period_words
from costprobe.spend.evaluate import BudgetOverview, budget_overviews
from costprobe.spend.now import host_budgets, paid_currencies
from costprobe.spend.query import SpendBook, Usual
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
        self._books: dict[int, SpendBook] = {}
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
                self._config = load(self._path)
        now_ns = self._clock.time_ns()
        planned = self._config.budget
        usual = Usual(self._config.telemetry.aggregate_s)
        of_host = host_budgets(planned, paid_currencies(reader))
        wanted = [*planned, *(budget for budget in of_host if budget not in planned)]
        found = dict(
            zip(
                map(id, wanted),
                budget_overviews(planned, usual, reader, wanted, now_ns, books=self._books),
                strict=True,
            )
        )
        return _KnownBudgets(
            now_ns,
            [found[id(budget)] for budget in planned],
            [found[id(budget)] for budget in of_host],
        )


def _entry(overview: BudgetOverview) -> Mapping[str, Any]:
    document = overview.document()
    return {
        **{name: document[name] for name in _KEPT},
        "period_words": period_words(overview.status),
        "period_start_ms": document["period_start_ns"] // NS_PER_MS,
        "period_end_ms": document["period_end_ns"] // NS_PER_MS,
    }
