"""Weekly time windows in a time zone."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from costprobe.core.records import NS_PER_S

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)

HOURS_A_DAY: Final[int] = 24
HOURS_A_WEEK: Final[int] = 7 * HOURS_A_DAY
DAY_MINUTES: Final = 60 * HOURS_A_DAY
WEEK_MINUTES: Final = 60 * HOURS_A_WEEK


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
    local = datetime.fromtimestamp(time_ns // NS_PER_S, UTC).astimezone(ZoneInfo(timezone))
    now = f"{local:%H:%M}"
    today = WEEKDAYS[local.weekday()]
    if start < end:
        return today in days and start <= now < end
    yesterday = WEEKDAYS[(local - timedelta(days=1)).weekday()]
    return (today in days and now >= start) or (yesterday in days and now < end)
