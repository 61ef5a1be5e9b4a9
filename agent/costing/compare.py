"""Models side by side: the Pareto front of what they cost and give, and the cheapest good enough."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.costing.quantiles import quantile

Basis = Literal["probe", "serving"]
# Below this many samples the quartiles are single samples, and chance orders the models.
MIN_SAMPLES = 5
# Half the width of a notch, in interquartile ranges over the root of the number of samples: two
# medians whose notches do not overlap differ at about 95 % (McGill, Tukey and Larsen 1978).
NOTCH = 1.57


@dataclass(frozen=True, slots=True)
class Summary:
    """What a figure was over samples.

    Attributes:
        value: Median; on the serving basis the ratio of sums, where there is one.
        iqr: Interquartile range.
        samples: Number of samples.
    """

    value: float
    iqr: float
    samples: int

    @property
    def notch(self) -> float:
        """Half the width of the interval in which the value lies at about 95 %."""
        return NOTCH * self.iqr / math.sqrt(self.samples)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model as it was run: a probe on a device, or a service; what is not known is None.

    Attributes:
        name: What people call it.
        basis: How its cost was found: costs of two bases do not compare.
        device: Name of its device.
        currency: ISO 4217 code; empty where nothing priced it.
        cost: Currency per inference.
        latency_p50_ms: Median latency of what a client waits for: a batch, or a request.
        latency_p99_ms: 99th percentile of it.
        energy_j: Joules per inference.
        carbon_g: Grams of carbon dioxide equivalent per inference.
        quality: How good its answers are, as the operator says; more is better.
        cost_in: Currency per million tokens read.
        cost_out: Currency per million tokens written.
        idle_share: Part of the cost that paid for idle time.
        plans: Kinds of the price plans under which it was priced.
        samples: Number of samples that count.
        contended: Samples left out because another process used the device.
        throttled: Samples left out because the device was held back.
        outdated: Samples left out because they are of older software.
    """

    name: str
    basis: Basis
    device: str
    currency: str
    cost: Summary | None
    latency_p50_ms: Summary | None = None
    latency_p99_ms: Summary | None = None
    energy_j: Summary | None = None
    carbon_g: Summary | None = None
    quality: float | None = None
    cost_in: Summary | None = None
    cost_out: Summary | None = None
    idle_share: float | None = None
    plans: tuple[str, ...] = ()
    samples: int = 0
    contended: int = 0
    throttled: int = 0
    outdated: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that was not looked at, and why."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate among its like.

    Attributes:
        candidate: The candidate.
        dominated_by: Name of one on the front that is as good in everything and better in
            something; None on the front.
    """

    candidate: Candidate
    dominated_by: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The cheapest candidate that is good enough.

    Attributes:
        cheapest: The candidate; None where none is good enough.
        not_clearly: Names of others whose cost may as well be the lowest.
        left_out: Those that are not good enough, or not known to be.
    """

    cheapest: Candidate | None
    not_clearly: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates whose costs compare: of one currency and one basis, the cheapest first."""

    currency: str
    basis: Basis
    placed: tuple[Placed, ...]
    answer: Answer


def summarized(values: Sequence[float]) -> Summary | None:
    """Median and interquartile range of samples; None where there are none."""
    if not values:
        return None
    ordered = sorted(values)
    iqr = quantile(ordered, 0.75) - quantile(ordered, 0.25)
    return Summary(statistics.median(ordered), iqr, len(ordered))


def compared(
    candidates: Sequence[Candidate],
    *,
    currency: str | None = None,
    p99_ms: float | None = None,
    quality: float | None = None,
) -> tuple[list[Group], list[LeftOut]]:
    """Places candidates among those whose costs compare with theirs.

    Args:
        candidates: Models as they were run.
        currency: Only what costs in this one; each is looked at by itself where it is None.
        p99_ms: What the 99th percentile of latency may be at most, in ms.
        quality: What the quality must be at least.

    Returns:
        Groups of one currency and basis, and what is in none of them with the reason.
    """
    left_out = []
    groups: dict[tuple[str, Basis], list[Candidate]] = {}
    for candidate in candidates:
        reason = _unfit(candidate, currency)
        if reason:
            left_out.append(LeftOut(candidate, reason))
        else:
            groups.setdefault((candidate.currency, candidate.basis), []).append(candidate)
    found = [
        Group(of[0], of[1], _placed(group), cheapest(group, p99_ms, quality))
        for of, group in sorted(groups.items())
    ]
    return found, left_out


def _unfit(candidate: Candidate, currency: str | None) -> str | None:
    """Why a candidate's cost does not compare with any; None where it does."""
    if candidate.samples < MIN_SAMPLES:
        return f"too few samples: {candidate.samples}, and {MIN_SAMPLES} are needed"
    if candidate.cost is None:
        return "nothing priced it"
    if candidate.cost.samples < MIN_SAMPLES:
        return f"too few priced samples: {candidate.cost.samples} of {MIN_SAMPLES}"
    if currency is not None and candidate.currency != currency:
        return f"it costs in {candidate.currency}, not in {currency}"
    return None


