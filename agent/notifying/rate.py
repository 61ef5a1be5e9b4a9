"""How fast a notifier may be told: a bucket of tokens, filled at a steady rate."""

from __future__ import annotations


class RateLimit:
    """Lets a minute's worth go at once, then no more than the rate.

    Args:
        per_minute: Messages in a minute.
        now_s: Seconds of a clock that is never set.
    """

    def __init__(self, per_minute: int, now_s: float) -> None:
        self._most = float(per_minute)
        self._per_s = per_minute / 60
        self._tokens = self._most
        self._filled_s = now_s

    def take(self, now_s: float) -> float:
        """Takes a token and returns 0; without one, the seconds until there is one."""
        filled = self._tokens + (now_s - self._filled_s) * self._per_s
        self._tokens, self._filled_s = min(self._most, filled), now_s
        if self._tokens < 1:
            return (1 - self._tokens) / self._per_s
        self._tokens -= 1
        return 0.0
