"""The share of a probe's runs beside a neighbour: one change, from when it rises until it is as rare as before.

A run beside other work says little of the device itself: it is neither in the baseline nor an outlier. What
such runs cost more is measured against the level of the others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Final, Literal

from costprobe.core.records import NS_PER_S, Event
from costprobe.core.units import percent
from costprobe.drift.causes import UNKNOWN, Cause, Explanation
from costprobe.drift.events import change_event, level_event
from costprobe.drift.findings import CONTENTION, Finding
from costprobe.drift.message import Key, RowHistory, change_of, tags_of

# Runs over which the share is counted.
WINDOW_RUNS: Final = 48
# A share is clearly above the usual one by this difference, and by standard errors of the usual one.
CLEARLY: Final = 0.15
SHARE_ERRORS: Final = 2.0
# The usual share is the largest of the past, which counts half after this time: work by day, not at weekends.
HALVED_S: Final = 14 * 86_400.0
# Runs that have the device for themselves by this chance end the change; at least six of them.
ENDS_BY_CHANCE: Final = 1e-4
LEAST_FREE_RUNS: Final = 6
MOST_SHARE: Final = 0.95
# Contended runs of which the additional cost is a median.
COST_RUNS: Final = 24
LEAST_COST_RUNS: Final = 3
# Above this share over so many runs the device is shared: its contended runs have a baseline of their own.
SHARED: Final = 0.75
DAY_RUNS: Final = 288
NEIGHBOUR: Final = "neighbour"


@dataclass(slots=True)
class ContendedRuns:
    """The runs of a probe, and which of them were contended.

    Attributes:
        times_ns: UTC in ns of the last runs.
        flags: Whether each was contended.
        count: Number of runs.
        day_share: Share of contended runs in the last DAY_RUNS.
        usual: The usual share: the largest of WINDOW_RUNS, until the last DAY_RUNS.
        most: The largest since then.
        log_excess: What the last contended runs cost more than the level, in log units.
        reported: The share that was reported; 0 while there is no change.
        since_ns: Its start, UTC in ns.
    """

    times_ns: list[int] = field(default_factory=list)
    flags: list[bool] = field(default_factory=list)
    count: int = 0
    day_share: float = 0.0
    usual: float = 0.0
    most: float = 0.0
    log_excess: list[float] = field(default_factory=list)
    reported: float = 0.0
    since_ns: int = 0

    @property
    def last_ns(self) -> int:
        """UTC in ns of the last run; 0 before the first."""
        return self.times_ns[-1] if self.times_ns else 0

    @property
    def is_shared(self) -> bool:
        """Whether a run has the device hardly ever for itself."""
        return self.count >= WINDOW_RUNS and self.day_share >= SHARED

    @property
    def contended(self) -> tuple[int, int]:
        """Contended runs and all runs since the change began, as far as the window reaches."""
        since = self.flags[bisect_left(self.times_ns, self.since_ns) :]
        return sum(since), len(since)

    def add(
        self, time_ns: int, least_effect: float, log_excess: float | None
    ) -> Literal["more", "back", ""]:
        """Add a run; return whether contended runs became clearly more, or are as rare as before.

        Args:
            time_ns: UTC in ns; a run not later than the last one is skipped.
            least_effect: Smallest cost of a neighbour that counts, in log units.
            log_excess: What the run cost more than the level; NaN where unknown, None if it was not contended.
        """
        last_ns = self.last_ns
        if time_ns <= last_ns:
            return ""
        is_contended = log_excess is not None
        if log_excess is not None and not math.isnan(log_excess):
            self.log_excess = [*self.log_excess, log_excess][-COST_RUNS:]
        self.times_ns = [*self.times_ns, time_ns][-WINDOW_RUNS:]
        self.flags = [*self.flags, is_contended][-WINDOW_RUNS:]
        self.count += 1
        self.day_share += (is_contended - self.day_share) / min(self.count, DAY_RUNS)
        if len(self.flags) < WINDOW_RUNS:
            return ""
        share = fmean(self.flags)
        self.most = max(share, self.most)
        is_over = bool(self.reported) and self._is_over()
        if is_over or self.count == WINDOW_RUNS or not self.count % DAY_RUNS:
            self.usual, self.most = max(self.usual, self.most), 0.0
        self.usual *= 0.5 ** ((time_ns - last_ns) / NS_PER_S / HALVED_S)
        before = self.reported or self.usual
        limit = before + CLEARLY + SHARE_ERRORS * math.sqrt(before * (1 - before) / WINDOW_RUNS)
        if is_over:
            self.reported = 0.0
            return "back"
        is_known = len(self.log_excess) >= LEAST_COST_RUNS
        if share <= limit or not is_known or median(self.log_excess) < least_effect:
            return ""
        self.since_ns = self.since_ns if self.reported else self._began_ns((before + limit) / 2)
        contended, runs = self.contended
        self.reported = contended / runs
        return "more"

    def _began_ns(self, middle: float) -> int:
        """Return the time from which the runs exceed a share by most (the start of a CUSUM)."""
        total, best, began_ns = 0.0, 0.0, self.last_ns
        runs = zip(reversed(self.times_ns), reversed(self.flags), strict=True)
        for time_ns, is_contended in runs:
            total += is_contended - middle
            if total >= best:
                best, began_ns = total, time_ns
        return began_ns

    def _is_over(self) -> bool:
        """Return whether the last runs were free for longer than by chance."""
        if True not in self.flags:
            return True
        free = self.flags[::-1].index(True)
        chance = (1 - min(self.reported, MOST_SHARE)) ** free
        return free >= LEAST_FREE_RUNS and chance < ENDS_BY_CHANCE


def contention_event(runs: ContendedRuns, key: Key, time_ns: int, history: RowHistory) -> Event:
    """Return the event of runs that are beside a neighbour more often.

    Args:
        runs: The runs.
        key: The series that shows what they cost.
        time_ns: UTC in ns.
        history: Returns the rows before and after the change.
    """
    excess, since_ns = median(runs.log_excess), runs.since_ns
    contended, count = runs.contended
    # The causes are those of all runs.
    mean = excess * runs.reported
    finding = Finding("drift", time_ns / NS_PER_S, since_ns / NS_PER_S, 1.0, math.exp(mean), mean)
    change = change_of(finding, key, (0, since_ns), time_ns, history)
    text = f"another process used the device in {contended} of {count} runs"
    causes = tuple(
        replace(cause, text=text) if cause.name == NEIGHBOUR else cause
        for cause in change.explanation.causes
    )
    explained = replace(change.explanation, causes=causes)
    if explained.name == UNKNOWN:
        explained = Explanation(NEIGHBOUR, (Cause(NEIGHBOUR, text),))
    change = replace(
        change,
        what=f"{change.what} beside a neighbour ({percent(runs.reported)} of the runs)",
        change_pct=100 * math.expm1(excess),
        since_ns=since_ns,
        is_worse=True,
        explanation=explained,
        basis="",
        money=None,
        price=None,
        split="",
    )
    return change_event(change, tags_of(key), CONTENTION)


def contention_ended_event(time_ns: int, device: str, probe: str) -> Event:
    """Return the event of runs that are beside a neighbour as rarely as before."""
    title = f"runs of {probe} on {device} beside a neighbour are as rare as before"
    return level_event(title, {"device": device, "probe": probe}, CONTENTION, time_ns)
