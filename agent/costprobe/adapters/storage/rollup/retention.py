"""Retention: deletion of old rows in small steps, with a count of those that were not sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from costprobe.adapters.storage.outbox.outbox import DROPPED_POINTS, count, newest_seq
from costprobe.adapters.storage.outbox.outbox_order import undelivered

_FREE_PAGES_KEPT = 1024
PAGES_PER_STEP = 512


class DeliveryGate:
    """Tracks which rows sinks have received, and counts others that are deleted.

    Args:
        connection: In the transaction that deletes the rows.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursors: list[tuple[str, int]] = connection.execute(
            "SELECT sink, acked_seq FROM cursors"
        ).fetchall()
        # Without a sink no row waits.
        self._all_acked_seq = min((seq for _, seq in self._cursors), default=newest_seq(connection))
        self._has_unsent = False
        self._unsent: dict[str, set[int]] = {sink: set() for sink, _ in self._cursors}

    def due(
        self,
        connection: sqlite3.Connection,
        series_id: int,
        keep_since_ns: int,
        outbox_keep_since_ns: int,
        limit: int,
    ) -> list[tuple[int, int, str]]:
        """Return the oldest rows of a series that may be deleted: seq, time in UTC ns, fields."""
        return connection.execute(
            "SELECT seq, time_ns, fields FROM points WHERE series_id = ? AND time_ns < ?"
            " AND (seq <= ? OR time_ns < ?) ORDER BY time_ns LIMIT ?",
            (series_id, keep_since_ns, self._all_acked_seq, outbox_keep_since_ns, limit),
        ).fetchall()

    def remove(self, connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
        """Delete rows."""
        unsent = [seq for seq in seqs if seq > self._all_acked_seq]
        if unsent:
            self._has_unsent = True
            for sink, seqs_of_sink in self._unsent.items():
                seqs_of_sink.update(undelivered(connection, sink, unsent))
        connection.executemany("DELETE FROM points WHERE seq = ?", [(seq,) for seq in seqs])

    def settle(self, connection: sqlite3.Connection) -> int:
        """Count the deleted rows that a sink never received, and return their number."""
        dropped = len(set().union(*self._unsent.values()))
        if self._has_unsent:
            count(connection, DROPPED_POINTS, dropped)
            connection.executemany(
                "UPDATE cursors SET dropped_points = dropped_points + ? WHERE sink = ?",
                [(len(seqs), sink) for sink, seqs in self._unsent.items()],
            )
            _skip_deleted(connection)
        return dropped


def delete_empty_series(connection: sqlite3.Connection) -> None:
    """Delete series without any raw or aggregated row."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS"
        " (SELECT 1 FROM points WHERE points.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM rollups_1m WHERE rollups_1m.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM rollups_1h WHERE rollups_1h.series_id = series.id)"
    )


def _skip_deleted(connection: sqlite3.Connection) -> None:
    """Advance cursors to just before the first remaining row, so that backlogs are counted right."""
    first = connection.execute("SELECT min(seq) FROM points").fetchone()[0]
    before = newest_seq(connection) if first is None else first - 1
    connection.execute(
        "UPDATE cursors SET acked_seq = ? WHERE acked_seq < ?",
        (before, before),
    )


def release_free_pages(connection: sqlite3.Connection, *, keep: bool = True) -> bool:
    """Return some free pages to the file system; True if there are more.

    The file uses incremental auto_vacuum: free pages are reused, and returned only here,
    PAGES_PER_STEP at a time, so that a write waits for at most one such step. VACUUM would block
    the writer for minutes and need space for a second file; full auto_vacuum would move pages in
    each commit, although the next rows need them again.

    Args:
        connection: In autocommit mode.
        keep: Whether to keep an eighth of the file for the next rows.
    """
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    kept_pages = max(_FREE_PAGES_KEPT, pages // 8) if keep else 0
    if free <= kept_pages:
        return False
    # executescript runs the pragma to its end; `execute` would stop after the first page.
    connection.executescript(f"PRAGMA incremental_vacuum({PAGES_PER_STEP})")
    (left,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(kept_pages < left < free)
