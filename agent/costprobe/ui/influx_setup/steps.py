"""The steps of setting up a database: what it should have, and how to create what it lacks."""

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
    """What to set up.

    Attributes:
        keep_s: How long rows are kept as they were measured, in s.
        keep_hourly_s: How long hourly rows are kept, in s.
        late_s: How far back hourly rows are computed again for points that arrive late, in s.
        dead_after_s: Silence after which an agent counts as dead, in s (2.x).
    """

    keep_s: float
    keep_hourly_s: float
    late_s: float = 6 * 3600.0
    dead_after_s: float = 300.0


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One thing that a database should have.

    Attributes:
        what: The thing: "bucket costprobe, kept for 30d".
        create: Creates it; None if it exists.
        note: A remark on it; empty if there is none.
    """

    what: str
    create: Callable[[], None] | None = None
    note: str = ""


def retention_text(duration_s: float) -> str:
    """How long rows are kept, for people; 0 means indefinitely."""
    return f"kept for {format_duration(duration_s)}" if duration_s else "kept indefinitely"
