"""Hours of the week that are advised to be off, on seeded load."""

import random
from functools import partial
from zoneinfo import ZoneInfo

from costprobe.core.periods import HOURS_A_WEEK
from costprobe.savings.supply import Block, idle_blocks, idle_runs
from costprobe.savings.workload import HourLoad, hour_of_week
from fakes.past import MONDAY
from hypothesis import given
from hypothesis import strategies as st

UTC = ZoneInfo("UTC")
WEEKS = 4


def load(is_busy, first=0):
    """Four weeks from an hour after a Monday, of which the last one is held out."""
    hours = {
        MONDAY + hour: HourLoad(0.5, 0.5, 10.0)
        if is_busy(hour)
        else HourLoad(0.0, 0.0, is_idle=True)
        for hour in range(first, first + WEEKS * HOURS_A_WEEK)
    }
    border = MONDAY + first + (WEEKS - 1) * HOURS_A_WEEK
    before = {number: hour for number, hour in hours.items() if number < border}
    return before, {number: hour for number, hour in hours.items() if number >= border}


def test_weekly_patterns_are_found_beside_random_load():
    def office(night_share, source, hour):
        is_open = hour % 168 < 120 and 8 <= hour % 24 < 20
        return is_open and source.random() > night_share

    sources = [random.Random(seed) for seed in range(10)]
    found = [idle_blocks(*load(partial(office, 0.2, source)), UTC) for source in sources]
    nights = [any({21, 22, 23} <= block.hours_of_week for block in blocks) for blocks in found]
    weekends = [any({125, 140, 150} <= block.hours_of_week for block in blocks) for blocks in found]
    # By chance some nights begin an hour earlier, which makes them other blocks.
    assert (sum(nights) >= 9, sum(weekends)) == (True, 10)


def test_blocks_that_were_busy_in_the_held_out_weeks_are_not_advised():
    def office_until_last_week(hour):
        is_night = not (hour % 168 < 120 and 8 <= hour % 24 < 20)
        return not is_night or hour == 3 * HOURS_A_WEEK + 23

    blocks = idle_blocks(*load(office_until_last_week), UTC)
    assert [block.words for block in blocks] == ["fri 20:00 to mon 08:00"]
    assert idle_blocks(load(lambda _: False)[0], {}, UTC) == []


def test_blocks_as_text():
    assert Block(20, 12, (0, 1)).words == "mon tue 20:00 to 08:00 1 day later"
    assert Block(20, 60, (4,)).words == "fri 20:00 to mon 08:00"
    assert Block(0, 24, (5,)).words == "sat 00:00 to 24:00"
    assert Block(22, 26, (6, 0)).words == "sun mon 22:00 to 24:00 1 day later"
    assert Block(0, 168, (0,)).words == "all week"


def test_hours_of_the_week_follow_the_time_zone():
    assert hour_of_week(MONDAY, UTC) == 0
    assert hour_of_week(MONDAY, ZoneInfo("Europe/Berlin")) == 1
    assert hour_of_week(MONDAY, ZoneInfo("America/New_York")) == 6 * 24 + 19


@given(st.sets(st.integers(0, HOURS_A_WEEK - 1)))
def test_runs_cover_exactly_the_idle_hours(slots):
    runs = idle_runs(slots)
    covered = [(start + step) % HOURS_A_WEEK for start, length in runs for step in range(length)]
    assert sorted(covered) == sorted(slots)
    assert (
        all((start + length) % HOURS_A_WEEK not in slots for start, length in runs)
        or len(slots) == HOURS_A_WEEK
    )
