"""What is remembered of times, behind a step of the wall clock."""

import pytest

from agent.calendar_step import LEAP_NS, CalendarStep
from agent.model import NS_PER_S

NOW = 1_800_000_000 * NS_PER_S
HOUR = 3600 * NS_PER_S


@pytest.mark.parametrize(
    ("by_ns", "before_ns", "after_ns"),
    [
        # Back: what has not come yet moves, what has stays with its rows.
        (-HOUR, NOW + HOUR - 5, NOW - 5),
        (-HOUR, NOW - 5, NOW - 5),
        (-HOUR, NOW, NOW),
        # Ahead by what a suspended host may have slept.
        (HOUR, NOW - HOUR - 5, NOW - HOUR - 5),
        (LEAP_NS, NOW - LEAP_NS, NOW - LEAP_NS),
        # Ahead by more than that.
        (2 * LEAP_NS, NOW - 2 * LEAP_NS - 5, NOW - 5),
    ],
)
def test_a_time_moves_or_stays(by_ns, before_ns, after_ns):
    step = CalendarStep(by_ns, NOW)
    assert step.of_ns(before_ns) == after_ns
    assert step.of_s(before_ns / NS_PER_S) == pytest.approx(after_ns / NS_PER_S, abs=1e-6)


def test_what_never_was_stays_long_ago():
    assert CalendarStep(-HOUR, NOW).of_s(-1e300) == -1e300
    assert CalendarStep(2 * LEAP_NS, NOW).of_s(-1e300) == -1e300
