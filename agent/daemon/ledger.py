"""The daemon's ledger: the store behind a buffer, so that a full disk never stops measuring."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import Lock
from typing import Any

from agent.config import StoreConfig
from agent.model import NS_PER_S, Point
from agent.storage.buffer import BufferedWriter
from agent.storage.errors import StoreError
from agent.storage.rollup import KeepSince
from agent.storage.writer import Store

logger = logging.getLogger(__name__)

PRUNE_STEPS = 50
BEGINNING_OF_TIME_NS = -(2**63)


class StoreLedger:
    """Rows and documents in the store; both wait in memory while it cannot be written.

    Args:
        store: The one writer.
        buffer: What stands before it.
    """

    def __init__(self, store: Store, buffer: BufferedWriter) -> None:
        self._store = store
        self._buffer = buffer
        self._lock = Lock()
        self._documents: dict[str, Any] = {}
        self._unsaved: set[str] = set()

    def append(self, points: Iterable[Point]) -> None:
        """Keeps rows, on disk or in the buffer; never raises for a disk that is full."""
        before = self._buffer.fault
        self._buffer.append(tuple(points))
        after = self._buffer.fault
        if after != before:
            if after is None:
                logger.info("the store takes rows again")
            else:
                logger.error("%s; rows wait in memory", after)

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - a document is any JSON value
        """A named document; None if there is none."""
        with self._lock:
            if name not in self._documents:
                self._documents[name] = self._store.state(name)
            return self._documents[name]

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keeps a named document; one that cannot be written now is written with the next."""
        with self._lock:
            self._documents[name] = document
            self._unsaved.add(name)
            try:
                for unsaved in sorted(self._unsaved):
                    self._store.put_state(unsaved, self._documents[unsaved])
                    self._unsaved.discard(unsaved)
            except StoreError as error:
                logger.debug("kept in memory: %s", error)


def keep_since(config: StoreConfig, now_ns: int) -> KeepSince:
    """From when on rows are kept.

    Args:
        config: For how long.
        now_ns: UTC in ns of now.
    """
    return KeepSince(
        *(
            # A retention of a thousand years is older than a store can say.
            max(now_ns - int(kept_s * NS_PER_S), BEGINNING_OF_TIME_NS)
            for kept_s in (
                config.retention_s,
                config.rollup_1m_retention_s,
                config.rollup_1h_retention_s,
                config.outbox_retention_s,
            )
        )
    )


def prune(store: Store, config: StoreConfig, now_ns: int) -> None:
    """Rolls up and lets go of rows that are past their retention, in a bounded number of steps.

    Others write between two steps; what is not done yet is done the next time.

    Args:
        store: The one writer.
        config: How long rows are kept.
        now_ns: UTC in ns of now.
    """
    since = keep_since(config, now_ns)
    for _ in range(PRUNE_STEPS):
        if store.retain(since).is_done:
            break
    for _ in range(PRUNE_STEPS):
        if not store.give_back():
            return
