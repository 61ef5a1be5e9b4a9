"""Small named documents of the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any


def state_text(document: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a document as it is stored.

    Raises:
        ValueError: It contains NaN or an infinity, which JSON does not have.
        TypeError: It is not a JSON value.
    """
    return json.dumps(document, allow_nan=False)


def put_states(connection: sqlite3.Connection, states: Mapping[str, str], time_ns: int) -> None:
    """Store documents by name; each replaces the previous one.

    Args:
        connection: In a transaction.
        states: As `state_text` returns them.
        time_ns: UTC in ns.
    """
    connection.executemany(
        "INSERT OR REPLACE INTO states (name, document, time_ns) VALUES (?, ?, ?)",
        [(name, text, time_ns) for name, text in states.items()],
    )
