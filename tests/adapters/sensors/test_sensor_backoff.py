from costprobe.adapters.sensors.messages import Backoff
from costprobe.core.records import NS_PER_S


def test_waits_double_up_to_the_maximum_until_a_time_without_failures():
    backoff = Backoff(1, 60, reset_after_s=300)
    assert [backoff.next_s(0) for _ in range(2000)] == [1, 2, 4, 8, 16, 32, *[60] * 1994]
    over_ns = 60 * NS_PER_S
    assert backoff.next_s(over_ns + 300 * NS_PER_S) == 60
    over_ns += 360 * NS_PER_S
    assert (backoff.next_s(over_ns + 301 * NS_PER_S), backoff.failures) == (1, 1)
