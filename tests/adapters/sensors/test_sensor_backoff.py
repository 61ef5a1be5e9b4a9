from costprobe.adapters.sensors.messages import Backoff
from costprobe.core.records import NS_PER_S
from hypothesis import given
from hypothesis import strategies as st


def test_waits_double_up_to_the_maximum():
    backoff = Backoff(60, 3600, reset_after_s=3600)
    now_ns = 0
    waits = []
    for _ in range(8):
        waits.append(backoff.next_s(now_ns))
        now_ns += int(waits[-1] * NS_PER_S)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_failure_after_a_long_success_starts_the_backoff_again():
    backoff = Backoff(1, 60, reset_after_s=300)
    assert [backoff.next_s(0), backoff.next_s(NS_PER_S)] == [1, 2]
    over_ns = 3 * NS_PER_S
    assert backoff.next_s(over_ns + 300 * NS_PER_S) == 4
    assert backoff.failures == 3
    over_ns += 304 * NS_PER_S
    assert backoff.next_s(over_ns + 301 * NS_PER_S) == 1
    assert backoff.failures == 1


@given(st.integers(1, 5000))
def test_any_number_of_failures_stays_within_bounds(count):
    backoff = Backoff(1, 60, reset_after_s=300)
    for _ in range(count):
        assert 1 <= backoff.next_s(0) <= 60
