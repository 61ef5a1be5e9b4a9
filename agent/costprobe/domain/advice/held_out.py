"""The test of a supply on the held-out weeks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from costprobe.core.weekly_hours import HOURS_A_WEEK
from costprobe.domain.advice.scaling import ScaledHour
from costprobe.domain.advice.supply import Choice, monthly_cost
from costprobe.domain.advice.workload import HourLoad, WorkloadHistory, hour_of_week

# Share of the held-out hours in which a supply may lack capacity for a minute.
SHORT_SHARE_MAX = 0.01


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A supply on the held-out weeks, from which it was not decided.

    Attributes:
        hours: Number of these hours.
        hours_short: Hours in which the load of a minute exceeded the capacity.
        refused_per_week: Mean requests in hours in which everything was off.
        refused_per_week_max: Those of the worst week.
        scaled: Sums over these hours of devices that are started and released; None if they are not.
    """

    hours: int
    hours_short: int
    refused_per_week: float
    refused_per_week_max: float
    scaled: ScaledHour | None = None


def tested(held_out: Mapping[int, HourLoad], workload: WorkloadHistory, choice: Choice) -> HeldOut:
    """Replay held-out hours on a supply."""
    hours_short = 0
    refused: dict[int, float] = {}
    first = min(held_out)
    is_constant = min(choice.counts) == choice.count
    for number, hour in held_out.items():
        up = choice.count if is_constant else choice.counts[hour_of_week(number, workload.zone)]
        is_as_now = choice.placement.held and up >= choice.placement.held
        if (
            not is_as_now
            and hour.peak > up * choice.placement.speed
            and not (up == 0 and hour.is_idle)
        ):
            hours_short += 1
        week = (number - first) // HOURS_A_WEEK
        refused[week] = refused.get(week, 0.0) + (hour.requests if up == 0 else 0.0)
    return HeldOut(
        hours=len(held_out),
        hours_short=hours_short,
        refused_per_week=statistics.fmean(refused.values()),
        refused_per_week_max=max(refused.values()),
        scaled=None if choice.scaling is None else choice.scaling.over(held_out),
    )


def failure(
    held_out: Mapping[int, HourLoad], workload: WorkloadHistory, now: Choice, choice: Choice
) -> str:
    """Return why a supply failed on held-out hours; empty if it did not, or there are none.

    Args:
        held_out: The hours.
        workload: The workload, with these hours.
        now: What it runs on.
        choice: The supply.
    """
    if not held_out:
        return ""
    result = tested(held_out, workload, choice)
    where = f"of the last {result.hours} hours, from which it was not decided"
    if result.hours_short > SHORT_SHARE_MAX * result.hours:
        return f"too small in {result.hours_short} {where}"
    if choice.scaling is not None:
        last = replace(workload, hours=held_out)
        before, after = monthly_cost(last, now).total, monthly_cost(last, choice).total
        if before is not None and after is not None and after >= before:
            return f"saved nothing in the {where.removeprefix('of the ')}"
    return ""
