"""The notice queue of each notifier, in the order of events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from costprobe.adapters.storage.outbox.outbox import storable
from costprobe.core.bounded import bounded_json

QUEUED_MAX_PER_NOTIFIER = 10_000


class QueuedNotice(NamedTuple):
    """A queued notice.

    Attributes:
        id: Position in the order of commits.
        alert: The alert as JSON.
        queued_ns: UTC in ns of its commit.
    """

    id: int
    alert: Mapping[str, Any]
    queued_ns: int


class NotifierStatus(NamedTuple):
    """The status of a notifier.

    Attributes:
        notifier: Name.
        queued: Number of queued notices.
        oldest_ns: UTC ns of the oldest of them; None if the queue is empty.
        sent: Notices delivered since the store was created.
        dropped: Notices that were rejected, expired, or exceeded the size of the queue.
        last_sent_ns: UTC ns of the last delivery; None before the first.
        last_reason: Reason of the last drop; empty before the first.
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
    """Queue notices; a full queue drops and counts its oldest."""
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
    """Return up to `limit` queued notices of a notifier, oldest first."""
    rows = connection.execute(
        "SELECT id, alert, queued_ns FROM notices WHERE notifier = ? ORDER BY id LIMIT ?",
        (notifier, limit),
    )
    return [QueuedNotice(number, bounded_json(text), time_ns) for number, text, time_ns in rows]


def sent(connection: sqlite3.Connection, notices: Sequence[int], time_ns: int) -> None:
    """Delete delivered notices, and count them."""
    for notice in notices:
        connection.execute(
            "UPDATE notifiers SET sent = sent + 1, last_sent_ns = ?"
            " WHERE name = (SELECT notifier FROM notices WHERE id = ?)",
            (time_ns, notice),
        )
        connection.execute("DELETE FROM notices WHERE id = ?", (notice,))


def drop(connection: sqlite3.Connection, notice: int, reason: str) -> None:
    """Delete a notice undelivered, and count it."""
    connection.execute(
        "UPDATE notifiers SET dropped = dropped + 1, last_reason = ?"
        " WHERE name = (SELECT notifier FROM notices WHERE id = ?)",
        (storable(reason), notice),
    )
    connection.execute("DELETE FROM notices WHERE id = ?", (notice,))


def delete_notifier(connection: sqlite3.Connection, notifier: str) -> None:
    """Delete a notifier that is no longer configured, with its queue."""
    connection.execute("DELETE FROM notices WHERE notifier = ?", (notifier,))
    connection.execute("DELETE FROM notifiers WHERE name = ?", (notifier,))


def statuses(connection: sqlite3.Connection) -> list[NotifierStatus]:
    """Return the status of every notifier, by name."""
    rows = connection.execute(
        "SELECT name, count(notices.id), min(queued_ns), sent, dropped, last_sent_ns, last_reason"
        " FROM notifiers LEFT JOIN notices ON notices.notifier = notifiers.name"
        " GROUP BY name ORDER BY name"
    )
    return [NotifierStatus(*row) for row in rows]


def _register(connection: sqlite3.Connection, notifier: str) -> None:
    connection.execute("INSERT OR IGNORE INTO notifiers (name) VALUES (?)", (notifier,))
