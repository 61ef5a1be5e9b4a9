"""A token bucket: bursts up to its capacity, then a steady rate."""

from __future__ import annotations


class TokenBucket:
    """Tokens that refill at a steady rate; the bucket starts full.

    Args:
        per_s: Tokens added per second.
        capacity: Most tokens it holds.
        now_s: Monotonic seconds.
    """

    def __init__(self, per_s: float, capacity: float, now_s: float) -> None:
        self._per_s = per_s
        self._capacity = capacity
        self._tokens = capacity
        self._filled_s = now_s

    def wait_s(self, now_s: float, tokens: float = 0.0) -> float:
        """Return the seconds until the bucket holds `tokens`; 0.0 if it does now.

        Args:
            now_s: Monotonic seconds.
            tokens: Number of tokens; with 0, the wait ends when the bucket is no longer overdrawn.
        """
        self._tokens = min(self._capacity, self._tokens + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return max(0.0, (tokens - self._tokens) / self._per_s)

    def take(self, tokens: float = 1.0) -> None:
        """Remove tokens; more than there are overdraws the bucket."""
        self._tokens -= tokens
