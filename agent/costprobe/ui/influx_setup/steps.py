"""The steps of setting up a database: its required parts, and the creation of missing ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costprobe.core.units import format_duration

# Suffix of the database or bucket of hourly rows.
HOURLY = "_hourly"


class SetupError(Exception):
    """The database cannot be read or changed; the message gives the reason without secrets."""


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """Options of the set-up.

    Attributes:
        keep_s: Retention of rows as measured, in s.
        keep_hourly_s: Retention of hourly rows, in s.
        late_s: Time for which hourly rows are recomputed for late points, in s.
        dead_after_s: Time without rows after which an agent counts as dead, in s (2.x).
    """

    keep_s: float
    keep_hourly_s: float
    late_s: float = 6 * 3600.0
    dead_after_s: float = 300.0


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One required part of a database.

    Attributes:
        what: Its description: "bucket costprobe, kept for 30d".
        create: Creates it; None if it exists.
        note: A remark on it; empty if there is none.
    """

    what: str
    create: Callable[[], None] | None = None
    note: str = ""


def retention_text(duration_s: float) -> str:
    """Format a retention; 0 means indefinitely."""
    return f"kept for {format_duration(duration_s)}" if duration_s else "kept indefinitely"
