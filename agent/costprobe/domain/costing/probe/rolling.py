"""Rolling cost: median and interquartile range of the samples of the last hour, day and week."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.quantiles import quantile

WINDOWS_S: Mapping[str, int] = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400}
# A week of one sample a minute.
MAX_SAMPLES = 10_080


class RollingSample(NamedTuple):
    """A cost: UTC in ns, its value, and whether others used the device."""

    time_ns: int
    value: float
    is_contended: bool = False


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
class _OrderedWindow:
    """The samples of one window, which ends at the newest sample.

    Attributes:
        first: Index of the first sample in the window.
        ordered: Its values in ascending order.
    """

    first: int
    ordered: array[float]


class RollingWindows:
    """The last samples of one series, at most a week and MAX_SAMPLES of them; immutable.

    Each window's values are kept in order, so that a sample does not sort a week of them.

    Args:
        every_s: Expected seconds between samples, from which coverage is computed.
        samples: UTC in ns and value of each sample, oldest first.
    """

    def __init__(self, every_s: float, samples: Iterable[tuple[int, float]] = ()) -> None:
        self.every_s = every_s
        self._times_ns = array("q")
        self._values = array("d")
        self._windows = {name: _OrderedWindow(0, array("d")) for name in WINDOWS_S}
        for time_ns, value in samples:
            self._add(time_ns, value)

    def __eq__(self, other: object) -> bool:
        """Whether the samples are the same."""
        if not isinstance(other, RollingWindows):
            return NotImplemented
        ours = (self.every_s, self._times_ns, self._values)
        return ours == (other.every_s, other._times_ns, other._values)

    def __hash__(self) -> int:
        """Hash the samples' number and the newest one's time."""
        return hash((self.every_s, len(self._values), self.newest_ns))

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the last sample; 0 before the first."""
        return self._times_ns[-1] if self._times_ns else 0

    def with_sample(self, time_ns: int, value: float) -> RollingWindows:
        """Return the windows after a sample, which is not older than the newest one."""
        after = RollingWindows(self.every_s)
        after._times_ns = self._times_ns[:]
        after._values = self._values[:]
        after._windows = {
            name: _OrderedWindow(window.first, window.ordered[:])
            for name, window in self._windows.items()
        }
        after._add(time_ns, value)
        return after

    def summaries(self, now_ns: int) -> dict[str, Rolled]:
        """Return each window that ends at UTC now_ns and contains a sample, by its WINDOWS_S name."""
        return {
            name: self._rolled(name, ordered)
            for name in WINDOWS_S
            if (ordered := self._ordered(name, now_ns))
        }

    def _rolled(self, name: str, ordered: Sequence[float]) -> Rolled:
        expected = max(1.0, min(WINDOWS_S[name] / self.every_s, MAX_SAMPLES))
        return Rolled(
            median=quantile(ordered, 0.5),
            iqr=quantile(ordered, 0.75) - quantile(ordered, 0.25),
            coverage=min(1.0, len(ordered) / expected),
            samples=len(ordered),
        )

    def _ordered(self, name: str, now_ns: int) -> Sequence[float]:
        if now_ns == self.newest_ns:
            return self._windows[name].ordered
        since_ns = now_ns - WINDOWS_S[name] * NS_PER_S
        pairs = zip(self._times_ns, self._values, strict=True)
        return sorted(value for time_ns, value in pairs if since_ns < time_ns <= now_ns)

    def _add(self, time_ns: int, value: float) -> None:
        self._times_ns.append(time_ns)
        self._values.append(value)
        excess = max(0, len(self._values) - MAX_SAMPLES)
        for name, window_s in WINDOWS_S.items():
            first, ordered = self._windows[name].first, self._windows[name].ordered
            since_ns = time_ns - window_s * NS_PER_S
            insort(ordered, value)
            while first < excess or self._times_ns[first] <= since_ns:
                del ordered[bisect_left(ordered, self._values[first])]
                first += 1
            self._windows[name] = _OrderedWindow(first, ordered)
        self._drop(min(window.first for window in self._windows.values()))

    def _drop(self, count: int) -> None:
        """Drop the oldest samples, which are in no window any more."""
        if count:
            del self._times_ns[:count], self._values[:count]
            self._windows = {
                name: _OrderedWindow(window.first - count, window.ordered)
                for name, window in self._windows.items()
            }


@dataclass(frozen=True, slots=True)
class RollingCosts:
    """The costs of a probe; contended ones count only in a window that has no others.

    Attributes:
        undisturbed: Costs measured without another process on the device.
        contended: Costs measured beside other work.
    """

    undisturbed: RollingWindows
    contended: RollingWindows

    @classmethod
    def of(cls, every_s: float, samples: Iterable[RollingSample] = ()) -> RollingCosts:
        """Return the rolling costs of samples, oldest first, one every so many seconds."""
        parts: dict[bool, list[tuple[int, float]]] = {False: [], True: []}
        for sample in samples:
            parts[sample.is_contended].append((sample.time_ns, sample.value))
        return cls(RollingWindows(every_s, parts[False]), RollingWindows(every_s, parts[True]))

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the last sample; 0 before the first."""
        return max(self.undisturbed.newest_ns, self.contended.newest_ns)

    def with_sample(self, sample: RollingSample) -> RollingCosts:
        """Return the rolling costs after a sample, which is not older than the newest one."""
        time_ns, value, is_contended = sample
        if is_contended:
            return replace(self, contended=self.contended.with_sample(time_ns, value))
        return replace(self, undisturbed=self.undisturbed.with_sample(time_ns, value))

    def summaries(self, now_ns: int) -> dict[str, Rolled]:
        """Return each window that ends at UTC now_ns and contains a sample, by its WINDOWS_S name."""
        found = {**self.contended.summaries(now_ns), **self.undisturbed.summaries(now_ns)}
        return {name: found[name] for name in WINDOWS_S if name in found}
