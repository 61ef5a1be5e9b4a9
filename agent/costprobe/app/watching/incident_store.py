"""Rows and notices of incidents: stored together with the state, or in memory until they are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.writer import Store
from costprobe.core.incident import Notice
from costprobe.core.records import NS_PER_S, Point

logger = logging.getLogger(__name__)

REFRESH_NS = 60 * NS_PER_S
MAX_WAITING = 10_000


class IncidentStore:
    """Stores what evaluations of the rules produce; while the store fails, it waits in memory.

    What waits is bounded; the oldest is dropped first, and dropped notices are counted. It is kept
    across reloads.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._points: list[Point] = []
        self._notices: list[Notice] = []
        self._states: Mapping[str, Any] = {}
        self._dropped_notices = 0
        self._committed_ns = 0
        self._fault: str | None = None

    @property
    def waiting_points(self) -> int:
        """Number of rows in memory."""
        return len(self._points)

    def add(self, points: Sequence[Point], notices: Sequence[Notice]) -> None:
        """Add rows and notices, which the next commit stores."""
        self._points += points
        self._notices += notices
        del self._points[:-MAX_WAITING]
        dropped = max(0, len(self._notices) - MAX_WAITING)
        if dropped:
            del self._notices[:dropped]
            self._dropped_notices += dropped

    def is_due(self, now_ns: int) -> bool:
        """Return whether something waits, or the stored state is old.

        Args:
            now_ns: UTC in ns.
        """
        is_recent = 0 <= now_ns - self._committed_ns < REFRESH_NS
        return bool(self._points or self._notices) or not is_recent

    def commit(self, states: Mapping[str, Any], now_ns: int) -> bool:
        """Store states, rows and notices in one transaction; return whether it stored notices.

        Args:
            states: Documents by name.
            now_ns: UTC in ns.
        """
        notices = [(notice.notifier, notice.alert.to_document()) for notice in self._notices]
        try:
            self._store.commit_alerts(self._points, states, notices)
        except StoreError as error:
            if self._fault is None:
                logger.error("incidents wait in memory: %s", error)  # noqa: TRY400 - no traceback: the text has the cause
            self._fault, self._states = str(error), states
            return False
        self._fault, self._states = None, {}
        self._committed_ns = now_ns
        self._points, self._notices = [], []
        return bool(notices)

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """Return the newest state of a name, also while it cannot be stored; None if there is none."""
        return self._states.get(name) or self._store.state(name)

    def unstored(self) -> Sequence[Notice]:
        """Return and remove the notices that could not be stored."""
        if self._fault is None:
            return ()
        notices, self._notices = self._notices, []
        return notices

    def status(self) -> dict[str, Any]:
        """Return the status for `costprobe status`; `fault` is None while incidents are stored."""
        return {
            "fault": self._fault,
            "waiting_notices": len(self._notices),
            "dropped_notices": self._dropped_notices,
        }
