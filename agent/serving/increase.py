"""How much a server's counters grew between two readings: each series by itself, then summed.

A series that fell, or says that it was created later than before, began anew: all that it shows was
counted since. One that was not there at the last reading counts from zero where the process began
anew, where its `_created` says so, or where the engine is known to make a series with its first
count; from its first value elsewhere, for what it counted before is then unknown. What is unknown
makes a window incomplete, and is never taken for work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.costing.served import Measure
from agent.serving.exposition import Labels
from agent.serving.reading import Counted, Reading, Value

MAX_GONE = 2000
# Start times are told in hundredths of seconds since the host's start, by clocks that are corrected.
_SAME_START_S = 1.0

Increases = dict[tuple[Measure, str], float]
_Key = tuple[Measure, str, Labels]


@dataclass(frozen=True, slots=True)
class Step:
    """What happened between two readings of a server.

    Attributes:
        increases: What was counted, by measure and model.
        problems: Why that may not be all.
        restarted: Whether a counter began anew.
    """

    increases: Increases = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    restarted: bool = False


class CounterHistory:
    """Where one server's counters stood at its last good reading.

    Args:
        counts_begin_at_zero: Whether the engine makes a series with its first count.
    """

    def __init__(self, *, counts_begin_at_zero: bool) -> None:
        self._counts_begin_at_zero = counts_begin_at_zero
        self._last: Reading | None = None
        self._last_utc_s = 0.0
        self._newest_s = 0.0
        self._gone: dict[_Key, Value] = {}

    def take(self, reading: Reading, utc_s: float) -> Step:
        """Takes a good reading; the first one is what the next is held against.

        Args:
            reading: What the server counts.
            utc_s: UTC in s at which it was asked, by the clock that its `_created` is told by.
        """
        last, self._last = self._last, reading
        last_utc_s, self._last_utc_s = self._last_utc_s, utc_s
        if last is None:
            self._newest_s = reading.started_s or 0.0
            return Step()
        newest_s, self._newest_s = self._newest_s, max(self._newest_s, reading.started_s or 0.0)
        is_new_process = _started_apart(reading, last)
        if is_new_process and (reading.started_s or 0.0) <= newest_s:
            # Its counts and the other's go side by side: neither is the other's beginning.
            self._gone.clear()
            told = "an older process answers than before; give each replica its own address in url"
            return Step({}, (told,), restarted=False)
        began_anew = _series_that_began_anew(reading, last)
        restarted = is_new_process or began_anew == "all"
        if restarted:
            self._gone.clear()
        counting = _Counting(
            since_s=last_utc_s,
            is_new_process=is_new_process,
            from_zero=restarted or self._counts_begin_at_zero,
            gone=self._gone,
        )
        for measure, counted in reading.measures.items():
            counting.add(measure, counted, last.measures.get(measure), restarted=restarted)
        if not restarted:
            counting.problems += _vanished(reading, last, self._gone)
        problems = tuple(dict.fromkeys(counting.problems))
        return Step(counting.increases, problems, restarted or began_anew == "some")


@dataclass(slots=True)
class _Counting:
    """One step on its way.

    Attributes:
        since_s: UTC in s of the reading before.
        is_new_process: Whether everything is known to have begun anew.
        from_zero: Whether a series that was not there has counted all it shows since then.
        gone: Series that were there before the last reading.
        increases: What was counted.
        problems: Why that may not be all.
    """

    since_s: float
    is_new_process: bool
    from_zero: bool
    gone: dict[_Key, Value]
    increases: Increases = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(
        self, measure: Measure, counted: Counted, before: Counted | None, *, restarted: bool
    ) -> None:
        if not restarted and before is not None and _is_another(counted, before):
            self.problems.append(f"{measure} is counted by {counted.counter} now")
            return
        known = before.series if before and before.counter == counted.counter else {}
        for labels, value in counted.series.items():
            key = (measure, counted.counter, labels)
            grown = self._grown(key, value, known.get(labels))
            place = (measure, value.model)
            self.increases[place] = self.increases.get(place, 0.0) + grown

    def _grown(self, key: _Key, value: Value, before: Value | None) -> float:
        if before is not None:
            if self.is_new_process or _began_anew(value, before):
                return value.value
            return value.value - before.value
        gone = self.gone.pop(key, None)
        if gone is not None:
            if _began_anew(value, gone):
                return value.value
            self.problems.append(f"a series of {key[1]} was away for a while")
            return value.value - gone.value
        is_young = value.created_s is not None and value.created_s > self.since_s
        return value.value if self.from_zero or is_young else 0.0


def _started_apart(reading: Reading, last: Reading) -> bool:
    """Whether two readings are of two processes, as far as they tell."""
    if reading.started_s is None or last.started_s is None:
        return False
    return abs(reading.started_s - last.started_s) > _SAME_START_S


def _began_anew(value: Value, before: Value) -> bool:
    if value.value < before.value:
        return True
    return (
        value.created_s is not None
        and before.created_s is not None
        and value.created_s > before.created_s
    )


def _series_that_began_anew(reading: Reading, last: Reading) -> Literal["none", "some", "all"]:
    """How many of the series that had counted something show that they began anew."""
    told = [
        _began_anew(counted.series[labels], value)
        for measure, before in last.measures.items()
        if (counted := reading.measures.get(measure)) and counted.counter == before.counter
        for labels, value in before.series.items()
        if value.value > 0 and labels in counted.series
    ]
    if not any(told):
        return "none"
    return "all" if all(told) else "some"


def _is_another(counted: Counted, before: Counted) -> bool:
    """Whether a measure is read from another counter, which may have counted the same before."""
    return counted.counter != before.counter and bool(before.series)


def _vanished(reading: Reading, last: Reading, gone: dict[_Key, Value]) -> list[str]:
    """Series that are gone though the process is the same; their counts are remembered."""
    problems = []
    for measure, before in last.measures.items():
        now = reading.measures.get(measure)
        if now is not None and now.counter != before.counter:
            continue
        for labels, value in before.series.items():
            if now is None or labels not in now.series:
                problems.append(f"a series of {before.counter} is gone")
                if len(gone) < MAX_GONE:
                    gone[measure, before.counter, labels] = value
    return problems
