"""Why a series of probe runs changed: the signals and events that changed with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Literal

from costprobe.core.records import BOARD, Point
from costprobe.domain.detection.causes import Cause, Explanation, causes
from costprobe.domain.detection.conditions import Comparison
from costprobe.domain.detection.event_causes import (
    Onset,
    annotations_of,
    coincides_with_software,
    software_of,
)
from costprobe.domain.detection.levels import Levels
from costprobe.domain.detection.onset import change_point
from costprobe.domain.detection.runs import (
    DetectionRun,
    conditions,
    factors,
    signal_of,
)
from costprobe.domain.detection.settings import Metric
from costprobe.domain.detection.shares import explanation_of

# Runs around the start of a drift that locate it and its signals.
AROUND_RUNS = 24
# The latest runs represent the level after: that of a ramp is not its mean.
LATEST_RUNS = 24
# Values further than this share of the change outside of both levels are clipped.
OUTLIER_MARGIN = 0.5
# An outlier so many runs before the change may look like its beginning.
OUTLIER_RUNS = 3
# An event may precede its effect by so many runs, and coincides within the last ones; a signal may
# follow by LATER_RUNS.
EVENT_RUNS = 6
COINCIDENT_RUNS = 2
LATER_RUNS = 1

# Returns the newest rows of `event` between two UTC ns.
Events = Callable[[int, int], Sequence[Point]]


def explain_change(
    before: Sequence[DetectionRun],
    after: Sequence[DetectionRun],
    events: Events,
    metric: Metric,
    sign: int,
    *,
    whole: bool = False,
) -> Explanation:
    """Return the causes of a change that did not begin after it, the most likely first.

    Args:
        before: Runs of the level before, oldest first; at least one.
        after: Runs since the estimated start; at least one.
        events: Returns the rows of `event`.
        metric: The series that changed.
        sign: 1 for a deterioration, -1 for an improvement, 0 if signals may move either way.
        whole: Whether all runs represent their level, as those of two periods; else the latest do.
    """
    around = [*before[-AROUND_RUNS:], *after]
    split = len(around) - len(after)
    first, last = _onset(around, metric, split)
    times = Onset(
        earliest=around[max(0, first - EVENT_RUNS - 1)],
        first=around[max(0, first - COINCIDENT_RUNS - 1)],
        last=around[last],
        latest=around[-1],
    )
    rows = events(times.earliest.time_ns + 1, times.latest.time_ns + 1)
    old, new = software_of(rows, times)
    latest = after if whole else around[last:][-LATEST_RUNS:]
    # Runs with which the drift may have begun are of neither level.
    settled = before if whole else before[: len(before) - (split - first)] or before
    compared = Comparison(conditions(settled, old), conditions(latest, new), sign)
    is_software_timely = coincides_with_software(rows, times)
    found = [*annotations_of(rows, times)]
    for cause in causes(compared):
        timing = _timing(cause, around, (first, last))
        if cause.name.startswith(("software", BOARD)):
            found.append(replace(cause, coincides=is_software_timely))
        elif timing != "late":
            found.append(replace(cause, coincides=timing and timing == "coincident"))
    earlier = settled if whole else settled[-LATEST_RUNS:]
    levels = Levels(metric, earlier, latest, settled)
    return explanation_of(found, levels)


def _onset(runs: Sequence[DetectionRun], metric: Metric, split: int) -> tuple[int, int]:
    """Return the first and the last run with which a drift may begin."""
    prices = factors(runs)
    values = [run.value(metric, prices) for run in runs]
    logs = [math.log(value) for value in values if value is not None and value > 0]
    if len(logs) < len(runs) or not 0 < split < len(runs):
        return split, split
    # A single outlier must not outweigh the change.
    low, high = sorted(median(side) for side in (logs[:split], logs[split:]))
    margin = OUTLIER_MARGIN * (high - low)
    found = change_point([min(max(value, low - margin), high + margin) for value in logs])
    if found is None:
        return split, split
    first, last = min(split, found[1]), max(found[0], min(split, found[2]))
    middle, is_rise = (low + high) / 2, median(logs[split:]) > median(logs[:split])
    for index in range(first, min(first + OUTLIER_RUNS, len(runs) - 1)):
        # A run at the level before follows what looked like the beginning: that was an outlier, unless
        # the run is free of a neighbour that comes and goes.
        is_before = (logs[index] < middle) is is_rise
        flags = {run.device.get("contended") for run in runs[index : index + 2]}
        if is_before and len(flags) == 1:
            last = max(last, index + 1)
    return first, last


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
        if set(known) <= {0.0, 1.0}:
            # Of a neighbour that comes and goes the first run counts, not where most runs have it.
            later = float(fmean(known[found[0] :]) > fmean(known[: found[0]]))
            if later in known[onset[0] : onset[1] + LATER_RUNS + 1]:
                continue
        if found[1] > onset[1] + LATER_RUNS:
            return "late"
        is_early |= found[2] < onset[0] - LATER_RUNS
    if not cause.signals:
        return None
    return "early" if is_early else "coincident"
