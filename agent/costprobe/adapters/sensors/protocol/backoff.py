"""Back-off after failures."""

from __future__ import annotations

from costprobe.core.records import NS_PER_S


class Backoff:
    """Waits that double with each failure and start again after a time without failures.

    Args:
        first_s: Wait after the first failure in s.
        max_s: Longest wait in s.
        reset_after_s: A failure later than this after the end of the last wait, in s, is a
            first one again.
    """

    def __init__(self, first_s: float, max_s: float, reset_after_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._reset_after_s = reset_after_s
        self._over_ns: int | None = None
        self.failures = 0

    def next_s(self, now_ns: int) -> float:
        """Return the wait in s after a failure at this instant (CLOCK_MONOTONIC ns)."""
        good_ns = 0 if self._over_ns is None else now_ns - self._over_ns
        if good_ns > self._reset_after_s * NS_PER_S:
            self.failures = 0
        # 2**62 s exceeds any maximum; the bound prevents an overflow.
        wait_s = min(self._max_s, self._first_s * 2.0 ** min(self.failures, 62))
        self.failures += 1
        self._over_ns = now_ns + int(wait_s * NS_PER_S)
        return wait_s
