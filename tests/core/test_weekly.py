"""Weekly windows follow local time, across midnight and daylight saving changes."""

from datetime import UTC, datetime

from costprobe.core.periods import WEEKDAYS, is_within
from costprobe.core.records import NS_PER_S


def ns(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp()) * NS_PER_S


WORK = (WEEKDAYS[:5], "08:00", "21:00", "Europe/Berlin")
NIGHT = (("sun",), "22:00", "02:00", "UTC")
MORNING = (WEEKDAYS, "09:00", "10:00", "Europe/Berlin")
DAY = (("mon",), "00:00", "24:00", "UTC")
# Windows, days of March 2026 and UTC times in them, and just outside: the 1st is a Sunday. A window belongs
# to the day on which it starts. On the 29th Berlin changes from UTC+1 to UTC+2.
INSIDE = (
    (WORK, 2, 7, 0), (WORK, 2, 19, 59), (NIGHT, 1, 22, 0), (NIGHT, 2, 1, 59), (MORNING, 30, 7, 30),
    *((DAY, 2, hour, 0) for hour in range(24)),
)  # fmt: skip
OUTSIDE = (
    (WORK, 2, 6, 59), (WORK, 2, 20, 0), (WORK, 7, 12, 0), (NIGHT, 1, 21, 59), (NIGHT, 2, 2, 0),
    (NIGHT, 2, 22, 0), (MORNING, 28, 7, 30), (DAY, 3, 0, 0),
)  # fmt: skip


def test_windows_follow_local_time():
    found = [case for case in (*INSIDE, *OUTSIDE) if is_within(*case[0], ns(2026, 3, *case[1:]))]
    assert found == list(INSIDE)
