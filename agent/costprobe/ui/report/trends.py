"""Cost per inference over time, one line per model and device."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from costprobe.core.money_text import PER_THOUSAND
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.row_values import keyed, numbers
from costprobe.domain.costing.serving.serving_change import ratio_of_sums
from costprobe.ui.report.model import Bucket, Trend
from costprobe.ui.report.spend import DAY_NS, HOUR_NS, Period

MAX_TRENDS: Final = 24
# Of 30 days six hours are a step, so that a change of the last hours is not lost in a day's median.
MAX_BUCKETS: Final = 124
# Common calendar units.
_STEPS_NS: Final = (
    60 * NS_PER_S,
    600 * NS_PER_S,
    HOUR_NS,
    6 * HOUR_NS,
    DAY_NS,
    3 * DAY_NS,
    7 * DAY_NS,
    28 * DAY_NS,
)

Key = tuple[str, str, str, str, str]


def step_ns(period: Period) -> int:
    """Return the step length in ns that divides a period into at most about 120 steps."""
    length_ns = period.until_ns - period.since_ns
    fitting = (step for step in _STEPS_NS if length_ns <= step * MAX_BUCKETS)
    return next(fitting, -(-length_ns // MAX_BUCKETS))


def trends(costs: Iterable[Iterable[Point]], period: Period) -> list[Trend]:
    """Return the trends of all models; if there are too many, those with most samples.

    A probe's step is the median of its samples; a service's step is the cost of its windows
    divided by their inferences.

    Args:
        costs: Rows of `cost`, over the period and the one before: those of each probe on a device,
            and of each service.
        period: The period.
    """
    found = [pair for rows in costs for pair in _counted_trends(rows, period)]
    found.sort(key=lambda pair: (-pair[0], pair[1].name))
    return sorted(
        (trend for _, trend in found[:MAX_TRENDS]), key=lambda trend: (trend.currency, trend.name)
    )


def _counted_trends(costs: Iterable[Point], period: Period) -> Iterator[tuple[int, Trend]]:
    """Yield the trends of a probe or service, each with its number of rows."""
    groups: dict[Key, list[Point]] = defaultdict(list)
    for key, row in keyed(costs, _key):
        groups[key].append(row)
    has_models = {key[4] for key in groups if key[3]}
    for key, rows in groups.items():
        if key[4] in has_models and not key[3]:
            continue  # the row of several models together
        trend = _trend(key, rows, period)
        if trend is not None:
            yield len(rows), trend


def _key(tags: Mapping[str, str]) -> Key:
    return (
        tags.get("basis", "probe"),
        tags.get("device", ""),
        tags.get("service") or tags.get("probe", ""),
        tags.get("served_model", ""),
        tags.get("currency", "?"),
    )


def _trend(key: Key, rows: Sequence[Point], period: Period) -> Trend | None:
    basis, device, subject, model, currency = key
    cost_of = _ratio_of_sums if basis == "serving" else _median
    step = step_ns(period)
    steps: dict[int, list[Point]] = defaultdict(list)
    for row in rows:
        if period.since_ns <= row.time_ns < period.until_ns:
            steps[row.time_ns // step].append(row)
    buckets = _buckets(steps, step, cost_of)
    now = cost_of([row for step_rows in steps.values() for row in step_rows])
    if now is None or not buckets:
        return None
    before = cost_of([row for row in rows if row.time_ns < period.since_ns])
    words = f"{subject}/{model}" if model else subject
    return Trend(
        name=words if basis == "serving" else f"{words} on {device}",
        basis=basis,
        device=device,
        subject=subject,
        currency=currency,
        buckets=buckets,
        before=None if before is None else before * PER_THOUSAND,
        now=now * PER_THOUSAND,
    )


def _buckets(
    steps: dict[int, list[Point]], step: int, cost_of: Callable[[Sequence[Point]], float | None]
) -> list[Bucket]:
    costs = ((index, cost_of(rows)) for index, rows in sorted(steps.items()))
    return [Bucket(index * step, cost * PER_THOUSAND) for index, cost in costs if cost is not None]


def _median(rows: Sequence[Point]) -> float | None:
    """Return the median cost, of contended runs only where there are no others."""
    undisturbed = [row for row in rows if row.fields.get("contended") is not True]
    costs = numbers(undisturbed or rows, "cost_per_inference")
    return statistics.median(costs) if costs else None


def _ratio_of_sums(rows: Sequence[Point]) -> float | None:
    """Divide total cost by total inferences: the cost of idle windows is included."""
    return ratio_of_sums(rows, "cost_per_inference")
