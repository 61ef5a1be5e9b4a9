"""Bound of a backlog: the oldest device rows are thinned first, then the oldest rows dropped."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from costprobe.adapters.storage.outbox import outbox
from costprobe.adapters.storage.outbox.outbox_order import (
    WINDOW_SEQS,
    Progress,
    count_of,
    nth_seq,
    waiting,
)
from costprobe.core.outbox import RowRange


class Shed(NamedTuple):
    """Result of one step.

    Attributes:
        progress: Progress with a smaller backlog.
        dropped: Rows that the sink will not receive.
    """

    progress: Progress
    dropped: int


def excess(connection: sqlite3.Connection, progress: Progress, max_points: int) -> int:
    """Return the number of rows beyond `max_points`; counted only if it may be exceeded."""
    if outbox.newest_seq(connection) - progress.acked_seq <= max_points:
        return 0
    return max(0, waiting(connection, progress) - max_points)


def shed(connection: sqlite3.Connection, progress: Progress, over_points: int) -> Shed | None:
    """Run one bounded step; None without a backlog.

    The rows stay in the store under its own retention; the sink does not receive them.

    Args:
        connection: In a transaction.
        progress: Progress of the sink.
        over_points: Number of rows beyond the bound.
    """
    fine = [span for span in progress.spans if not span.thinned and span.kind != "important"]
    if fine:
        return _thinned(connection, progress, min(fine, key=lambda span: span.after))
    if not progress.spans:
        return None
    # Important rows are dropped last.
    oldest = min(progress.spans, key=lambda span: (span.kind == "important", span.after))
    return _dropped(connection, progress, oldest, over_points)


def _thinned(connection: sqlite3.Connection, progress: Progress, span: RowRange) -> Shed:
    """Thin the oldest part of a range to one row a minute of each device."""
    part = span._replace(until=min(span.until, span.after + WINDOW_SEQS))
    coarse = part._replace(thinned=True)
    dropped = count_of(connection, part) - count_of(connection, coarse)
    before = next(
        (s for s in progress.spans if s.thinned and (s.kind, s.until) == (span.kind, span.after)),
        None,
    )
    if before is not None:
        progress = progress.replaced(before)
        coarse = coarse._replace(after=before.after)
    return Shed(progress.replaced(span, coarse, span._replace(after=part.until)), dropped)


def _dropped(
    connection: sqlite3.Connection, progress: Progress, span: RowRange, over_points: int
) -> Shed:
    """Drop the oldest rows of a range, no more than are beyond the bound."""
    part = span._replace(until=min(span.until, span.after + WINDOW_SEQS))
    last_seq = nth_seq(connection, part, over_points)
    part = part._replace(until=part.until if last_seq is None else last_seq)
    dropped = count_of(connection, part)
    return Shed(progress.replaced(span, span._replace(after=part.until)), dropped)


def record(connection: sqlite3.Connection, sink: str, acked_seq: int, dropped: int) -> None:
    """Advance the cursor of a sink over dropped rows, and count them."""
    connection.execute(
        "UPDATE cursors SET acked_seq = max(acked_seq, ?), dropped_points = dropped_points + ?"
        " WHERE sink = ?",
        (acked_seq, dropped, sink),
    )
    outbox.count(connection, outbox.DROPPED_POINTS, dropped)
