"""A clock that advances only when moved."""

NS_PER_S = 1_000_000_000


class FakeClock:
    """Both clocks of a host, which advance only by calls.

    Args:
        time_ns: UTC in ns at the start.
    """

    def __init__(self, time_ns: int = 1_780_000_000 * NS_PER_S) -> None:
        self._time_ns = time_ns
        self._monotonic_ns = 5_000 * NS_PER_S
        self._suspended_ns = 0

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def time_ns(self) -> int:
        return self._time_ns

    def boottime_ns(self) -> int:
        return self._monotonic_ns + self._suspended_ns

    def suspend(self, duration_s: float) -> None:
        """Suspend the host: CLOCK_MONOTONIC does not advance meanwhile."""
        self._time_ns += int(duration_s * NS_PER_S)
        self._suspended_ns += int(duration_s * NS_PER_S)

    def move(self, duration_s: float) -> None:
        """Advance both clocks."""
        self._time_ns += int(duration_s * NS_PER_S)
        self._monotonic_ns += int(duration_s * NS_PER_S)

    def step(self, duration_s: float) -> None:
        """Step the wall clock only, as NTP or an operator does."""
        self._time_ns += int(duration_s * NS_PER_S)
