"""The one writer: points are committed here before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple

from agent.clock import Clock
from agent.lineprotocol import field_set, series_key, written_tags
from agent.model import Point
from agent.storage import database
from agent.storage.reader import StoreReader, backlog_after

MAX_SERIES_CACHED = 10_000
MAX_REJECTED_KEPT = 1000
MAX_REJECTED_CHARS = 4000
DROPPED = "dropped_points"
_FREED_PAGES_A_STEP = 500


class OutboxRow(NamedTuple):
    """A point as a sink sees it: its place, and its line protocol."""

    seq: int
    line: str


class Backlog(NamedTuple):
    """What a sink has yet to be given; `oldest_time_ns` is UTC in ns, None if nothing."""

    points: int
    oldest_time_ns: int | None


class Store:
    """Points, cursors of the sinks, and small named documents, in one SQLite file.

    Every call is one transaction, on the disk when it returns; several threads may call.

    Args:
        opened: The file.
        clock: UTC for records.
    """

    def __init__(self, opened: database.Database, clock: Clock) -> None:
        self._database = opened
        self._clock = clock
        self._series_ids: dict[str, int] = {}

    @classmethod
    def open(
        cls, path: Path, clock: Clock, busy_timeout_ms: int = database.BUSY_TIMEOUT_MS
    ) -> Store:
        """Opens the store for its one writer; makes it if there is none.

        Raises:
            StoreError: It cannot be written, or a newer version made it.
        """
        return cls(database.open_writer(path, clock.time_ns(), busy_timeout_ms), clock)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    def reader(self) -> StoreReader:
        """A reader over the writer's own connection; it is not to be closed."""
        return StoreReader(self._database)

    def append(self, points: Iterable[Point]) -> None:
        """Commits points; a point of the same identity replaces the earlier one.

        Raises:
            StoreError: Nothing was stored.
        """
        rendered = [
            (point, series_key(point.measurement, point.tags), field_set(point.fields))
            for point in points
        ]
        found: dict[str, int] = {}
        with self._database.transaction("write to") as connection:
            rows = []
            for point, key, fields in rendered:
                if fields:
                    series_id = self._series_ids.get(key) or found.get(key)
                    if series_id is None:
                        series_id = found[key] = _series_id(connection, key, point)
                    rows.append((series_id, point.time_ns, fields))
            connection.executemany(
                "INSERT OR REPLACE INTO points (series_id, time_ns, fields) VALUES (?, ?, ?)", rows
            )
        # Only what was committed may be remembered: a series that was rolled back is not there.
        if len(self._series_ids) + len(found) > MAX_SERIES_CACHED:
            self._series_ids.clear()
        self._series_ids.update(found)

    def rows_after(self, seq: int, limit: int) -> list[OutboxRow]:
        """Up to `limit` points behind a place, in order, as ready lines.

        Raises:
            StoreError: They cannot be read.
        """
        with self._database.reading("read") as connection:
            return [
                OutboxRow(*row)
                for row in connection.execute(
                    "SELECT points.seq, series.key || ' ' || points.fields || ' ' ||"
                    " points.time_ns FROM points JOIN series ON series.id = points.series_id"
                    " WHERE points.seq > ? ORDER BY points.seq LIMIT ?",
                    (seq, limit),
                )
            ]

    def register_sink(self, name: str, *, from_beginning: bool) -> None:
        """Makes a sink's cursor, at the beginning or at the end; one that is there stays.

        Raises:
            StoreError: It cannot be written.
        """
        with self._database.transaction("write to") as connection:
            start = 0 if from_beginning else _last_seq(connection)
            connection.execute(
                "INSERT OR IGNORE INTO cursors (sink, acked_seq) VALUES (?, ?)", (name, start)
            )

    def forget_sinks_but(self, names: Iterable[str]) -> None:
        """Drops the cursors of sinks that are configured no more: they would hold points back.

        Raises:
            StoreError: It cannot be written.
        """
        kept = set(names)
        with self._database.transaction("write to") as connection:
            known = [name for (name,) in connection.execute("SELECT sink FROM cursors")]
            for name in known:
                if name not in kept:
                    connection.execute("DELETE FROM cursors WHERE sink = ?", (name,))

    def cursor(self, sink: str) -> int:
        """The last place that a sink acknowledged; 0 for an unknown one.

        Raises:
            StoreError: It cannot be read.
        """
        with self._database.reading("read") as connection:
            row = connection.execute(
                "SELECT acked_seq FROM cursors WHERE sink = ?", (sink,)
            ).fetchone()
        return int(row[0]) if row else 0

    def advance(
        self, sink: str, acked_seq: int, sent: int, rejected: Sequence[tuple[str, str]]
    ) -> None:
        """Moves a sink's cursor, counts, and puts refused lines aside with their reasons.

        Args:
            sink: A registered sink.
            acked_seq: The last place that is done.
            sent: Points that were acknowledged.
            rejected: (line, reason) of points that were refused; the newest 1,000 are kept.

        Raises:
            StoreError: Nothing was recorded.
        """
        now_ns = self._clock.time_ns()
        with self._database.transaction("write to") as connection:
            connection.execute(
                "UPDATE cursors SET acked_seq = max(acked_seq, ?), sent_points = sent_points + ?,"
                " rejected_points = rejected_points + ?, acked_ns = ? WHERE sink = ?",
                (acked_seq, sent, len(rejected), now_ns, sink),
            )
            connection.executemany(
                "INSERT INTO rejected (sink, line, reason, time_ns) VALUES (?, ?, ?, ?)",
                [
                    (sink, line[:MAX_REJECTED_CHARS], reason[:MAX_REJECTED_CHARS], now_ns)
                    for line, reason in rejected
                ],
            )
            if rejected:
                connection.execute(
                    "DELETE FROM rejected WHERE sink = ? AND id NOT IN"
                    " (SELECT id FROM rejected WHERE sink = ? ORDER BY id DESC LIMIT ?)",
                    (sink, sink, MAX_REJECTED_KEPT),
                )

    def backlog(self, sink: str) -> Backlog:
        """What a sink has yet to be given.

        Raises:
            StoreError: It cannot be read.
        """
        with self._database.reading("read") as connection:
            row = connection.execute(
                "SELECT acked_seq FROM cursors WHERE sink = ?", (sink,)
            ).fetchone()
            points, oldest_ns = backlog_after(connection, int(row[0]) if row else 0)
        return Backlog(points, oldest_ns)

    def put_state(self, name: str, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keeps a named document, any JSON value.

        Raises:
            StoreError: It cannot be written.
        """
        text = json.dumps(document, separators=(",", ":"))
        with self._database.transaction("write to") as connection:
            connection.execute(
                "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
                (name, text, self._clock.time_ns()),
            )

    def state(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON value
        """A named document; None if there is none.

        Raises:
            StoreError: It cannot be read.
        """
        with self._database.reading("read") as connection:
            row = connection.execute(
                "SELECT document FROM states WHERE name = ?", (name,)
            ).fetchone()
        return json.loads(row[0]) if row else None

    def dropped_points(self) -> int:
        """Points that retention took before every sink had acknowledged them.

        Raises:
            StoreError: It cannot be read.
        """
        with self._database.reading("read") as connection:
            row = connection.execute(
                "SELECT value FROM counters WHERE name = ?", (DROPPED,)
            ).fetchone()
        return int(row[0]) if row else 0

    def prune(self, keep_since_ns: int, outbox_keep_since_ns: int, limit: int) -> int:
        """Deletes points past their retention, a bounded step at a time.

        A point goes when it is older than `keep_since_ns` and every sink has it. What a sink
        has yet to be given waits until it is older than `outbox_keep_since_ns` too; then it
        goes, and is counted as dropped.

        Args:
            keep_since_ns: UTC in ns.
            outbox_keep_since_ns: UTC in ns.
            limit: Most points to look at.

        Returns:
            How many points went.

        Raises:
            StoreError: None did.
        """
        with self._database.transaction("write to") as connection:
            (acked_seq,) = connection.execute("SELECT min(acked_seq) FROM cursors").fetchone()
            if acked_seq is None:
                acked_seq = _last_seq(connection)
            last_chance_ns = min(keep_since_ns, outbox_keep_since_ns)
            # The places ascend with the times but for points that came late: those go in turn.
            head = connection.execute(
                "SELECT seq, time_ns FROM points ORDER BY seq LIMIT ?", (limit,)
            ).fetchall()
            rows = [
                (seq,)
                for seq, time_ns in head
                if time_ns < (keep_since_ns if seq <= acked_seq else last_chance_ns)
            ]
            dropped = sum(seq > acked_seq for (seq,) in rows)
            connection.executemany("DELETE FROM points WHERE seq = ?", rows)
            if dropped:
                connection.execute(
                    "INSERT INTO counters (name, value) VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                    (DROPPED, dropped),
                )
        if rows:
            with self._database.reading("shrink") as connection:
                connection.execute(f"PRAGMA incremental_vacuum({_FREED_PAGES_A_STEP})").fetchall()
        return len(rows)

    def size_bytes(self) -> int:
        """Bytes that the store takes on the disk."""
        return database.size_bytes(self.path)

    def close(self) -> None:
        """Closes the file.

        Raises:
            StoreError: It could not be folded into one; nothing is lost.
        """
        self._database.close()


def _series_id(connection: Connection, key: str, point: Point) -> int:
    row = connection.execute("SELECT id FROM series WHERE key = ?", (key,)).fetchone()
    if row is None:
        tags = json.dumps(written_tags(point.tags), separators=(",", ":"))
        row = connection.execute(
            "INSERT INTO series (measurement, key, tags) VALUES (?, ?, ?) RETURNING id",
            (point.measurement, key, tags),
        ).fetchone()
    return int(row[0])


def _last_seq(connection: Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'points'").fetchone()
    return int(row[0]) if row else 0
