"""Hours of the week, as tables of the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from costprobe.core.config.fields import ClockTime, Section
from costprobe.core.weekly_hours import WEEKDAYS, Weekday, is_within, minutes_of


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
