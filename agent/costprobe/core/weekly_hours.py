"""Weekly time windows in a time zone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, get_args
from zoneinfo import ZoneInfo

from pydantic import Field

from costprobe.core.config.fields import ClockTime, Section, Weekday
from costprobe.core.records import NS_PER_S

WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)

HOURS_A_DAY: Final[int] = 24
HOURS_A_WEEK: Final[int] = 7 * HOURS_A_DAY
DAY_MINUTES: Final = 60 * HOURS_A_DAY
WEEK_MINUTES: Final = 60 * HOURS_A_WEEK


class WeeklyHoursConfig(Section):
    """Hours of the week with a figure of their own; they may end on the next day."""

    days: tuple[Weekday, ...] = Field(
        WEEKDAYS,
        min_length=1,
        description="Days on which the hours start.",
        examples=[["mon", "tue", "wed", "thu", "fri"]],
    )
    start: ClockTime = Field(description="Start, in `timezone`.", examples=["08:00"])
    end: ClockTime = Field(
        description="End, in `timezone`; at or before `start` it is on the next day.",
        examples=["20:00"],
    )

    def minutes(self) -> set[int]:
        """Return the minutes of the week, from Monday's midnight, that these hours contain."""
        return minutes_of(self.days, self.start, self.end)

    def contains(self, time_ns: int, timezone: str) -> bool:
        """Return whether an instant lies in these hours.

        Args:
            time_ns: UTC in ns since 1970.
            timezone: IANA name.
        """
        return is_within(self.days, self.start, self.end, timezone, time_ns)


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


def check_each_applies(hours: Sequence[WeeklyHoursConfig]) -> None:
    """Check that each of some hours, of which the first match applies, has a minute of its own.

    Raises:
        ValueError: Earlier ones contain all minutes of one; the message names its index.
    """
    covered: set[int] = set()
    for index, span in enumerate(hours):
        minutes = span.minutes()
        if minutes <= covered:
            raise ValueError(
                f"hours[{index}] never apply: earlier hours contain them; remove them, or write"
                " them first"
            )
        covered |= minutes


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
