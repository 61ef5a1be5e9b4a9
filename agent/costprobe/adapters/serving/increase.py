"""The increase of a server's counters between two readings: per series, then summed.

A series whose value fell, or whose creation time moved, was reset: its whole value was counted
since, and that of each series which is only reset together with it. A process or series that began
before the last reading of another was read in its place: several processes share the address, of
which each reading shows one, and nothing is counted. A series that is new counts from zero if the
process restarted, if its creation time is after the last reading, or if the engine creates series
with their first count; otherwise its first value is the baseline, because what it counted before is
unknown. What is unknown makes a window incomplete and is never counted as work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from costprobe.adapters.serving.counters import ResetGroup
from costprobe.adapters.serving.exposition import Labels
from costprobe.adapters.serving.reading import CounterReading, MeasureSeries, SeriesValue
from costprobe.core.serving_words import Measure

MAX_GONE = 2000
# Start times are derived from ticks since boot (1/100 s) and a wall clock in whole s.
_TICK_S = 0.02
_WALL_CLOCK_S = 1.0
# Readings in which one of several processes may answer alone by chance.
_SHARED_READINGS = 20
_SHARED = (
    "several processes share this address, and each reading shows the counters of one: give each"
    " replica its own url, or let the server run with one worker"
)

Increases = dict[tuple[Measure, str], float]
_Key = tuple[Measure, str, Labels]


@dataclass(frozen=True, slots=True)
class CounterStep:
    """The changes between two readings of a server.

    Attributes:
        increases: Counts by measure and model.
        problems: Why the counts may be incomplete.
        restarted: Whether a counter was reset.
    """

    increases: Increases = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    restarted: bool = False


class CounterHistory:
    """One server's counters at its last successful reading.

    Args:
        counts_begin_at_zero: Whether the engine creates a series with its first count.
        reset_together: Which of its series are only reset together.
    """

    def __init__(self, *, counts_begin_at_zero: bool, reset_together: ResetGroup = "none") -> None:
        self._counts_begin_at_zero = counts_begin_at_zero
        self._reset_together = reset_together
        self._last: CounterReading | None = None
        self._last_utc_s = 0.0
        self._newest_s = 0.0
        self._gone: dict[_Key, SeriesValue] = {}
        self._doubtful_readings = 0

    def take(self, reading: CounterReading, utc_s: float) -> CounterStep:
        """Take a successful reading; the first one is the baseline.

        Args:
            reading: The server's counters.
            utc_s: UTC in s of the scrape, on the clock of the server's `_created` times.
        """
        last, self._last = self._last, reading
        last_utc_s, self._last_utc_s = self._last_utc_s, utc_s
        if last is None:
            self._newest_s = reading.started_s or 0.0
            return CounterStep()
        newest_s, self._newest_s = self._newest_s, max(self._newest_s, reading.started_s or 0.0)
        resets = _reset_series(reading, last)
        is_new_process = _started_apart(reading, last, is_reset=resets != "none")
        if _is_shared(reading, last, newest_s, last_utc_s, is_new_process=is_new_process):
            self._doubtful_readings = _SHARED_READINGS
        elif is_new_process:
            self._doubtful_readings = 0
        if self._doubtful_readings > 0:
            self._doubtful_readings -= 1
            self._gone.clear()
            return CounterStep({}, (_SHARED,), restarted=False)
        if self._reset_together == "process":
            is_new_process = (
                is_new_process or resets != "none" or bool(_vanished_series(reading, last))
            )
        restarted = is_new_process or resets == "all"
        if restarted:
            self._gone.clear()
        counting = _Counting(
            since_s=last_utc_s,
            is_new_process=is_new_process,
            from_zero=restarted or self._counts_begin_at_zero,
            reset_models=(
                _reset_models(reading, last) if self._reset_together == "model" else frozenset()
            ),
            gone=self._gone,
        )
        for measure, counted in reading.measures.items():
            counting.add(measure, counted, last.measures.get(measure), restarted=restarted)
        if not restarted:
            counting.problems += _disappeared(reading, last, self._gone)
        problems = tuple(dict.fromkeys(counting.problems))
        return CounterStep(counting.increases, problems, restarted or resets == "some")


@dataclass(slots=True)
class _Counting:
    """The step that is being computed.

    Attributes:
        since_s: UTC in s of the reading before.
        is_new_process: Whether the process restarted, so that all counters were reset.
        from_zero: Whether the whole value of a new series was counted since the last reading.
        reset_models: Served models of which all series were reset.
        gone: Series that disappeared before the last reading.
        increases: Counts by measure and model.
        problems: Why the counts may be incomplete.
    """

    since_s: float
    is_new_process: bool
    from_zero: bool
    reset_models: frozenset[str]
    gone: dict[_Key, SeriesValue]
    increases: Increases = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(
        self,
        measure: Measure,
        counted: MeasureSeries,
        before: MeasureSeries | None,
        *,
        restarted: bool,
    ) -> None:
        if not restarted and before is not None and _is_another(counted, before):
            self.problems.append(f"{measure} is counted by {counted.counter} now")
            return
        known = before.series if before and before.counter == counted.counter else {}
        for labels, value in counted.series.items():
            key = (measure, counted.counter, labels)
            grown = self._increase(key, value, known.get(labels))
            place = (measure, value.model)
            self.increases[place] = self.increases.get(place, 0.0) + grown

    def _increase(self, key: _Key, value: SeriesValue, before: SeriesValue | None) -> float:
        if before is not None:
            is_reset = self.is_new_process or value.model in self.reset_models
            if is_reset or _was_reset(value, before):
                return value.value
            return value.value - before.value
        gone = self.gone.pop(key, None)
        if gone is not None:
            if _was_reset(value, gone):
                return value.value
            self.problems.append(f"a series of {key[1]} disappeared for a while")
            return value.value - gone.value
        is_young = value.created_s is not None and value.created_s > self.since_s
        return value.value if self.from_zero or is_young else 0.0


def _started_apart(reading: CounterReading, last: CounterReading, *, is_reset: bool) -> bool:
    """Return whether two readings have different process start times."""
    if reading.started_s is None or last.started_s is None:
        return False
    apart_s = abs(reading.started_s - last.started_s)
    # A wall clock in whole seconds flips by one.
    may_be_same = abs(apart_s - _WALL_CLOCK_S) <= _TICK_S and not is_reset
    return apart_s > _TICK_S and not may_be_same


def _is_shared(
    reading: CounterReading,
    last: CounterReading,
    newest_s: float,
    since_s: float,
    *,
    is_new_process: bool,
) -> bool:
    """Return whether another process answered that ran already at the last reading.

    Args:
        reading: The counters.
        last: Those of the last reading.
        newest_s: UTC in s of the latest start of a process that was read.
        since_s: UTC in s of the last reading.
        is_new_process: Whether the start times differ.
    """
    if is_new_process:
        # The start times of one host agree with each other; with a clock they do to a second.
        earliest_s = max(newest_s, since_s - _WALL_CLOCK_S - _TICK_S)
        return (reading.started_s or 0.0) <= earliest_s
    return any(
        _began_earlier(value, counted.series[labels], since_s)
        for measure, before in last.measures.items()
        if (counted := reading.measures.get(measure)) and counted.counter == before.counter
        for labels, value in before.series.items()
        if labels in counted.series
    )


def _began_earlier(before: SeriesValue, value: SeriesValue, since_s: float) -> bool:
    """Return whether a series is another one, which existed at the last reading already."""
    if value.created_s is None or before.created_s is None:
        return False
    return value.created_s != before.created_s and value.created_s <= since_s


def _was_reset(value: SeriesValue, before: SeriesValue) -> bool:
    if value.value < before.value:
        return True
    return (
        value.created_s is not None
        and before.created_s is not None
        and value.created_s > before.created_s
    )


def _common(
    reading: CounterReading, last: CounterReading
) -> Iterator[tuple[SeriesValue, SeriesValue]]:
    """Yield the series with a count that both readings show: the value now, and the one before."""
    for measure, before in last.measures.items():
        counted = reading.measures.get(measure)
        if counted is None or counted.counter != before.counter:
            continue
        for labels, value in before.series.items():
            if value.value > 0 and labels in counted.series:
                yield counted.series[labels], value


def _reset_series(reading: CounterReading, last: CounterReading) -> Literal["none", "some", "all"]:
    """Return whether some or all of the series with a count were reset."""
    resets = [_was_reset(value, before) for value, before in _common(reading, last)]
    if not any(resets):
        return "none"
    return "all" if all(resets) else "some"


def _reset_models(reading: CounterReading, last: CounterReading) -> frozenset[str]:
    """Return the served models of which a series was reset."""
    common = _common(reading, last)
    return frozenset(value.model for value, before in common if _was_reset(value, before))


def _is_another(counted: MeasureSeries, before: MeasureSeries) -> bool:
    """Return whether a measure is read from another counter, which may have counted the same."""
    return counted.counter != before.counter and bool(before.series)


def _vanished_series(reading: CounterReading, last: CounterReading) -> dict[_Key, SeriesValue]:
    """Return the series of the last reading that are no longer exposed."""
    return {
        (measure, before.counter, labels): value
        for measure, before in last.measures.items()
        for now in (reading.measures.get(measure),)
        if now is None or now.counter == before.counter
        for labels, value in before.series.items()
        if now is None or labels not in now.series
    }


def _disappeared(
    reading: CounterReading, last: CounterReading, gone: dict[_Key, SeriesValue]
) -> list[str]:
    """Return the series that disappeared without a restart, whose values are kept."""
    problems = []
    for key, value in _vanished_series(reading, last).items():
        problems.append(f"a series of {key[1]} disappeared")
        if len(gone) < MAX_GONE:
            gone[key] = value
    return problems
