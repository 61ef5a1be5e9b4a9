"""The daemon's ledger: the store behind a buffer, so that a full disk never stops measuring."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import Lock
from typing import Any

from agent.model import Point
from agent.storage.buffer import BufferedWriter
from agent.storage.errors import StoreError
from agent.storage.writer import Store

logger = logging.getLogger(__name__)


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
