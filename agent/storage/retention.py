"""Retention: old rows go, a few at a time, and never unnoticed before they were sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agent.storage.outbox import DROPPED_POINTS, count, newest_seq
from agent.storage.outbox_order import undelivered

_FREE_PAGES_KEPT = 1024
PAGES_GIVEN_BACK = 512


class Gate:
    """Which rows sinks are done with, and what is counted when others go.

    Args:
        connection: In the transaction that the rows go in.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursors: list[tuple[str, int]] = connection.execute(
            "SELECT sink, acked_seq FROM cursors"
        ).fetchall()
        # Without a sink there is nobody to wait for.
        self._all_acked_seq = min((seq for _, seq in self._cursors), default=newest_seq(connection))
        self._is_ahead = False
        self._unsent: dict[str, set[int]] = {sink: set() for sink, _ in self._cursors}

    def due(
        self,
        connection: sqlite3.Connection,
        series_id: int,
        keep_since_ns: int,
        outbox_keep_since_ns: int,
        limit: int,
    ) -> list[tuple[int, int, str]]:
        """The oldest rows of a series that may go: seq, time in UTC ns, fields."""
        return connection.execute(
            "SELECT seq, time_ns, fields FROM points WHERE series_id = ? AND time_ns < ?"
            " AND (seq <= ? OR time_ns < ?) ORDER BY time_ns LIMIT ?",
            (series_id, keep_since_ns, self._all_acked_seq, outbox_keep_since_ns, limit),
        ).fetchall()

    def remove(self, connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
        """Removes rows."""
        ahead = [seq for seq in seqs if seq > self._all_acked_seq]
        if ahead:
            self._is_ahead = True
            for sink, seqs_of_sink in self._unsent.items():
                seqs_of_sink.update(undelivered(connection, sink, ahead))
        connection.executemany("DELETE FROM points WHERE seq = ?", [(seq,) for seq in seqs])

    def settle(self, connection: sqlite3.Connection) -> int:
        """Counts the removed rows that a sink never got, and tells how many those are."""
        dropped = len(set().union(*self._unsent.values()))
        if self._is_ahead:
            count(connection, DROPPED_POINTS, dropped)
            connection.executemany(
                "UPDATE cursors SET dropped_points = dropped_points + ? WHERE sink = ?",
                [(len(seqs), sink) for sink, seqs in self._unsent.items()],
            )
            _skip_what_is_gone(connection)
        return dropped


def forget_empty_series(connection: sqlite3.Connection) -> None:
    """Removes series that no row, rolled up or not, is left of."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS"
        " (SELECT 1 FROM points WHERE points.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM rollups_1m WHERE rollups_1m.series_id = series.id) AND NOT EXISTS"
        " (SELECT 1 FROM rollups_1h WHERE rollups_1h.series_id = series.id)"
    )


def _skip_what_is_gone(connection: sqlite3.Connection) -> None:
    """Moves cursors to just before the first row that is left, so that a backlog counts right."""
    first = connection.execute("SELECT min(seq) FROM points").fetchone()[0]
    before = newest_seq(connection) if first is None else first - 1
    connection.execute(
        "UPDATE cursors SET acked_seq = ? WHERE acked_seq < ?",
        (before, before),
    )


def give_back_pages(connection: sqlite3.Connection, *, keep: bool = True) -> bool:
    """Returns some free pages to the file system; True if there are more to return.

    The file is in SQLite's incremental mode: pages that rows left are reused, and returned only
    here, PAGES_GIVEN_BACK at a time, so that a write waits for one such step at most. VACUUM would
    hold every writer for minutes and need room for a second file; full auto_vacuum would move
    pages in each commit, to give back what the next rows need again.

    Args:
        connection: In autocommit mode.
        keep: Whether to leave what the next rows will need: an eighth of the file.
    """
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    kept = max(_FREE_PAGES_KEPT, pages // 8) if keep else 0
    if free <= kept:
        return False
    # A script is stepped to its end; `execute` would stop after the first page.
    connection.executescript(f"PRAGMA incremental_vacuum({PAGES_GIVEN_BACK})")
    (left,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(kept < left < free)