def losses(candidate: Candidate) -> tuple[float, ...]:
    """What is the better the lower it is; a figure that is not known is no advantage."""
    figures = (
        candidate.cost,
        candidate.latency_p50_ms,
        candidate.latency_p99_ms,
        candidate.energy_j,
        candidate.carbon_g,
    )
    known = [math.inf if figure is None else figure.value for figure in figures]
    return (*known, math.inf if candidate.quality is None else -candidate.quality)


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether one is nowhere worse than the other and somewhere better; less is better."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def dominators(points: Sequence[Sequence[float]]) -> list[int | None]:
    """For each point the first of the Pareto front that dominates it; None for the front itself.

    Args:
        points: As many figures each, of which less is better; infinite ones are the worst.
    """
    front = [
        index
        for index, point in enumerate(points)
        if not any(dominates(other, point) for other in points)
    ]
    # Domination is transitive, and what is finite has an end: a point that is dominated is
    # dominated by one of the front.
    return [
        next((other for other in front if dominates(points[other], point)), None)
        for point in points
    ]


def _placed(group: Sequence[Candidate]) -> tuple[Placed, ...]:
    ordered = sorted(group, key=lambda one: (losses(one)[0], one.name))
    by = dominators([losses(one) for one in ordered])
    return tuple(
        Placed(one, None if index is None else ordered[index].name)
        for one, index in zip(ordered, by, strict=True)
    )


def cheapest(
    group: Sequence[Candidate], p99_ms: float | None = None, quality: float | None = None
) -> Answer:
    """The cheapest candidate whose latency and quality are known to be good enough.

    Args:
        group: Candidates of one currency and basis, whose cost is known.
        p99_ms: What the 99th percentile of latency may be at most, in ms; None for anything.
        quality: What the quality must be at least; None for anything.
    """
    good, left_out = [], []
    for one in group:
        reason = _not_good_enough(one, p99_ms, quality)
        if reason:
            left_out.append(LeftOut(one, reason))
        else:
            good.append(one)
    costs = sorted(
        ((one.cost, one) for one in good if one.cost is not None),
        key=lambda pair: (pair[0].value, pair[1].name),
    )
    if not costs:
        return Answer(None, (), tuple(left_out))
    least, best = costs[0]
    not_clearly = tuple(
        one.name for cost, one in costs[1:] if cost.value - cost.notch <= least.value + least.notch
    )
    return Answer(best, not_clearly, tuple(left_out))


def _not_good_enough(one: Candidate, p99_ms: float | None, quality: float | None) -> str | None:
    reasons = []
    if p99_ms is not None:
        found = one.latency_p99_ms
        if found is None:
            reasons.append("its p99 latency is not known")
        elif found.samples < MIN_SAMPLES:
            reasons.append(f"its p99 latency is known of {found.samples} samples only")
        elif found.value > p99_ms:
            reasons.append(f"its p99 latency is {found.value:.4g} ms")
    if quality is not None:
        if one.quality is None:
            reasons.append("it has no quality; set quality in its table")
        elif one.quality < quality:
            reasons.append(f"its quality is {one.quality:g}")
    return " and ".join(reasons) or None
