"""Why a series of probe runs changed: the signals and events that changed with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from costprobe.core.records import BOARD, Point
from costprobe.domain.detection.causes import Cause, Explanation, causes
from costprobe.domain.detection.conditions import Comparison
from costprobe.domain.detection.levels import Levels
from costprobe.domain.detection.onset import change_point
from costprobe.domain.detection.runs import (
    DetectionRun,
    SoftwareChange,
    conditions,
    factors,
    signal_of,
    software_change_of,
)
from costprobe.domain.detection.settings import Metric
from costprobe.domain.detection.shares import explanation_of

# Runs around the start of a drift that locate it and its signals.
AROUND_RUNS = 24
# The latest runs represent the level after: that of a ramp is not its mean.
LATEST_RUNS = 24
# A change of software may precede its effect by so many runs; a signal may follow by LATER_RUNS.
SOFTWARE_RUNS = 6
LATER_RUNS = 1

# Returns the newest rows of `event` between two UTC ns.
Events = Callable[[int, int], Sequence[Point]]


def explain_change(
    before: Sequence[DetectionRun],
    after: Sequence[DetectionRun],
    events: Events,
    metric: Metric,
    sign: int,
) -> Explanation:
    """Return the causes of a change that did not begin after it, the most likely first.

    Args:
        before: Runs of the level before, oldest first; at least one.
        after: Runs since the estimated start; at least one.
        events: Returns the rows of `event`.
        metric: The series that changed.
        sign: 1 for a deterioration, -1 for an improvement, 0 if signals may move either way.
    """
    around = [*before[-AROUND_RUNS:], *after]
    split = len(around) - len(after)
    first, last = _onset(around, metric, split)
    earliest = around[max(0, first - SOFTWARE_RUNS - 1)]
    rows = events(earliest.time_ns + 1, around[-1].time_ns + 1)
    old, new = _software(rows, earliest, around[last], around[-1])
    latest = after[-LATEST_RUNS:]
    compared = Comparison(conditions(before, old), conditions(latest, new), sign)
    batches = [run.batch for run in around[last + 1 :]]
    if around[last].batch == around[split - 1].batch and batches:
        # The batch changed after the drift began.
        compared = replace(compared, after=replace(compared.after, batch=compared.before.batch))
    timed = [(cause, _timing(cause, around, (first, last))) for cause in causes(compared)]
    found = [
        replace(cause, coincides=None if timing is None else timing == "coincident")
        for cause, timing in timed
        if timing != "late"
    ]
    levels = Levels(metric, around[:first][-LATEST_RUNS:] or before, latest, before)
    return explanation_of(found, levels)


def _onset(runs: Sequence[DetectionRun], metric: Metric, split: int) -> tuple[int, int]:
    """Return the first and the last run with which a drift may begin."""
    prices = factors(runs)
    values = [run.value(metric, prices) for run in runs]
    logs = [math.log(value) for value in values if value is not None and value > 0]
    found = change_point(logs) if len(logs) == len(runs) else None
    if found is None:
        return split, split
    return min(split, found[1]), max(found[0], min(split, found[2]))


def _timing(
    cause: Cause, runs: Sequence[DetectionRun], onset: tuple[int, int]
) -> Literal["early", "coincident", "late"] | None:
    """Return when the signals of a cause changed relative to the drift; None if unknown."""
    is_early = False
    for signal in cause.signals:
        values = [signal_of(run, signal) for run in runs]
        known = [value for value in values if value is not None]
        found = change_point(known) if len(known) == len(values) else None
        if found is None:
            return None
        if found[1] > onset[1] + LATER_RUNS:
            return "late"
        is_early |= found[2] < onset[0] - LATER_RUNS
    if not cause.signals:
        return None
    return "early" if is_early else "coincident"


def _software(
    rows: Iterable[Point], before: DetectionRun, onset: DetectionRun, after: DetectionRun
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the versions, hashes and boards that changed for good, before and after.

    Versions are omitted if the fingerprint is the same.

    Args:
        rows: Rows of `event`.
        before: The last run without any change that may be the cause.
        onset: The last run with which the cause may have begun.
        after: The latest run.
    """
    changes: list[SoftwareChange] = [
        change
        for row in rows
        if (change := software_change_of(row)) is not None
        if before.time_ns < change.time_ns <= after.time_ns
    ]
    changes.sort(key=lambda change: change.time_ns)
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for change in changes:
        old = {**change.before, **old}
        new = {**new, **change.after}
    in_time = {
        key
        for change in changes
        if change.time_ns <= onset.time_ns
        for key in (*change.before, *change.after)
    }
    old, new = ({key: tags[key] for key in in_time if key in tags} for tags in (old, new))
    if not changes or before.fingerprint == after.fingerprint:
        boards = [{BOARD: tags[BOARD]} if BOARD in tags else {} for tags in (old, new)]
        is_later = before.fingerprint == onset.fingerprint
        old = {"fingerprint": before.fingerprint, **boards[0]}
        new = {"fingerprint": before.fingerprint if is_later else after.fingerprint, **boards[1]}
    return old, new
