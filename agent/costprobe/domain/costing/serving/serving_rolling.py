"""Rolling cost on the serving basis: the ratio of cost to inferences in a rolling window."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from costprobe.core.records import NS_PER_S
from costprobe.domain.costing.probe.rolling import MAX_SAMPLES, WINDOWS_S


@dataclass(frozen=True, slots=True)
class RolledRatio:
    """Summary of a rolling window.

    Attributes:
        per_inference: Currency per inference; None without inferences.
        coverage: Share of the rolling window that complete windows cover.
    """

    per_inference: float | None
    coverage: float


class RollingRatio:
    """The complete windows of the last week of one service."""

    def __init__(self) -> None:
        self._windows: deque[tuple[int, float, float, float]] = deque(maxlen=MAX_SAMPLES)

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the end of the last window; 0 before the first."""
        return self._windows[-1][0] if self._windows else 0

    def add(self, time_ns: int, duration_s: float, cost: float, inferred: float) -> None:
        """Add a complete window; windows older than the longest rolling window are dropped.

        Args:
            time_ns: UTC in ns of its end.
            duration_s: Its length in seconds.
            cost: Its cost in currency, idle time included.
            inferred: Number of inferences; may be 0.
        """
        self._windows.append((time_ns, duration_s, cost, inferred))
        oldest_ns = time_ns - max(WINDOWS_S.values()) * NS_PER_S
        while self._windows and self._windows[0][0] <= oldest_ns:
            self._windows.popleft()

    def summaries(self, now_ns: int) -> dict[str, RolledRatio]:
        """Return each rolling window that ends at UTC now_ns and contains a window, by its name."""
        summaries: dict[str, RolledRatio] = {}
        for name, window_s in WINDOWS_S.items():
            since_ns = now_ns - window_s * NS_PER_S
            inside = [window for window in self._windows if since_ns < window[0] <= now_ns]
            if not inside:
                continue
            cost = sum(window[2] for window in inside)
            inferred = sum(window[3] for window in inside)
            summaries[name] = RolledRatio(
                per_inference=cost / inferred if inferred > 0 else None,
                coverage=min(1.0, sum(window[1] for window in inside) / window_s),
            )
        return summaries
