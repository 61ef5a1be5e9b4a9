"""The outbox: a sink is a cursor over the rows in the order of their commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

DROPPED_POINTS = "dropped_points"
REJECTED_KEPT_PER_SINK = 100
REASON_CHARS_MAX = 500
# A backlog up to this size is counted; a larger one is estimated, as counting reads gigabytes.
BACKLOG_COUNTED_MAX = 20_000


class RejectedLine(NamedTuple):
    """A row that a sink permanently rejected.

    Attributes:
        line: Line protocol.
        reason: Reason reported by the sink.
    """

    line: str
    reason: str


class Rejections(NamedTuple):
    """The rows that a sink permanently rejected.

    Attributes:
        points: Their number since the sink was registered.
        last_ns: UTC ns of the last rejection.
        reason: Its reason.
    """

    points: int
    last_ns: int
    reason: str


class Backlog(NamedTuple):
    """The backlog of a sink.

    Attributes:
        points: Number of rows; beyond BACKLOG_COUNTED_MAX an upper bound, in which rows replaced
            while they waited count again.
        oldest_time_ns: UTC ns of the next row; None without a backlog.
    """

    points: int
    oldest_time_ns: int | None


class SinkStatus(NamedTuple):
    """The status of a sink.

    Attributes:
        sink: Name.
        acked_seq: Last row of the acknowledged prefix.
        backlog: Rows not sent yet.
        sent_points: Rows delivered.
        rejected_points: Rows that were permanently rejected.
        dropped_points: Rows deleted by retention before they were sent.
        acked_ns: UTC ns of the last progress; None before the first.
    """

    sink: str
    acked_seq: int
    backlog: Backlog
    sent_points: int
    rejected_points: int
    dropped_points: int
    acked_ns: int | None


def newest_seq(connection: sqlite3.Connection) -> int:
    """Return the highest seq ever assigned; 0 before the first row."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'points'").fetchone()
    return int(row[0]) if row else 0


def register(connection: sqlite3.Connection, sink: str, *, from_beginning: bool) -> None:
    """Create the cursor of a sink unless it exists."""
    start = 0 if from_beginning else newest_seq(connection)
    connection.execute(
        "INSERT OR IGNORE INTO cursors (sink, acked_seq) VALUES (?, ?)", (sink, start)
    )


def cursor(connection: sqlite3.Connection, sink: str) -> int:
    """Return the last row of the acknowledged prefix of a sink.

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
    """Advance a cursor, never backwards, and store rejected rows."""
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


def rejections(connection: sqlite3.Connection, sink: str) -> Rejections | None:
    """Return the rejections of a sink; None if there was none."""
    row = connection.execute(
        "SELECT rejected_points, time_ns, reason FROM cursors JOIN rejected USING (sink)"
        " WHERE sink = ? ORDER BY id DESC LIMIT 1",
        (sink,),
    ).fetchone()
    return Rejections(*row) if row else None


def storable(reason: str) -> str:
    """Return a server's reason truncated and as valid UTF-8."""
    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode("utf-8")


def backlog(connection: sqlite3.Connection, acked_seq: int) -> Backlog:
    """Return the rows after a seq."""
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


def count(connection: sqlite3.Connection, name: str, added: int) -> None:
    """Add to a persistent counter."""
    connection.execute("INSERT OR IGNORE INTO counters (name, value) VALUES (?, 0)", (name,))
    connection.execute("UPDATE counters SET value = value + ? WHERE name = ?", (added, name))


def counted(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a counter."""
    row = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0
