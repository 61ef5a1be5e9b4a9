"""Hours that come back every week, in a place's own time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from agent.model import NS_PER_S

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def is_within(days: Collection[str], start: str, end: str, timezone: str, time_ns: int) -> bool:
    """True if an instant lies in a weekly window; its beginning counts, its end does not.

    Args:
        days: On which of WEEKDAYS a window begins.
        start: "HH:MM" of the clocks in that place.
        end: Likewise, or "24:00"; at or before start it is of the next day.
        timezone: IANA name. When clocks are set back, both of the doubled hours count.
        time_ns: UTC in ns since 1970.
    """
    local = datetime.fromtimestamp(time_ns // NS_PER_S, UTC).astimezone(ZoneInfo(timezone))
    now = f"{local:%H:%M}"
    today = WEEKDAYS[local.weekday()]
    if start < end:
        return today in days and start <= now < end
    yesterday = WEEKDAYS[(local - timedelta(days=1)).weekday()]
    return (today in days and now >= start) or (yesterday in days and now < end)
