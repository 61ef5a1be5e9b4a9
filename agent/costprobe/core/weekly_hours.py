"""Weekly time windows in a time zone."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final, get_args
from zoneinfo import ZoneInfo

from pydantic import Field

from costprobe.core.config.fields import ClockTime, Section, Weekday
from costprobe.core.records import NS_PER_S

WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)


class WeeklyHoursConfig(Section):
    """Hours of the week with a figure of their own; they may end on the next day."""

    days: tuple[Weekday, ...] = Field(
        WEEKDAYS,
        description="Days on which the hours start.",
        examples=[["mon", "tue", "wed", "thu", "fri"]],
    )
    start: ClockTime = Field(description="Start, in `timezone`.", examples=["08:00"])
    end: ClockTime = Field(
        description="End, in `timezone`; at or before `start` it is on the next day.",
        examples=["20:00"],
    )

    def contains(self, time_ns: int, timezone: str) -> bool:
        """Return whether an instant lies in these hours.

        Args:
            time_ns: UTC in ns since 1970.
            timezone: IANA name.
        """
        return is_within(self.days, self.start, self.end, timezone, time_ns)


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
