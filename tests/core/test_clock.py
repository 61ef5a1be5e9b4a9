"""The time of a row is a whole millisecond, never later than its event."""

from costprobe.core.clock import NS_PER_MS, row_ns, utc_ns
from fakes.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 2**62), st.integers(0, 2**50))
def test_row_time_is_rounded_down_to_a_millisecond(time_ns, ago_ns):
    clock = FakeClock(time_ns)
    read_ns = clock.monotonic_ns() - ago_ns
    at_ns, exact_ns = row_ns(clock, read_ns), utc_ns(clock, read_ns)
    assert at_ns % NS_PER_MS == 0
    assert 0 <= exact_ns - at_ns < NS_PER_MS
