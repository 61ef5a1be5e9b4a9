"""The store as its one writer sees it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from agent.clock import Clock
from agent.model import Point
from agent.storage import notices as queue
from agent.storage import outbox, outbox_order, retention, rollup
from agent.storage.database import BUSY_TIMEOUT_MS, Database, open_reader, open_writer, size_bytes
from agent.storage.notices import NotifierStatus, QueuedNotice
from agent.storage.outbox import Backlog, OutboxRow, RejectedLine, SinkStatus
from agent.storage.rollup import KeepSince, Retained
from agent.storage.rows import Row, SeriesIds, insert, rendered
from agent.storage.sink_outbox import SinkOutbox

RETAIN_ROWS = 500
# The outbox is read from one end to the other: what was read is not wanted again.
OUTBOX_CACHE_KB = 512


class Store:
    """Every point that was measured, and how far each sink has got with them.

    Any thread may call any method; each call that changes something is one transaction, on the
    disk when it returns. All raise StoreError if it could not be done: then nothing was.
    """

    def __init__(self, path: Path, database: Database, clock: Clock) -> None:
        self.path = path
        self._database = database
        self._clock = clock
        self._ids = SeriesIds()
        self._series_lock = Lock()
        self._outbox_reader: Database | None = None
        self._outbox_lock = Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        clock: Clock,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        *,
        alone: bool = False,
    ) -> Store:
        """Opens the store, makes it if there is none, and brings its schema up to date.

        Args:
            path: The file; made with mode 0600, its directory with 0700.
            clock: For the times of states and of sinks' progress.
            busy_timeout_ms: How long to wait for another program that is writing, in ms.
            alone: Whether to open it only if nobody else has it open, and to keep others out.

        Raises:
            StoreError: It cannot be written, is damaged, another program's or a newer version's.
        """
        database = open_writer(path, clock.time_ns(), busy_timeout_ms, alone=alone)
        return cls(path, database, clock)

    def append(self, points: Sequence[Point]) -> None:
        """Commits points together; one with the identity of an older one takes its place.

        Points without fields are skipped.

        Raises:
            StoreError: Nothing was stored.
            ValueError: A point without a measurement or with a time that 64 bits do not hold.
        """
        self.write(rendered(points))

    def write(self, rows: Sequence[Row], dropped_before: int = 0) -> None:
        """Commits rendered rows together, and counts points that never got here.

        Raises:
            StoreError: Nothing was stored.
        """
        if not rows and not dropped_before:
            return
        with self._series_lock:
            try:
                with self._database.transaction("write to") as connection:
                    insert(connection, self._ids, rows)
                    if dropped_before:
                        outbox.count(connection, outbox.DROPPED_POINTS, dropped_before)
            except BaseException:
                self._ids.forget()  # the new ones among them were undone
                raise

    def outbox_of(self, sink: str, *, important_first: bool, max_points: int) -> SinkOutbox:
        """What a registered sink has yet to get.

        Args:
            sink: Its name.
            important_first: Whether a backlog leaves newest first, and device and agent rows last.
            max_points: The most rows that may wait for it.
        """
        with self._outbox_lock:
            if self._outbox_reader is None:
                self._outbox_reader = open_reader(self.path)
                self._outbox_reader.limit_cache(OUTBOX_CACHE_KB)
        return SinkOutbox(
            self._database,
            self._outbox_reader,
            self._clock,
            sink,
            important_first=important_first,
            max_points=max_points,
        )

    def rows_after(self, seq: int, limit: int) -> list[OutboxRow]:
        """Up to `limit` rows behind `seq`, in the order of commits, as ready lines."""
        with self._database.reading("read") as connection:
            return outbox.rows_after(connection, seq, limit)

    def register_sink(self, sink: str, *, from_beginning: bool = True) -> None:
        """Gives a sink its cursor; one that has a cursor keeps it.

        Args:
            sink: Its name.
            from_beginning: Whether a new sink gets what is stored already.
        """
        with self._database.transaction("register a sink in") as connection:
            outbox.register(connection, sink, from_beginning=from_beginning)

    def forget_sink(self, sink: str) -> None:
        """Removes a sink that is configured no more, so that no row waits for it."""
        with self._database.transaction("forget a sink in") as connection:
            connection.execute("DELETE FROM cursors WHERE sink = ?", (sink,))
            outbox_order.forget(connection, sink)

    def cursor(self, sink: str) -> int:
        """The seq of the last row that a sink is done with; 0 before the first.

        Raises:
            KeyError: The sink is not registered.
        """
        with self._database.reading("read") as connection:
            return outbox.cursor(connection, sink)

    def advance(
        self, sink: str, acked_seq: int, sent: int, rejected: Sequence[RejectedLine] = ()
    ) -> None:
        """Records that a sink is done with every row up to `acked_seq`.

        Args:
            sink: Its name.
            acked_seq: The last row it is done with; a cursor never moves back.
            sent: How many rows it delivered since the last call.
            rejected: Rows it was refused for good; the newest REJECTED_KEPT_PER_SINK are kept,
                all are counted.

        Raises:
            KeyError: The sink is not registered.
        """
        with self._database.transaction("move a sink on in") as connection:
            time_ns = self._clock.time_ns()
            outbox.advance(connection, sink, acked_seq, sent, rejected, time_ns)

    def backlog(self, sink: str) -> Backlog:
        """What a sink has yet to send.

        Raises:
            KeyError: The sink is not registered.
        """
        with self._database.reading("read") as connection:
            return outbox_order.backlog(connection, sink)

    def sinks(self) -> list[SinkStatus]:
        """How every registered sink is doing, by name."""
        with self._database.reading("read") as connection:
            return outbox_order.sinks(connection)

    def dropped_points(self) -> int:
        """Points lost since the store was made: unsent ones past retention, and unstored ones."""
        with self._database.reading("read") as connection:
            return outbox.counted(connection, outbox.DROPPED_POINTS)

    def commit_alerts(
        self,
        points: Sequence[Point],
        states: Mapping[str, Any],
        notices: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> None:
        """Keeps what alerting came to, all or none: nothing is told twice or forgotten in a crash.

        Args:
            points: Rows of `alert`.
            states: Documents by name.
            notices: Alerts by the notifier that is to tell them, in order.

        Raises:
            StoreError: Nothing was kept.
        """
        rows = rendered(points)
        time_ns = self._clock.time_ns()
        with self._series_lock:
            try:
                with self._database.transaction("keep incidents in") as connection:
                    insert(connection, self._ids, rows)
                    for name, document in states.items():
                        _put_state(connection, name, document, time_ns)
                    queue.enqueue(connection, notices, time_ns)
            except BaseException:
                self._ids.forget()  # the new ones among them were undone
                raise

    def notices(self, notifier: str, limit: int) -> list[QueuedNotice]:
        """Up to `limit` alerts that wait for a notifier, the oldest first."""
        with self._database.reading("read") as connection:
            return queue.waiting(connection, notifier, limit)

    def notices_sent(self, notices: Sequence[int]) -> None:
        """Records that notices were told."""
        with self._database.transaction("record notices in") as connection:
            queue.sent(connection, notices, self._clock.time_ns())

    def notice_dropped(self, notice: int, reason: str) -> None:
        """Records that a notice will never be told."""
        with self._database.transaction("record a notice in") as connection:
            queue.drop(connection, notice, reason)

    def forget_notifier(self, notifier: str) -> None:
        """Removes a notifier that is configured no more, with all that waits for it."""
        with self._database.transaction("forget a notifier in") as connection:
            queue.forget(connection, notifier)

    def notifiers(self) -> list[NotifierStatus]:
        """How every notifier is doing, by name."""
        with self._database.reading("read") as connection:
            return queue.statuses(connection)

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keeps a small named document in place of the one before.

        Raises:
            ValueError: It holds NaN or an infinity, which JSON does not have.
            TypeError: It is no JSON value.
        """
        with self._database.transaction("keep a state in") as connection:
            _put_state(connection, name, document, self._clock.time_ns())

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """A named document; None if there is none."""
        with self._database.reading("read") as connection:
            row = connection.execute(
                "SELECT document FROM states WHERE name = ?", (name,)
            ).fetchone()
        return json.loads(row[0]) if row else None

    def retain(self, since: KeepSince, limit: int = RETAIN_ROWS) -> Retained:
        """Does one bounded step of retention: old rows are rolled up, the oldest go.

        A row that is older than its measurement's limit becomes part of its minute's or hour's
        row once every registered sink is done with it, and without that once it is older than
        `since.outbox_ns` too: then it counts as dropped. Call again until it says that it is done.

        Args:
            since: From when on rows are kept.
            limit: About how many rows one step handles; at most four times as many.
        """
        with self._series_lock:
            with self._database.transaction("roll up") as connection:
                retained = rollup.retain(connection, since, limit)
            if retained.removed:
                self._ids.forget()  # a series whose last row went is gone
        return retained

    def give_back(self, *, keep: bool = True) -> bool:
        """Returns some free room to the file system, in a short step; True if there is more.

        Args:
            keep: Whether to leave what the next rows will need.
        """
        with self._database.reading("shrink") as connection:
            return retention.give_back_pages(connection, keep=keep)

    def size_bytes(self) -> int:
        """Bytes that the store takes on the disk, its log included."""
        return size_bytes(self.path)

    def close(self) -> None:
        """Closes the file; what is committed stays."""
        with self._outbox_lock:
            if self._outbox_reader is not None:
                self._outbox_reader.close()
        self._database.close()


def _put_state(connection: sqlite3.Connection, name: str, document: Any, time_ns: int) -> None:  # noqa: ANN401 - any JSON value
    connection.execute(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        (name, json.dumps(document, allow_nan=False), time_ns),
    )
