"""Cost per inference over time, one line per model and device."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from costprobe.core.columns import RowColumns, numbers_of
from costprobe.core.money import PER_THOUSAND
from costprobe.core.periods import DAY_NS, HOUR_NS
from costprobe.core.records import NS_PER_S, natural
from costprobe.ui.report.model import Bucket, Trend
from costprobe.ui.report.spend import Period
from costprobe.unit_costs.change import ratio_of_columns

MAX_MODELS: Final = 24
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
# The number of its rows, and the trend.
CountedTrend = tuple[int, Trend]


def step_ns(period: Period) -> int:
    """Return the step length in ns that divides a period into at most about 120 steps."""
    length_ns = period.until_ns - period.since_ns
    fitting = (step for step in _STEPS_NS if length_ns <= step * MAX_BUCKETS)
    return next(fitting, -(-length_ns // MAX_BUCKETS))


def trends(found: Sequence[CountedTrend]) -> list[Trend]:
    """Return the trends of all models on all devices; of too many models, of those with most samples."""
    samples = Counter[tuple[str, ...]]()
    for count, trend in found:
        samples[_model_of(trend)] += count
    kept = sorted(samples, key=lambda model: (-samples[model], natural(*model)))[:MAX_MODELS]
    return sorted(
        (trend for _, trend in found if _model_of(trend) in kept),
        key=lambda trend: (trend.currency, natural(trend.name)),
    )


def _model_of(trend: Trend) -> tuple[str, ...]:
    # A probe on each device has a trend, a service one for each of its models.
    return trend.currency, trend.basis, trend.subject if trend.basis == "probe" else trend.name


def counted_trends(costs: Iterable[RowColumns], period: Period) -> Iterator[CountedTrend]:
    """Yield the trends of a probe on a device, or of a service, each with its number of rows.

    A probe's step is the median of its samples; a service's step is the cost of its windows
    divided by their inferences.

    Args:
        costs: Its rows of `cost`, over the period and the one before.
        period: The period.
    """
    groups: dict[Key, list[RowColumns]] = defaultdict(list)
    for part in costs:
        groups[_key(part.tags)].append(part)
    has_models = {key[4] for key, parts in groups.items() if key[3] and any(map(len, parts))}
    for key, parts in groups.items():
        if key[4] in has_models and not key[3]:
            continue  # the row of several models together
        trend = _trend(key, parts, period)
        if trend is not None:
            yield sum(map(len, parts)), trend


def _key(tags: Mapping[str, str]) -> Key:
    return (
        tags.get("basis", "probe"),
        tags.get("device", ""),
        tags.get("service") or tags.get("probe", ""),
        tags.get("served_model", ""),
        tags.get("currency", "?"),
    )


def _trend(key: Key, parts: Sequence[RowColumns], period: Period) -> Trend | None:
    basis, device, subject, model, currency = key
    cost_of = _ratio_of_sums if basis == "serving" else _median
    buckets, now = _buckets(parts, period, cost_of), cost_of(_between(parts, *period))
    if now is None or not buckets:
        return None
    before = cost_of(_between(parts, *period.before))
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


def _between(parts: Iterable[RowColumns], since_ns: int, until_ns: int) -> list[RowColumns]:
    return [part.between(since_ns, until_ns) for part in parts]


def _buckets(
    parts: Sequence[RowColumns],
    period: Period,
    cost_of: Callable[[Sequence[RowColumns]], float | None],
) -> list[Bucket]:
    step, (since_ns, until_ns) = step_ns(period), period
    starts_ns = range(since_ns // step * step, until_ns, step)
    spans = [(max(since_ns, at_ns), min(until_ns, at_ns + step)) for at_ns in starts_ns]
    costs = [cost_of(_between(parts, *span)) for span in spans]
    return [
        Bucket(start_ns, cost * PER_THOUSAND)
        for start_ns, cost in zip(starts_ns, costs, strict=True)
        if cost is not None
    ]


def _median(parts: Sequence[RowColumns]) -> float | None:
    """Return the median cost, of contended runs only where there are no others."""
    alone = [part.where([one is not True for one in part.column("contended")]) for part in parts]
    costs = numbers_of(alone if any(map(len, alone)) else parts, "cost_per_inference")
    return statistics.median(costs) if costs else None


def _ratio_of_sums(parts: Sequence[RowColumns]) -> float | None:
    """Divide total cost by total inferences: the cost of idle windows is included."""
    return ratio_of_columns(parts, "cost_per_inference")
