"""Calendar periods in a time zone, from midnight to midnight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from costprobe.core.records import NS_PER_S

HOUR_NS = 3600 * NS_PER_S
PeriodKind = Literal["day", "month", "quarter", "year"]
_MONTHS: Final[Mapping[PeriodKind, int]] = {"month": 1, "quarter": 3, "year": 12}
# Full hours that the longest period of a kind touches, in any time zone.
PERIOD_HOURS: Final[Mapping[PeriodKind, int]] = {
    "day": 26,
    "month": 31 * 24 + 2,
    "quarter": 92 * 24 + 2,
    "year": 366 * 24 + 2,
}


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


def period_at(kind: PeriodKind, timezone: str, time_ns: int) -> TimeSpan:
    """Return the day, month, quarter or year that contains an instant.

    A day of a change of daylight saving time has 23 or 25 hours. If midnight is skipped the day
    starts at the change; if it occurs twice, with the first.

    Args:
        kind: The period.
        timezone: IANA name.
        time_ns: UTC in ns.
    """
    zone = ZoneInfo(timezone)
    first = _first_day(kind, local_time(time_ns, zone).date())
    start_ns, end_ns = _midnight_ns(first, zone), _midnight_ns(_after(kind, first), zone)
    # If clocks are set back over midnight, the previous date returns for an hour.
    if time_ns >= end_ns:
        first = _after(kind, first)
        start_ns, end_ns = end_ns, _midnight_ns(_after(kind, first), zone)
    return TimeSpan(start_ns, end_ns)


def local_time(time_ns: int, zone: ZoneInfo) -> datetime:
    """Return the local time of a UTC ns."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).astimezone(zone)


def hour_phase_ns(timezone: str, time_ns: int) -> int:
    """Return the offset in ns of a time zone's full hours from UTC's: 0 for most zones."""
    offset = local_time(time_ns, ZoneInfo(timezone)).utcoffset() or timedelta()
    return -(offset // timedelta(seconds=1)) * NS_PER_S % HOUR_NS


def _first_day(kind: PeriodKind, day: date) -> date:
    if kind == "day":
        return day
    months = _MONTHS[kind]
    return date(day.year, (day.month - 1) // months * months + 1, 1)


def _after(kind: PeriodKind, first: date) -> date:
    """Return the first day of the next period."""
    if kind == "day":
        return first + timedelta(1)
    years, months_before = divmod(first.month - 1 + _MONTHS[kind], 12)
    return date(first.year + years, months_before + 1, 1)


def _midnight_ns(day: date, zone: ZoneInfo) -> int:
    return round(datetime.combine(day, time(), zone).timestamp()) * NS_PER_S
