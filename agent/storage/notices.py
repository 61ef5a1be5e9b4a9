"""The queue of each notifier: what it has yet to tell, in the order in which it happened."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.storage.outbox import storable

QUEUED_MAX_PER_NOTIFIER = 10_000


class QueuedNotice(NamedTuple):
    """An alert that waits for its notifier.

    Attributes:
        id: Its place in the order of commits.
        alert: The alert, as JSON holds it.
        queued_ns: UTC in ns at which it was committed.
    """

    id: int
    alert: Mapping[str, Any]
    queued_ns: int


class NotifierStatus(NamedTuple):
    """How a notifier is doing.

    Attributes:
        notifier: Its name.
        queued: Notices that wait.
        oldest_ns: UTC ns of the oldest of them; None if there is none.
        sent: Notices that were told since the store was made.
        dropped: Notices that were refused, given up, or had no room.
        last_sent_ns: UTC ns of its last success; None before the first.
        last_reason: Why the last notice was dropped; empty before the first.
    """

    notifier: str
    queued: int
    oldest_ns: int | None
    sent: int
    dropped: int
    last_sent_ns: int | None
    last_reason: str


def enqueue(
    connection: sqlite3.Connection,
    notices: Sequence[tuple[str, Mapping[str, Any]]],
    time_ns: int,
) -> None:
    """Adds alerts to queues; where one is full its oldest go, and are counted."""
    for notifier, alert in notices:
        _register(connection, notifier)
        connection.execute(
            "INSERT INTO notices (notifier, alert, queued_ns) VALUES (?, ?, ?)",
            (notifier, json.dumps(alert, allow_nan=False), time_ns),
        )
    for notifier in {notifier for notifier, _ in notices}:
        overflow = connection.execute(
            "SELECT id FROM notices WHERE notifier = ? ORDER BY id DESC LIMIT -1 OFFSET ?",
            (notifier, QUEUED_MAX_PER_NOTIFIER),
        ).fetchall()
        for (notice,) in overflow:
            drop(connection, notice, "the queue was full")


def waiting(connection: sqlite3.Connection, notifier: str, limit: int) -> list[QueuedNotice]:
    """Up to `limit` notices of a notifier, the oldest first."""
    rows = connection.execute(
        "SELECT id, alert, queued_ns FROM notices WHERE notifier = ? ORDER BY id LIMIT ?",
        (notifier, limit),
    )
    return [QueuedNotice(number, json.loads(text), time_ns) for number, text, time_ns in rows]


def sent(connection: sqlite3.Connection, notices: Sequence[int], time_ns: int) -> None:
    """Removes notices that were told."""
    for notice in notices:
        connection.execute(
            "UPDATE notifiers SET sent = sent + 1, last_sent_ns = ?"
            " WHERE name = (SELECT notifier FROM notices WHERE id = ?)",
            (time_ns, notice),
        )
        connection.execute("DELETE FROM notices WHERE id = ?", (notice,))


def drop(connection: sqlite3.Connection, notice: int, reason: str) -> None:
    """Removes a notice that will never be told, and counts it."""
    connection.execute(
        "UPDATE notifiers SET dropped = dropped + 1, last_reason = ?"
        " WHERE name = (SELECT notifier FROM notices WHERE id = ?)",
        (storable(reason), notice),
    )
    connection.execute("DELETE FROM notices WHERE id = ?", (notice,))


def forget(connection: sqlite3.Connection, notifier: str) -> None:
    """Removes a notifier that is configured no more, with all that waits for it."""
    connection.execute("DELETE FROM notices WHERE notifier = ?", (notifier,))
    connection.execute("DELETE FROM notifiers WHERE name = ?", (notifier,))


def statuses(connection: sqlite3.Connection) -> list[NotifierStatus]:
    """How every notifier is doing, by name."""
    rows = connection.execute(
        "SELECT name, count(notices.id), min(queued_ns), sent, dropped, last_sent_ns, last_reason"
        " FROM notifiers LEFT JOIN notices ON notices.notifier = notifiers.name"
        " GROUP BY name ORDER BY name"
    )
    return [NotifierStatus(*row) for row in rows]


def _register(connection: sqlite3.Connection, notifier: str) -> None:
    connection.execute("INSERT OR IGNORE INTO notifiers (name) VALUES (?)", (notifier,))
