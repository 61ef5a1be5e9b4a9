"""Write access to the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from costprobe.adapters.store.cursors import (
    Deliveries,
    QueuedNotice,
    SinkOutbox,
    add_dropped,
    count_notice,
    delete_progress,
    drop_notice,
    enqueue_notices,
)
from costprobe.adapters.store.database import (
    BUSY_TIMEOUT_MS,
    Database,
    StoreLock,
    open_reader,
    open_writer,
)
from costprobe.adapters.store.retention import (
    KeepSince,
    Retained,
    release_free_pages,
    retain,
    set_damaged_aside,
    settle,
)
from costprobe.adapters.store.rows import (
    StoredRow,
    insert,
    put_states,
    rename_devices,
    rendered,
    state_text,
)
from costprobe.core.clock import Clock
from costprobe.core.outside import bounded_json
from costprobe.core.records import Point

RETAIN_ROWS = 500
HOURS_A_STEP = 4
# The outbox is read sequentially: pages are not read again.
OUTBOX_CACHE_KB = 512


class Store(Deliveries):
    """All measured points, and the delivery progress of each sink.

    Methods are thread-safe. Each change is one transaction, durable when the method returns; if it
    fails with StoreError it had no effect.
    """

    def __init__(
        self, path: Path, database: Database, clock: Clock, lock: StoreLock | None = None
    ) -> None:
        super().__init__(database)
        self.path = path
        self._lock = lock
        self._clock = clock
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
        lock: StoreLock | None = None,
    ) -> Store:
        """Open the store; create it if absent, and migrate its schema.

        Args:
            path: The file; its directory is created with mode 0700.
            clock: For the times of states and of delivery progress.
            busy_timeout_ms: How long to wait for another program that is writing, in ms.
            alone: Whether to require and keep exclusive access.
            lock: Released when the store is closed, and if it cannot be opened.

        Raises:
            StoreError: It cannot be written, is damaged, or has another schema.
        """
        try:
            database = open_writer(path, clock.time_ns(), busy_timeout_ms, alone=alone)
            return cls(path, database, clock, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def append(self, points: Sequence[Point]) -> None:
        """Commit points in one transaction.

        Points without fields are skipped. A point at the time of another of its series gets the next
        free nanosecond.

        Raises:
            StoreError: Nothing was stored.
            ValueError: A point without a measurement or with a time beyond 64 bits.
        """
        self.write(rendered(points))

    def write(
        self,
        rows: Sequence[StoredRow],
        states: Mapping[str, str] | None = None,
        dropped_before: int = 0,
        rename: Callable[[str], str] | None = None,
        *,
        repeated: bool = False,
        notices: Sequence[tuple[str, Mapping[str, Any]]] = (),
    ) -> None:
        """Commit rendered rows, texts of named documents and notices, and count dropped points, in one transaction.

        Args:
            rows: The rows.
            states: Texts of documents by name.
            dropped_before: Points that were lost before.
            rename: Returns the present name of a device, for all earlier rows; None if none moved.
            repeated: Whether an earlier attempt to store these rows failed.
            notices: Notifier and alert of each notice, in order.

        Raises:
            StoreError: Nothing was stored.
        """
        if not (rows or states or dropped_before or rename or notices):
            return
        time_ns = self._clock.time_ns()
        with self._database.transaction("write to") as connection:
            if rename is not None:
                rename_devices(connection, rename)
            insert(connection, rows, repeated=repeated)
            put_states(connection, states or {}, time_ns)
            if dropped_before:
                add_dropped(connection, dropped_before)
            enqueue_notices(connection, notices, time_ns)

    def outbox_of(self, sink: str) -> SinkOutbox:
        """Return the outbox of a registered sink."""
        with self._outbox_lock:
            if self._outbox_reader is None:
                self._outbox_reader = open_reader(self.path)
                self._outbox_reader.limit_cache(OUTBOX_CACHE_KB)
        return SinkOutbox(self._database, self._outbox_reader, self._clock, sink)

    def register_sink(self, sink: str) -> None:
        """Create the cursor of a sink, before the first stored row; an existing cursor is kept."""
        with self._database.transaction("register a sink in") as connection:
            connection.execute(
                "INSERT OR IGNORE INTO cursors (sink, acked_seq) VALUES (?, 0)", (sink,)
            )

    def forget_sink(self, sink: str) -> None:
        """Delete the state of a sink that is no longer configured."""
        with self._database.transaction("delete a sink in") as connection:
            connection.execute("DELETE FROM cursors WHERE sink = ?", (sink,))
            delete_progress(connection, sink)

    def commit_alerts(
        self,
        points: Sequence[Point],
        states: Mapping[str, Any],
        notices: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> None:
        """Commit the results of alerting in one transaction, so that a crash neither repeats nor loses notices.

        Args:
            points: Rows of `alert`.
            states: Documents by name.
            notices: Notifier and alert of each notice, in order.

        Raises:
            StoreError: Nothing was stored.
        """
        texts = {name: state_text(document) for name, document in states.items()}
        self.write(rendered(points), texts, notices=notices)

    def notices(self, notifier: str, limit: int) -> list[QueuedNotice]:
        """Return up to `limit` queued notices of a notifier, oldest first."""
        rows = self._fetch(
            "SELECT id, alert, queued_ns FROM notices WHERE notifier = ? ORDER BY id LIMIT ?",
            notifier,
            limit,
        )
        return [QueuedNotice(number, bounded_json(text), time_ns) for number, text, time_ns in rows]

    def notices_sent(self, notices: Sequence[int]) -> None:
        """Record that notices were delivered."""
        with self._database.transaction("record notices in") as connection:
            for notice in notices:
                change = "SET sent = sent + 1, last_sent_ns = ?"
                count_notice(connection, notice, change, self._clock.time_ns())

    def notice_dropped(self, notice: int, reason: str) -> None:
        """Record that a notice was discarded."""
        with self._database.transaction("record a notice in") as connection:
            drop_notice(connection, notice, reason)

    def forget_notifier(self, notifier: str) -> None:
        """Delete a notifier that is no longer configured, with its queue."""
        with self._database.transaction("delete a notifier in") as connection:
            connection.execute("DELETE FROM notices WHERE notifier = ?", (notifier,))
            connection.execute("DELETE FROM notifiers WHERE name = ?", (notifier,))

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Store a small named document; it replaces the previous one.

        Raises:
            ValueError: It contains NaN or an infinity, which JSON does not have.
            TypeError: It is not a JSON value.
        """
        self.write((), {name: state_text(document)})

    def retain(self, since: KeepSince, limit: int = RETAIN_ROWS) -> Retained:
        """Run one bounded step of retention: aggregate old rows, delete the oldest.

        The rows of an hour past the limit of their measurement become one row once every registered
        sink has received them, or once they are also older than `since.outbox_ns`; then they count as
        dropped. Call again until `is_done`.

        Args:
            since: Retention limits.
            limit: Approximate number of rows of a step; an hour is not divided.
        """
        with self._database.transaction("roll up") as connection:
            return retain(connection, since, limit)

    def set_damaged_aside(self) -> int:
        """Set all rows aside that cannot be decoded; return their number."""
        with self._database.transaction("repair") as connection:
            return set_damaged_aside(connection)

    def settle(self, until_ns: int, limit: int = HOURS_A_STEP) -> bool:
        """Write the rows of at most `limit` settled hours, as of a UTC ns; True if all are written."""
        with self._database.transaction("aggregate") as connection:
            return settle(connection, until_ns, limit)

    def release_pages(self, *, keep: bool = True) -> bool:
        """Return some free pages to the file system in a short step; True if there are more.

        Args:
            keep: Whether to keep pages that the next rows will need.
        """
        with self._database.reading("shrink") as connection:
            return release_free_pages(connection, keep=keep)

    def close(self) -> None:
        """Close the file."""
        with self._outbox_lock:
            if self._outbox_reader is not None:
                self._outbox_reader.close()
        try:
            self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()
