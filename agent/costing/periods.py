"""Calendar periods in a place's own time: days and months, from midnight to midnight."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from agent.model import NS_PER_S

HOUR_NS = 3600 * NS_PER_S
_DECEMBER = 12


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time; its end is not in it.

    Attributes:
        start_ns: UTC in ns.
        end_ns: UTC in ns.
    """

    start_ns: int
    end_ns: int

    def elapsed_share(self, time_ns: int) -> float:
        """The share of it that is over at a UTC ns, 0 to 1."""
        share = (time_ns - self.start_ns) / (self.end_ns - self.start_ns)
        return min(1.0, max(0.0, share))


def period_at(kind: Literal["day", "month"], timezone: str, time_ns: int) -> Span:
    """The day or month in which an instant lies.

    A day on which clocks are changed has 23 or 25 hours. Where midnight itself is skipped the day
    begins at the instant of the change; where it comes twice, with the first.

    Args:
        kind: What repeats.
        timezone: IANA name.
        time_ns: UTC in ns.
    """
    zone = ZoneInfo(timezone)
    today = local_time(time_ns, zone).date()
    if kind == "day":
        # Where clocks are set back over midnight, the old date comes back for an hour.
        start_ns, end_ns = _midnight_ns(today, zone), _midnight_ns(today + timedelta(1), zone)
        if time_ns >= end_ns:
            start_ns, end_ns = end_ns, _midnight_ns(today + timedelta(2), zone)
        return Span(start_ns, end_ns)
    first = today.replace(day=1)
    start_ns, end_ns = _midnight_ns(first, zone), _midnight_ns(_next_month(first), zone)
    if time_ns >= end_ns:
        start_ns, end_ns = end_ns, _midnight_ns(_next_month(_next_month(first)), zone)
    return Span(start_ns, end_ns)


def local_time(time_ns: int, zone: ZoneInfo) -> datetime:
    """What the clocks of a place show at a UTC ns."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).astimezone(zone)


def hour_phase_ns(timezone: str, time_ns: int) -> int:
    """How far behind UTC's full hours a place's full hours are, in ns: 0 for most."""
    offset = local_time(time_ns, ZoneInfo(timezone)).utcoffset() or timedelta()
    return -(offset // timedelta(seconds=1)) * NS_PER_S % HOUR_NS


def _next_month(first: date) -> date:
    year, month = first.year, first.month
    return date(year + 1, 1, 1) if month == _DECEMBER else date(year, month + 1, 1)


def _midnight_ns(day: date, zone: ZoneInfo) -> int:
    return round(datetime.combine(day, time(), zone).timestamp()) * NS_PER_S
