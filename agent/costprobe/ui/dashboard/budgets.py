"""Budgets on the dashboard: the figures of `costprobe budget`, cached for all clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from costprobe.adapters.storage.reader import StoreReader
from costprobe.app.budgeting.budget_status import BudgetOverview, budget_overviews
from costprobe.app.configuration import DEMO, Config, load
from costprobe.core.clock import Clock
from costprobe.core.config.load import ConfigError
from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.budgets.budget import period_words
from costprobe.domain.costing.budgets.spend import SpendBook
from costprobe.ui.dashboard.now import NS_PER_MS

# A fit takes some 0.1 s of CPU time, and the daemon itself forecasts less often.
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


class DashboardBudgets:
    """The budgets of a configuration file, which may change while the dashboard is running.

    Args:
        clock: Clocks of the host.
        path: The configuration file; None in demo mode, which has no budget.
        config: Configuration at the start of the server. If the file becomes invalid, the last
            valid configuration stays in force, as in the daemon.
    """

    def __init__(self, clock: Clock, path: Path | None = None, config: Config = DEMO) -> None:
        self._clock = clock
        self._path = path
        self._config = config
        self._lock = Lock()
        self._books: dict[int, SpendBook] = {}
        self._made: dict[str, Any] | None = None
        self._fresh_until_ns = 0

    def document(self, reader: StoreReader) -> dict[str, Any]:
        """Return the response of `/api/budgets`; it is recomputed after FRESH_S.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            begun_ns = self._clock.monotonic_ns()
            if self._made is None or begun_ns >= self._fresh_until_ns:
                self._made = self._computed(reader)
                ended_ns = self._clock.monotonic_ns()
                rest_ns = max(int(FRESH_S * NS_PER_S), REST_FACTOR * (ended_ns - begun_ns))
                self._fresh_until_ns = ended_ns + rest_ns
            return self._made

    def _computed(self, reader: StoreReader) -> dict[str, Any]:
        if self._path is not None:
            # `costprobe config check` reports the problem; the dashboard keeps the last valid configuration.
            with suppress(ConfigError):
                self._config = load(self._path)
        now_ns = self._clock.time_ns()
        planned = self._config.budget
        overviews = budget_overviews(self._config, reader, planned, now_ns, books=self._books)
        return {
            "time_ms": now_ns // NS_PER_MS,
            "budgets": [_entry(overview) for overview in overviews],
        }


def _entry(overview: BudgetOverview) -> Mapping[str, Any]:
    document = overview.document()
    return {
        **{name: document[name] for name in _KEPT},
        "period_words": period_words(overview.status),
        "period_start_ms": document["period_start_ns"] // NS_PER_MS,
        "period_end_ms": document["period_end_ns"] // NS_PER_MS,
    }
