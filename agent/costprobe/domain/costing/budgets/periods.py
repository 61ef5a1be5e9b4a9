"""Calendar periods in a time zone: days and months, from midnight to midnight."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from costprobe.core.records import NS_PER_S

HOUR_NS = 3600 * NS_PER_S
_DECEMBER = 12


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time span; the end is excluded.

    Attributes:
        start_ns: UTC in ns.
        end_ns: UTC in ns.
    """

    start_ns: int
    end_ns: int

    def elapsed_share(self, time_ns: int) -> float:
        """Return the elapsed share at a UTC ns, 0 to 1."""
        share = (time_ns - self.start_ns) / (self.end_ns - self.start_ns)
        return min(1.0, max(0.0, share))


def period_at(kind: Literal["day", "month"], timezone: str, time_ns: int) -> TimeSpan:
    """Return the day or month that contains an instant.

    A day of a change of daylight saving time has 23 or 25 hours. If midnight is skipped the day
    starts at the change; if it occurs twice, with the first.

    Args:
        kind: The period.
        timezone: IANA name.
        time_ns: UTC in ns.
    """
    zone = ZoneInfo(timezone)
    today = local_time(time_ns, zone).date()
    if kind == "day":
        # If clocks are set back over midnight, the previous date returns for an hour.
        start_ns, end_ns = _midnight_ns(today, zone), _midnight_ns(today + timedelta(1), zone)
        if time_ns >= end_ns:
            start_ns, end_ns = end_ns, _midnight_ns(today + timedelta(2), zone)
        return TimeSpan(start_ns, end_ns)
    first = today.replace(day=1)
    start_ns, end_ns = _midnight_ns(first, zone), _midnight_ns(_next_month(first), zone)
    if time_ns >= end_ns:
        start_ns, end_ns = end_ns, _midnight_ns(_next_month(_next_month(first)), zone)
    return TimeSpan(start_ns, end_ns)


def local_time(time_ns: int, zone: ZoneInfo) -> datetime:
    """Return the local time of a UTC ns."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).astimezone(zone)


def hour_phase_ns(timezone: str, time_ns: int) -> int:
    """Return the offset in ns of a time zone's full hours from UTC's: 0 for most zones."""
    offset = local_time(time_ns, ZoneInfo(timezone)).utcoffset() or timedelta()
    return -(offset // timedelta(seconds=1)) * NS_PER_S % HOUR_NS


def _next_month(first: date) -> date:
    year, month = first.year, first.month
    return date(year + 1, 1, 1) if month == _DECEMBER else date(year, month + 1, 1)


def _midnight_ns(day: date, zone: ZoneInfo) -> int:
    return round(datetime.combine(day, time(), zone).timestamp()) * NS_PER_S
