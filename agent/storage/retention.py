"""Retention: old rows go, a few at a time, and never unnoticed before they were sent."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from agent.storage.outbox import DROPPED_POINTS, count, newest_seq
from agent.storage.outbox_order import undelivered

_FREE_PAGES_KEPT = 1024
_PAGES_GIVEN_BACK = 512


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one step of retention did.

    Attributes:
        removed: Rows removed that every sink was done with.
        dropped: Rows removed that at least one sink never got.
        is_done: False if the step ended at its limit and more may be due.
    """

    removed: int
    dropped: int
    is_done: bool


def prune(
    connection: sqlite3.Connection, keep_since_ns: int, outbox_keep_since_ns: int, limit: int
) -> Pruned:
    """Removes up to `limit` rows; see `Store.prune`."""
    acked = connection.execute("SELECT sink, acked_seq FROM cursors").fetchall()
    # Without a sink there is nobody to wait for.
    all_acked_seq = min((seq for _, seq in acked), default=newest_seq(connection))
    due: list[int] = []
    for (series_id,) in connection.execute("SELECT id FROM series ORDER BY id").fetchall():
        if len(due) >= limit:
            break
        rows = connection.execute(
            "SELECT seq FROM points WHERE series_id = ? AND time_ns < ?"
            " AND (seq <= ? OR time_ns < ?) ORDER BY time_ns LIMIT ?",
            (series_id, keep_since_ns, all_acked_seq, outbox_keep_since_ns, limit - len(due)),
        )
        due.extend(seq for (seq,) in rows)
    ahead = [seq for seq in due if seq > all_acked_seq]
    unsent = {sink: undelivered(connection, sink, ahead) for sink, _ in acked} if ahead else {}
    connection.executemany("DELETE FROM points WHERE seq = ?", [(seq,) for seq in due])
    dropped = len(set().union(*unsent.values()))
    if ahead:
        count(connection, DROPPED_POINTS, dropped)
        connection.executemany(
            "UPDATE cursors SET dropped_points = dropped_points + ? WHERE sink = ?",
            [(len(seqs), sink) for sink, seqs in unsent.items()],
        )
        _skip_what_is_gone(connection)
    if due:
        connection.execute(
            "DELETE FROM series WHERE NOT EXISTS"
            " (SELECT 1 FROM points WHERE points.series_id = series.id)"
        )
    return Pruned(len(due) - dropped, dropped, is_done=len(due) < limit)


def _skip_what_is_gone(connection: sqlite3.Connection) -> None:
    """Moves cursors to just before the first row that is left, so that a backlog counts right."""
    first = connection.execute("SELECT min(seq) FROM points").fetchone()[0]
    before = newest_seq(connection) if first is None else first - 1
    connection.execute(
        "UPDATE cursors SET acked_seq = ? WHERE acked_seq < ?",
        (before, before),
    )


def give_back_pages(connection: sqlite3.Connection) -> None:
    """Returns some free pages to the file system, where a quarter of the file is free."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if free > max(_FREE_PAGES_KEPT, pages // 4):
        # A script is stepped to its end; `execute` would stop after the first page.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_GIVEN_BACK})")
