"""Rolling cost: median and interquartile range of the samples of the last hour, day and week."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.quantiles import quantile

WINDOWS_S: Mapping[str, int] = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400}
MAX_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Rolled:
    """A window's summary.

    Attributes:
        median: Median of the samples.
        iqr: Interquartile range of the samples.
        coverage: Share of the window's expected samples that are present, at most 1.
        samples: Number of samples.
    """

    median: float
    iqr: float
    coverage: float
    samples: int


@dataclass(frozen=True, slots=True)
class RollingWindows:
    """The samples of the last week of one series, in the order they were taken.

    Attributes:
        every_s: Expected seconds between samples, from which coverage is computed.
        samples: UTC in ns and value of each sample.
    """

    every_s: float
    samples: tuple[tuple[int, float], ...] = ()

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the last sample; 0 before the first."""
        return self.samples[-1][0] if self.samples else 0

    def with_sample(self, time_ns: int, value: float) -> RollingWindows:
        """Return the windows after a sample; samples older than the longest window are dropped."""
        oldest_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        samples = (*self.samples[1 - MAX_SAMPLES :], (time_ns, value))
        first = next(i for i, (sample_ns, _) in enumerate(samples) if sample_ns > oldest_ns)
        return replace(self, samples=samples[first:])

    def summaries(self, now_ns: int) -> dict[str, Rolled]:
        """Return each window that ends at UTC now_ns and contains a sample, by its WINDOWS_S name."""
        samples = sorted(self.samples)
        summaries: dict[str, Rolled] = {}
        for name, window_s in WINDOWS_S.items():
            first = bisect_left(samples, (now_ns - window_s * NS_PER_S + 1, -1e308))
            values = sorted(value for time_ns, value in samples[first:] if time_ns <= now_ns)
            if values:
                expected = max(1.0, min(window_s / self.every_s, MAX_SAMPLES))
                summaries[name] = Rolled(
                    median=quantile(values, 0.5),
                    iqr=quantile(values, 0.75) - quantile(values, 0.25),
                    coverage=min(1.0, len(values) / expected),
                    samples=len(values),
                )
        return summaries
