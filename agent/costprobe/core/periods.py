"""Instants, weekly time windows and calendar periods in a time zone.

An instant is written as a duration before now ("24h"), or in ISO 8601. Calendar periods last from
midnight to midnight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from costprobe.core.records import NS_PER_S
from costprobe.core.units import DurationRangeError, parse_duration_s, quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(2100, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)
HOURS_A_DAY: Final[int] = 24
HOURS_A_WEEK: Final[int] = 7 * HOURS_A_DAY
DAY_MINUTES: Final = 60 * HOURS_A_DAY
WEEK_MINUTES: Final = 60 * HOURS_A_WEEK
HOUR_NS: Final = 3600 * NS_PER_S
DAY_NS: Final = 24 * HOUR_NS
WEEK_NS: Final = 7 * DAY_NS
PeriodKind = Literal["day", "month", "quarter", "year"]
_MONTHS: Final[Mapping[PeriodKind, int]] = {"month": 1, "quarter": 3, "year": 12}
# Full hours that the longest period of a kind touches, in any time zone.
PERIOD_HOURS: Final[Mapping[PeriodKind, int]] = {
    "day": 26,
    "month": 31 * 24 + 2,
    "quarter": 92 * 24 + 2,
    "year": 366 * 24 + 2,
}


def iso(time_ns: int) -> str:
    """Format UTC ns as ISO 8601 with milliseconds."""
    moment = datetime.fromtimestamp(time_ns / 1e9, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment_ns(text: str, now_ns: int) -> int:
    """Parse a duration before now ("24h") or ISO 8601, local time if without a zone, to UTC ns.

    Args:
        text: The text.
        now_ns: UTC in ns since 1970.

    Raises:
        ValueError: It is neither, or not between 1970 and 2100; the message says which.
    """
    try:
        ago_s = parse_duration_s(text)
    except DurationRangeError:
        raise
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(
                f'{quoted(text)} is not a duration ("24h") or a date and time'
            ) from None
        return moment_ns(moment)
    then_ns = now_ns - int(ago_s * 1e9)
    if then_ns < 0:
        raise ValueError(f"{quoted(text)} before now is before 1970")
    return then_ns


def parse_date_ns(text: str, zone: tzinfo | None = None) -> int:
    """Parse ISO 8601 to UTC ns.

    Args:
        text: The text.
        zone: Time zone of a text without one; by default the local time of this host.

    Raises:
        ValueError: It is no date and time, or not between 1970 and 2100; the message says which.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f'{quoted(text)} is not a time such as "2026-01-31T14:00"') from None
    return moment_ns(moment, zone)


def moment_ns(moment: datetime, zone: tzinfo | None = None) -> int:
    """Return the UTC ns of a date and time; arguments and errors as in `parse_date_ns`."""
    try:
        if moment.tzinfo is None:
            moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
        is_in_range = _EPOCH <= moment <= _END
    except (OverflowError, OSError, ValueError):
        # Near the years 1 and 9999 the conversion between time zones fails.
        is_in_range = False
    if not is_in_range:
        raise ValueError(f"{moment.replace(tzinfo=None)} is not between 1970 and 2100")
    return (moment - _EPOCH) // _MICROSECOND * 1000


def minutes_of(days: Collection[Weekday], start: str, end: str) -> set[int]:
    """Return the minutes of the week, from Monday's midnight, that a weekly window contains.

    Args:
        days: Days on which the window starts.
        start: "HH:MM".
        end: Likewise, or "24:00"; at or before start it is on the next day.
    """
    start_minute, end_minute = _minute_of_day(start), _minute_of_day(end)
    end_minute += DAY_MINUTES if end_minute <= start_minute else 0
    first = (DAY_MINUTES * WEEKDAYS.index(day) for day in days)
    return {
        (day + minute) % WEEK_MINUTES for day in first for minute in range(start_minute, end_minute)
    }


def _minute_of_day(text: str) -> int:
    hour, minute = text.split(":")
    return 60 * int(hour) + int(minute)


def is_within(days: Collection[str], start: str, end: str, timezone: str, time_ns: int) -> bool:
    """Return whether an instant lies in a weekly window; the start is included, the end is not.

    Args:
        days: Days of WEEKDAYS on which the window starts.
        start: "HH:MM" in local time.
        end: Likewise, or "24:00"; at or before start it is on the next day.
        timezone: IANA name. When daylight saving time ends, both repeated hours count.
        time_ns: UTC in ns since 1970.
    """
    local = local_time(time_ns, ZoneInfo(timezone))
    now = f"{local:%H:%M}"
    today = WEEKDAYS[local.weekday()]
    if start < end:
        return today in days and start <= now < end
    yesterday = WEEKDAYS[(local - timedelta(days=1)).weekday()]
    return (today in days and now >= start) or (yesterday in days and now < end)


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


def utc_day(time_ns: int) -> date:
    """Return the day of a UTC ns in UTC."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).date()


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
