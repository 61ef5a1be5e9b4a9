"""Budgets on the page: the figures that `infercost forecast` prints, made once for all who look."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from agent.budgeting.standings import Standing, standings_of
from agent.clock import Clock
from agent.config import TRY_OUT, Config
from agent.config_file import ConfigError, load
from agent.costing.budget import period_words
from agent.costing.spend import SpendBook
from agent.dashboard.now import NS_PER_MS
from agent.model import NS_PER_S
from agent.storage.reader import StoreReader

# A fit takes some tenths of a second of the processor, and the daemon itself looks less often.
FRESH_S = 60.0
# Many budgets take longer: what is left of a processor belongs to the host's own work.
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
    "hours",
    "note",
    "verdict",
    "elapsed_share",
    "coverage",
    "missing",
)


class Budgets:
    """The budgets of a configuration file, which may change while the page is served.

    Args:
        clock: What time it is.
        path: The configuration file; None in a try-out, which plans nothing.
        config: What the file held when the server began; a file that cannot be used any more
            leaves what was read last in force, as it does in the daemon.
    """

    def __init__(self, clock: Clock, path: Path | None = None, config: Config = TRY_OUT) -> None:
        self._clock = clock
        self._path = path
        self._config = config
        self._lock = Lock()
        self._books: dict[int, SpendBook] = {}
        self._made: dict[str, Any] | None = None
        self._fresh_until_ns = 0

    def document(self, reader: StoreReader) -> dict[str, Any]:
        """The answer of `/api/budgets`; it is made anew once it is FRESH_S old.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._lock:
            begun_ns = self._clock.monotonic_ns()
            if self._made is None or begun_ns >= self._fresh_until_ns:
                self._made = self._looked(reader)
                ended_ns = self._clock.monotonic_ns()
                rest_ns = max(int(FRESH_S * NS_PER_S), REST_FACTOR * (ended_ns - begun_ns))
                self._fresh_until_ns = ended_ns + rest_ns
            return self._made

    def _looked(self, reader: StoreReader) -> dict[str, Any]:
        if self._path is not None:
            # `infercost config check` names what is wrong; the page is no place to mend it.
            with suppress(ConfigError):
                self._config = load(self._path)
        now_ns = self._clock.time_ns()
        planned = self._config.budget
        found = standings_of(self._config, reader, planned, now_ns, books=self._books)
        return {
            "time_ms": now_ns // NS_PER_MS,
            "budgets": [_entry(standing) for standing in found],
        }


def _entry(standing: Standing) -> Mapping[str, Any]:
    document = standing.document()
    return {
        **{name: document[name] for name in _KEPT},
        "period_words": period_words(standing.status),
        "period_start_ms": document["period_start_ns"] // NS_PER_MS,
        "period_end_ms": document["period_end_ns"] // NS_PER_MS,
    }
