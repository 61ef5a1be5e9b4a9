"""Rolling cost: the median and the spread of the samples of the last hour, day and week."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from agent.costing.quantiles import quantile
from agent.model import NS_PER_S

WINDOWS_S: Mapping[str, int] = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400}
MAX_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Rolled:
    """A window's summary.

    Attributes:
        median: Median of the samples.
        iqr: Interquartile range of the samples.
        coverage: Share of the window's expected samples that are there, at most 1; a window
            below one half says little.
        samples: Number of samples.
    """

    median: float
    iqr: float
    coverage: float
    samples: int


class RollingWindows:
    """The samples of the last week of one series, and their summaries.

    Args:
        every_s: Seconds between samples when all goes well: what coverage is measured by.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the sample that came last; 0 before the first."""
        return self._samples[-1][0] if self._samples else 0

    def add(self, time_ns: int, value: float) -> None:
        """Takes a sample of UTC time_ns; samples older than the longest window go."""
        self._samples.append((time_ns, value))
        oldest_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        while self._samples and self._samples[0][0] <= oldest_ns:
            self._samples.popleft()

    def summaries(self, now_ns: int) -> dict[str, Rolled]:
        """Each window that ends at UTC now_ns and holds a sample, by its name in WINDOWS_S."""
        samples = sorted(self._samples)
        found: dict[str, Rolled] = {}
        for name, window_s in WINDOWS_S.items():
            first = bisect_left(samples, (now_ns - window_s * NS_PER_S + 1, -1e308))
            values = sorted(value for time_ns, value in samples[first:] if time_ns <= now_ns)
            if values:
                expected = max(1.0, min(window_s / self._every_s, MAX_SAMPLES))
                found[name] = Rolled(
                    median=quantile(values, 0.5),
                    iqr=quantile(values, 0.75) - quantile(values, 0.25),
                    coverage=min(1.0, len(values) / expected),
                    samples=len(values),
                )
        return found
