"""A bound on what waits for a sink: the oldest goes first, coarsened before it is dropped."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from agent.storage import outbox
from agent.storage.outbox_order import (
    WINDOW_SEQS,
    Progress,
    Span,
    count_of,
    nth_seq,
    waiting,
)


class Shed(NamedTuple):
    """What one step came to.

    Attributes:
        progress: With less to send.
        dropped: Rows that the sink will not get.
    """

    progress: Progress
    dropped: int


def excess(connection: sqlite3.Connection, progress: Progress, max_points: int) -> int:
    """How many rows more than `max_points` wait; counted only where they may be so many."""
    if outbox.newest_seq(connection) - progress.acked_seq <= max_points:
        return 0
    return max(0, waiting(connection, progress) - max_points)


def shed(connection: sqlite3.Connection, progress: Progress, over_points: int) -> Shed | None:
    """Does one bounded step; None if there is no backlog to take from.

    The rows stay in the store, whose retention is its own; the sink will not be given them.

    Args:
        connection: In a transaction.
        progress: What the sink is done with.
        over_points: How many rows are too many.
    """
    fine = [span for span in progress.spans if not span.thinned and span.kind != "important"]
    if fine:
        return _thinned(connection, progress, min(fine, key=lambda span: span.after))
    if not progress.spans:
        return None
    # What matters is kept until there is nothing else.
    oldest = min(progress.spans, key=lambda span: (span.kind == "important", span.after))
    return _dropped(connection, progress, oldest, over_points)


def _thinned(connection: sqlite3.Connection, progress: Progress, span: Span) -> Shed:
    """Leaves, of the oldest part of a span, one row a minute of each device."""
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
    connection: sqlite3.Connection, progress: Progress, span: Span, over_points: int
) -> Shed:
    """Takes the oldest rows off a span, no more than are too many."""
    part = span._replace(until=min(span.until, span.after + WINDOW_SEQS))
    last_seq = nth_seq(connection, part, over_points)
    part = part._replace(until=part.until if last_seq is None else last_seq)
    dropped = count_of(connection, part)
    return Shed(progress.replaced(span, span._replace(after=part.until)), dropped)


def record(connection: sqlite3.Connection, sink: str, acked_seq: int, dropped: int) -> None:
    """Moves a sink's cursor over what it will not get, and counts it."""
    connection.execute(
        "UPDATE cursors SET acked_seq = max(acked_seq, ?), dropped_points = dropped_points + ?"
        " WHERE sink = ?",
        (acked_seq, dropped, sink),
    )
    outbox.count(connection, outbox.DROPPED_POINTS, dropped)
