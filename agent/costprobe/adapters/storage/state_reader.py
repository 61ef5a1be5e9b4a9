"""Read-only access to what the store has besides rows: states, delivery, counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costprobe.adapters.storage import totals
from costprobe.adapters.storage.database import Database, size_bytes
from costprobe.adapters.storage.outbox import notice_queue as notices
from costprobe.adapters.storage.outbox import outbox, outbox_order
from costprobe.adapters.storage.outbox.notice_queue import NotifierStatus
from costprobe.adapters.storage.outbox.outbox import RejectedLine, SinkStatus
from costprobe.adapters.storage.row_finder import stored_json
from costprobe.core.counters import StoredSample


class StateReader:
    """Read state documents, the state of the delivery, and the counters of a store.

    Args:
        path: The store.
        database: Its open connection.
    """

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self._database = database

    def states(self) -> dict[str, tuple[Any, int]]:
        """Return every state document with the UTC ns of its last change."""
        rows = self._fetch("SELECT name, document, time_ns FROM states ORDER BY name")
        return {
            name: (stored_json(self.path, document), time_ns) for name, document, time_ns in rows
        }

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """Return a state document; None if there is none."""
        rows = self._fetch("SELECT document FROM states WHERE name = ?", name)
        return next((stored_json(self.path, document) for (document,) in rows), None)

    def sinks(self) -> list[SinkStatus]:
        """Return the status of every registered sink, by name."""
        with self._database.reading("read") as connection:
            return outbox_order.sinks(connection)

    def notifiers(self) -> list[NotifierStatus]:
        """Return the status of every notifier, by name."""
        with self._database.reading("read") as connection:
            return notices.statuses(connection)

    def rejected(self, sink: str) -> list[tuple[int, RejectedLine]]:
        """Return the newest rows that a sink rejected, with the UTC ns of the rejection, oldest first."""
        rows = self._fetch(
            "SELECT time_ns, line, reason FROM rejected WHERE sink = ? ORDER BY id", sink
        )
        return [(time_ns, RejectedLine(line, reason)) for time_ns, line, reason in rows]

    def dropped_points(self) -> int:
        """Return the points lost since the store was created: past retention unsent, or never stored."""
        with self._database.reading("read") as connection:
            return outbox.counted(connection, outbox.DROPPED_POINTS)

    def totals(self) -> list[StoredSample]:
        """Return the totals of the counters of `/metrics` since the store was created, by name and labels."""
        with self._database.reading("read") as connection:
            return list(totals.read(connection))

    def size_bytes(self) -> int:
        """Return the size of the store on disk in bytes, log included."""
        return size_bytes(self.path)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _fetch(self, sql: str, *values: str | int) -> list[Any]:
        with self._database.reading("read") as connection:
            return connection.execute(sql, values).fetchall()
