"""Weekly windows follow local time, across midnight and daylight saving changes."""

from datetime import UTC, datetime

from costprobe.core.periods import WEEKDAYS, is_within
from costprobe.core.records import NS_PER_S


def ns(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp()) * NS_PER_S


def test_windows_on_working_days_and_across_midnight():
    """A window belongs to the day on which it starts."""
    work = (WEEKDAYS[:5], "08:00", "21:00", "Europe/Berlin")
    night = (("sun",), "22:00", "02:00", "UTC")
    expected = {
        (work, 2, 6, 59): False,  # a Monday
        (work, 2, 7, 0): True,
        (work, 2, 19, 59): True,
        (work, 2, 20, 0): False,
        (work, 7, 12, 0): False,  # a Saturday
        (night, 1, 21, 59): False,  # a Sunday
        (night, 1, 22, 0): True,
        (night, 2, 1, 59): True,
        (night, 2, 2, 0): False,
        (night, 2, 22, 0): False,
    }
    found = [is_within(*window, ns(2026, 3, *when)) for window, *when in expected]
    assert found == list(expected.values())


def test_window_follows_local_time_across_daylight_saving():
    # On 29 March 2026 Berlin changes from UTC+1 to UTC+2.
    before, after = ns(2026, 3, 28, 7, 30), ns(2026, 3, 30, 7, 30)
    assert not is_within(WEEKDAYS, "09:00", "10:00", "Europe/Berlin", before)
    assert is_within(WEEKDAYS, "09:00", "10:00", "Europe/Berlin", after)


def test_whole_day_is_one_window():
    for hour in range(24):
        assert is_within(["mon"], "00:00", "24:00", "UTC", ns(2026, 3, 2, hour))
    assert not is_within(["mon"], "00:00", "24:00", "UTC", ns(2026, 3, 3))
