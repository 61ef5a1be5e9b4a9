"""What a database should have when it is set up, and what there is to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.units import format_duration

HOURLY = "_hourly"


class SetupError(Exception):
    """The database cannot be looked at or changed; the text says why and holds no secret."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How long rows are kept.

    Attributes:
        keep_s: Rows as they were measured, in s.
        keep_hourly_s: Rows of an hour, in s.
        late_s: How far back an hour's rows are made again, for points that come late.
        dead_after_s: Silence after which an agent counts as dead (2.x).
    """

    keep_s: float
    keep_hourly_s: float
    late_s: float = 6 * 3600.0
    dead_after_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a database should have.

    Attributes:
        what: The thing, for people: "bucket infercost, kept for 30d".
        do: Makes it; None where it is there.
        note: What else to know of it; empty if nothing.
    """

    what: str
    do: Callable[[], None] | None = None
    note: str = ""


def kept(duration_s: float) -> str:
    """How long something is kept, for people; 0 is for ever."""
    return f"kept for {format_duration(duration_s)}" if duration_s else "kept for ever"
