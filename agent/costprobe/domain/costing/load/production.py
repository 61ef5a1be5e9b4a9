"""Whether a service's latency rises above its level before a load curve."""

from __future__ import annotations

from typing import Final

# Fewer requests give no level.
REQUESTS_MIN: Final = 3


class LatencyWatch:
    """Compare the mean latency of a service with its level before the load.

    Args:
        rise_max: Factor of the level before that must not be exceeded.

    Attributes:
        level: Mean latency before the load; None without requests: nobody is affected then.
    """

    def __init__(self, rise_max: float) -> None:
        self._rise_max = rise_max
        self._last: tuple[float, float] | None = None
        self.level: float | None = None

    def begin(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        """Set the level from two readings of total latency and requests before the load."""
        self._last = after
        self.level = _mean(before, after)

    def update(self, reading: tuple[float, float]) -> float | None:
        """Add a reading; return the factor of the level, if it is above the allowed one.

        Args:
            reading: Total latency and requests since the start of the service.
        """
        if self._last is None or reading[1] < self._last[1]:
            self._last = reading  # the service was restarted
            return None
        mean = _mean(self._last, reading)
        if mean is None:
            return None
        self._last = reading
        if self.level is None or not self.level:
            return None
        rise = mean / self.level
        return rise if rise > self._rise_max else None


def _mean(before: tuple[float, float], after: tuple[float, float]) -> float | None:
    requests = after[1] - before[1]
    return (after[0] - before[0]) / requests if requests >= REQUESTS_MIN else None
