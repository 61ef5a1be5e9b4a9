"""The outbox: a sink is a cursor over the rows, in the order in which they were committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

DROPPED_POINTS = "dropped_points"
REJECTED_KEPT_PER_SINK = 100
REASON_CHARS_MAX = 500
# A backlog up to here is counted; beyond, counting would read gigabytes to say how many.
BACKLOG_COUNTED_MAX = 20_000


class OutboxRow(NamedTuple):
    """A row to send.

    Attributes:
        seq: Its place in the order of commits.
        line: Line protocol, without a line end; the time is in ns.
    """

    seq: int
    line: str


class Pack(NamedTuple):
    """Rows that leave together, as one text.

    Attributes:
        seq: The place of the one that leaves last.
        points: How many they are.
        lines: Line protocol, with line ends between.
    """

    seq: int
    points: int
    lines: bytes


class RejectedLine(NamedTuple):
    """A row that a sink will never take.

    Attributes:
        line: Line protocol.
        reason: What the sink said.
    """

    line: str
    reason: str


class Backlog(NamedTuple):
    """What a sink has yet to send.

    Attributes:
        points: Rows; beyond BACKLOG_COUNTED_MAX an upper bound, in which a row that was
            replaced while it waited counts again.
        oldest_time_ns: UTC ns of the row that comes next; None if there is none.
    """

    points: int
    oldest_time_ns: int | None


class SinkStatus(NamedTuple):
    """How a sink is doing.

    Attributes:
        sink: Its name.
        acked_seq: The last row that it is done with.
        backlog: What it has yet to send.
        sent_points: Rows it delivered.
        rejected_points: Rows that were refused for good.
        dropped_points: Rows that retention removed before they were sent.
        acked_ns: UTC ns of its last progress; None before the first.
    """

    sink: str
    acked_seq: int
    backlog: Backlog
    sent_points: int
    rejected_points: int
    dropped_points: int
    acked_ns: int | None


def newest_seq(connection: sqlite3.Connection) -> int:
    """The highest seq ever given; 0 before the first row."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'points'").fetchone()
    return int(row[0]) if row else 0


def rows_after(connection: sqlite3.Connection, seq: int, limit: int) -> list[OutboxRow]:
    """Up to `limit` rows behind a place in the order, ready to send."""
    rows = connection.execute(
        "SELECT points.seq, series.key || ' ' || points.fields || ' ' || points.time_ns"
        " FROM points JOIN series ON series.id = points.series_id"
        " WHERE points.seq > ? ORDER BY points.seq LIMIT ?",
        (seq, limit),
    )
    return [OutboxRow(*row) for row in rows]


def register(connection: sqlite3.Connection, sink: str, *, from_beginning: bool) -> None:
    """Gives a sink its cursor, unless it has one."""
    start = 0 if from_beginning else newest_seq(connection)
    connection.execute(
        "INSERT OR IGNORE INTO cursors (sink, acked_seq) VALUES (?, ?)", (sink, start)
    )


def cursor(connection: sqlite3.Connection, sink: str) -> int:
    """The last row that a sink is done with.

    Raises:
        KeyError: The sink is not registered.
    """
    row = connection.execute("SELECT acked_seq FROM cursors WHERE sink = ?", (sink,)).fetchone()
    if row is None:
        raise KeyError(f"sink {sink!r} is not registered")
    return int(row[0])


def advance(
    connection: sqlite3.Connection,
    sink: str,
    acked_seq: int,
    sent: int,
    rejected: Sequence[RejectedLine],
    time_ns: int,
) -> None:
    """Moves a cursor on, never back, and puts refused rows aside; see `Store.advance`."""
    connection.execute(
        "UPDATE cursors SET acked_seq = max(?, ?), sent_points = sent_points + ?,"
        " rejected_points = rejected_points + ?, acked_ns = ? WHERE sink = ?",
        (cursor(connection, sink), acked_seq, sent, len(rejected), time_ns, sink),
    )
    if not rejected:
        return
    connection.executemany(
        "INSERT INTO rejected (sink, line, reason, time_ns) VALUES (?, ?, ?, ?)",
        [
            (sink, refused.line, storable(refused.reason), time_ns)
            for refused in rejected[-REJECTED_KEPT_PER_SINK:]
        ],
    )
    connection.execute(
        "DELETE FROM rejected WHERE sink = ? AND id NOT IN"
        " (SELECT id FROM rejected WHERE sink = ? ORDER BY id DESC LIMIT ?)",
        (sink, sink, REJECTED_KEPT_PER_SINK),
    )


def storable(reason: str) -> str:
    """A server's words, cut, and without what UTF-8 cannot hold."""
    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


def backlog(connection: sqlite3.Connection, acked_seq: int) -> Backlog:
    """The rows behind a place in the order."""
    (points,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM points WHERE seq > ? LIMIT ?)",
        (acked_seq, BACKLOG_COUNTED_MAX),
    ).fetchone()
    if points >= BACKLOG_COUNTED_MAX:
        points = newest_seq(connection) - acked_seq
    oldest = connection.execute(
        "SELECT time_ns FROM points WHERE seq > ? ORDER BY seq LIMIT 1", (acked_seq,)
    ).fetchone()
    return Backlog(int(points), int(oldest[0]) if oldest else None)


def count(connection: sqlite3.Connection, name: str, more: int) -> None:
    """Adds to a counter that lasts."""
    connection.execute("INSERT OR IGNORE INTO counters (name, value) VALUES (?, 0)", (name,))
    connection.execute("UPDATE counters SET value = value + ? WHERE name = ?", (more, name))


def counted(connection: sqlite3.Connection, name: str) -> int:
    """The value of a counter."""
    row = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0
