"""Comparison of models by rows of `probe` and `cost`: Pareto front, the cheapest within limits.

Two models are also compared by runs that were made for it: the change of the cost with its interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from costprobe.core.columns import RowColumns, numbers_of
from costprobe.core.records import TOGETHER, FieldValue, devices_text, natural
from costprobe.core.schema import part_words
from costprobe.core.slo import SloShare
from costprobe.core.statistics import (
    CONFIDENCE,
    ConfidenceInterval,
    quantile,
    student_quantile,
)
from costprobe.core.units import counted
from costprobe.unit_costs.change import ratio_of_columns
from costprobe.unit_costs.now import deviating, slo_shares
from costprobe.unit_costs.price_files import service_groups

Basis = Literal["probe", "serving"]
# With fewer samples the quartiles are single samples, and the order of the models is random.
MIN_SAMPLES = 5
# Half the width of a notch, in interquartile ranges over the root of the number of samples: two
# medians whose notches do not overlap differ at about 95 % (McGill, Tukey and Larsen 1978).
NOTCH = 1.57
# A sample is throttled if the device was throttled for more than this share of its window.
THROTTLED_PCT = 1.0
_WAYS = ("cold", "compile", "cuda_graph", "weights")
# What of a candidate is a median over its devices, and what a sum.
_FIGURES = (
    "cost_per_inference",
    "latency_p50_ms",
    "latency_p99_ms",
    "energy_per_inference_j",
    "carbon_per_inference_g",
    "cost_per_million_tokens_in",
    "cost_per_million_tokens_out",
    "energy_per_million_tokens_in_j",
    "energy_per_million_tokens_out_j",
)
_COUNTS = ("samples", "contended_samples", "throttled_samples", "outdated_samples")
# Tags that identify a candidate.
_TELLING = ("host", "device", "probe", "batch", "concurrency", *_WAYS)
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a value over samples.

    Attributes:
        value: Median; on the serving basis the ratio of sums, if there is one.
        iqr: Interquartile range.
        samples: Number of samples.
    """

    value: float
    iqr: float
    samples: int

    @property
    def notch(self) -> float:
        """Return half the width of the median's interval of about 95 %."""
        return NOTCH * self.iqr / math.sqrt(self.samples)


def value_of(summary: Summary | None) -> float | None:
    """Return the value of a summary; None without one."""
    return None if summary is None else summary.value


@dataclass(frozen=True, slots=True)
class Member:
    """One of several identical devices of a probe.

    Attributes:
        device: Its name.
        cost_per_inference: Median, in the currency per inference; None without a price.
        samples: Number of samples that count.
        throttled_samples: Samples excluded because it was throttled.
        is_outlier: Whether its cost deviates from that of the others.
    """

    device: str
    cost_per_inference: float | None
    samples: int
    throttled_samples: int
    is_outlier: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A probe on identical devices, or a service; unknown values are None.

    Attributes:
        name: Its name in the output.
        basis: Basis of its cost; costs of two bases are not comparable.
        device: Name of its device; those of several are joined by "+".
        currency: ISO 4217 code; empty without a price.
        cost_per_inference: Currency per inference.
        latency_p50_ms: Median latency of a batch, or of a request.
        latency_p99_ms: 99th percentile of it.
        energy_per_inference_j: Joules per inference; on the serving basis idle time included.
        carbon_per_inference_g: Grams of carbon dioxide equivalent per inference.
        quality: Its quality as configured by the operator; more is better.
        cost_per_million_tokens_in: Currency per million prompt tokens.
        cost_per_million_tokens_fresh: Currency per million prompt tokens that were computed.
        cost_per_million_tokens_cached: Currency per million that a cache answered.
        cost_per_million_tokens_out: Currency per million generated tokens.
        cached_share: Share of the prompt tokens that a cache answered.
        cost_cache_saved: Currency that it saved in all samples.
        energy_per_million_tokens_in_j: Joules per million prompt tokens.
        energy_per_million_tokens_out_j: Joules per million generated tokens.
        idle_share: Idle share of the cost.
        plans: Kinds of the price plans in force.
        samples: Number of samples that count.
        contended_samples: Samples excluded because another process used the device.
        throttled_samples: Samples excluded because the device was throttled.
        outdated_samples: Samples excluded because they are of older software.
        slo: The requests of its service within each bound of the service level.
        counts_chunks: Whether chunks of streams were counted as tokens, because the answers of the
            server had no token counts.
        members: Its devices, if there are several; the values above are medians over them.
    """

    name: str
    basis: Basis
    device: str
    currency: str
    cost_per_inference: Summary | None
    latency_p50_ms: Summary | None = None
    latency_p99_ms: Summary | None = None
    energy_per_inference_j: Summary | None = None
    carbon_per_inference_g: Summary | None = None
    quality: float | None = None
    cost_per_million_tokens_in: Summary | None = None
    cost_per_million_tokens_fresh: Summary | None = None
    cost_per_million_tokens_cached: Summary | None = None
    cost_per_million_tokens_out: Summary | None = None
    cached_share: float | None = None
    cost_cache_saved: float | None = None
    energy_per_million_tokens_in_j: Summary | None = None
    energy_per_million_tokens_out_j: Summary | None = None
    idle_share: float | None = None
    plans: tuple[str, ...] = ()
    samples: int = 0
    contended_samples: int = 0
    throttled_samples: int = 0
    outdated_samples: int = 0
    slo: tuple[SloShare, ...] = ()
    counts_chunks: bool = False
    members: tuple[Member, ...] = ()

    @property
    def excluded(self) -> str:
        """The samples that do not count, by reason: "7 contended, 1 throttled"; empty if all count."""
        slowed = [one.device for one in self.members if one.throttled_samples]
        on = f" on {devices_text(slowed)}" if 0 < len(slowed) < len(self.members) else ""
        counts = (
            (self.contended_samples, "contended"),
            (self.throttled_samples, f"throttled{on}"),
            (self.outdated_samples, "of older software"),
        )
        return ", ".join(f"{count} {reason}" for count, reason in counts if count)

    def token_price(self, kind: str) -> float | None:
        """Currency per million tokens "in", "fresh", "cached" or "out"; None if unknown."""
        price: Summary | None = getattr(self, f"cost_per_million_tokens_{kind}")
        return None if price is None else price.value


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that is not compared, with the reason."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate on or behind the Pareto front.

    Attributes:
        candidate: The candidate.
        dominated_by: Name of a candidate on the front that is no worse in any value and better in at
            least one; None on the front.
    """

    candidate: Candidate
    dominated_by: str | None


@dataclass(frozen=True, slots=True)
class CheapestCandidate:
    """The cheapest candidate within the limits.

    Attributes:
        cheapest: The candidate; None if none is within the limits.
        not_clearly: Names of others whose cost is not clearly higher.
        left_out: Those outside the limits, or with unknown values.
    """

    cheapest: Candidate | None
    not_clearly: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Comparable candidates, of one currency and one basis, the cheapest first."""

    currency: str
    basis: Basis
    placed: tuple[Placed, ...]
    answer: CheapestCandidate


def summarized(values: Sequence[float]) -> Summary | None:
    """Return median and interquartile range of samples; None for no samples."""
    if not values:
        return None
    ordered = sorted(values)
    iqr = quantile(ordered, 0.75) - quantile(ordered, 0.25)
    return Summary(statistics.median(ordered), iqr, len(ordered))


# Whether a change is above a limit: surely an increase and above it, surely not above it, or unknown.
Verdict = Literal["more_expensive", "within", "inconclusive"]


def change_of(
    base: Sequence[float], now: Sequence[float], *, is_paired: bool
) -> ConfidenceInterval:
    """Return the relative change of the geometric mean of runs, with its 95 % interval.

    A run is one value: what varies between runs, such as placement and clocks, is usually more than
    what varies within one. Runs that alternated are pairs: Student's t of their differences leaves out
    what changed slowly on the host. Otherwise it is Welch's t, of two spreads that may differ (Welch,
    "The generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34, 1947). It is computed of logarithms, so that it is a ratio.

    Args:
        base: A positive figure of each run, at least two.
        now: The same; as many, and in the order of the pairs, if they are pairs.
        is_paired: Whether the runs alternated.
    """
    logs, base_logs = [math.log(one) for one in now], [math.log(one) for one in base]
    change = statistics.fmean(logs) - statistics.fmean(base_logs)
    if is_paired:
        differences = [a - b for a, b in zip(logs, base_logs, strict=True)]
        variances = [(statistics.variance(differences) / len(differences), len(differences) - 1)]
    else:
        variances = [
            (statistics.variance(part) / len(part), len(part) - 1) for part in (base_logs, logs)
        ]
    variance = math.fsum(own for own, _ in variances)
    spread = math.fsum(own * own / degrees for own, degrees in variances)
    degrees = variance * variance / spread if spread else math.inf
    half = student_quantile((1 + CONFIDENCE) / 2, degrees) * math.sqrt(variance)
    return ConfidenceInterval(*(math.expm1(change + way * half) for way in (0, -1, 1)))


def verdict(change: ConfidenceInterval, limit: float) -> Verdict:
    """Return whether a change is above a limit.

    It is if the change is above the limit, and the interval above zero: at no change this happens in
    at most one of forty comparisons, and only where runs differ by more than the limit.

    Args:
        change: The relative change.
        limit: Largest acceptable increase, relative.
    """
    if change.value > limit and change.low > 0:
        return "more_expensive"
    return "within" if change.high <= limit else "inconclusive"


def runs_needed(change: ConfidenceInterval, limit: float, runs: int) -> int:
    """Return about how many runs decide an inconclusive change, if its estimate is right.

    Args:
        change: The relative change.
        limit: Largest acceptable increase, relative.
        runs: Runs that it is from.
    """
    half = (change.high - change.low) / 2
    room = change.value if change.value > limit else limit - change.value
    return math.ceil(runs * min((half / max(room, half * 1e-3)) ** 2, 1e6)) + 1


def compared(
    candidates: Sequence[Candidate],
    *,
    currency: str | None = None,
    p99_ms: float | None = None,
    quality: float | None = None,
) -> tuple[list[Group], list[LeftOut]]:
    """Group comparable candidates and find each group's Pareto front.

    Args:
        candidates: The candidates.
        currency: The only currency to compare; None for every currency separately.
        p99_ms: Upper limit of the 99th percentile of latency, in ms.
        quality: Lower limit of the quality.

    Returns:
        Groups of one currency and basis, and the candidates in none of them with the reason.
    """
    left_out = []
    groups: dict[tuple[str, Basis], list[Candidate]] = {}
    for candidate in candidates:
        reason = _unfit(candidate, currency)
        if reason:
            left_out.append(LeftOut(candidate, reason))
        else:
            groups.setdefault((candidate.currency, candidate.basis), []).append(candidate)
    rated = [
        Group(key[0], key[1], _with_front(group), cheapest(group, p99_ms, quality))
        for key, group in sorted(groups.items())
    ]
    return rated, left_out


def _unfit(candidate: Candidate, currency: str | None) -> str | None:
    """Return why a candidate is not comparable; None if it is."""
    if candidate.samples < MIN_SAMPLES:
        excluded = f"; excluded: {candidate.excluded}" if candidate.excluded else ""
        return f"too few samples: {candidate.samples} of {MIN_SAMPLES}{excluded}"
    if candidate.cost_per_inference is None:
        return "it has no price"
    if candidate.cost_per_inference.samples < MIN_SAMPLES:
        return f"too few priced samples: {candidate.cost_per_inference.samples} of {MIN_SAMPLES}"
    if currency is not None and candidate.currency != currency:
        return f"its currency is {candidate.currency}, not {currency}"
    return None


def losses(candidate: Candidate) -> tuple[float, ...]:
    """Return the values to minimize; an unknown value is infinite."""
    figures = (
        candidate.cost_per_inference,
        candidate.latency_p50_ms,
        candidate.latency_p99_ms,
        candidate.energy_per_inference_j,
        candidate.carbon_per_inference_g,
    )
    values = [math.inf if figure is None else figure.value for figure in figures]
    return (*values, math.inf if candidate.quality is None else -candidate.quality)


def dominates(point: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether one point is no worse than another in any value and lower in at least one."""
    pairs = list(zip(point, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def dominators(points: Sequence[Sequence[float]]) -> list[int | None]:
    """Return for each point the first of the Pareto front that dominates it; None on the front.

    Args:
        points: Tuples of equal length; lower values are better.
    """
    front = [
        index
        for index, point in enumerate(points)
        if not any(dominates(other, point) for other in points)
    ]
    # Domination is transitive and the points are finite: a dominated point is dominated by a point
    # of the front.
    return [
        next((other for other in front if dominates(points[other], point)), None)
        for point in points
    ]


def _with_front(group: Sequence[Candidate]) -> tuple[Placed, ...]:
    ordered = sorted(group, key=lambda candidate: (losses(candidate)[0], natural(candidate.name)))
    dominator_indices = dominators([losses(candidate) for candidate in ordered])
    return tuple(
        Placed(candidate, None if index is None else ordered[index].name)
        for candidate, index in zip(ordered, dominator_indices, strict=True)
    )


def cheapest(
    group: Sequence[Candidate], p99_ms: float | None = None, quality: float | None = None
) -> CheapestCandidate:
    """Return the cheapest candidate whose latency and quality are known to be within the limits.

    Args:
        group: Candidates of one currency and basis, whose cost is known.
        p99_ms: Upper limit of the 99th percentile of latency, in ms; None for no limit.
        quality: Lower limit of the quality; None for no limit.
    """
    acceptable, left_out = [], []
    for candidate in group:
        reason = _not_good_enough(candidate, p99_ms, quality)
        if reason:
            left_out.append(LeftOut(candidate, reason))
        else:
            acceptable.append(candidate)
    costs = sorted(
        (
            (candidate.cost_per_inference, candidate)
            for candidate in acceptable
            if candidate.cost_per_inference is not None
        ),
        key=lambda pair: (pair[0].value, pair[1].name),
    )
    if not costs:
        return CheapestCandidate(None, (), tuple(left_out))
    least, best = costs[0]
    not_clearly = tuple(
        candidate.name
        for cost, candidate in costs[1:]
        if cost.value - cost.notch <= least.value + least.notch
    )
    return CheapestCandidate(best, not_clearly, tuple(left_out))


def _not_good_enough(
    candidate: Candidate, p99_ms: float | None, quality: float | None
) -> str | None:
    reasons = []
    if p99_ms is not None:
        latency_ms = candidate.latency_p99_ms
        if latency_ms is None:
            reasons.append("its p99 latency is unknown")
        elif latency_ms.samples < MIN_SAMPLES:
            reasons.append(f"its p99 latency has only {counted(latency_ms.samples, 'sample')}")
        elif latency_ms.value > p99_ms:
            reasons.append(f"its p99 latency is {latency_ms.value:.4g} ms")
    if quality is not None:
        if candidate.quality is None:
            reasons.append("it has no quality; set quality in its table")
        elif candidate.quality < quality:
            reasons.append(f"its quality is {candidate.quality:g}")
    return " and ".join(reasons) or None


@dataclass(frozen=True, slots=True)
class Sifted:
    """The samples that count, and the number of others by reason.

    Attributes:
        parts: Rows of `probe` that count, of each series; empty if none does.
        contended: Another process used the device.
        throttled: The device was throttled.
        outdated: They are of older software than the newest.
    """

    parts: Sequence[RowColumns]
    contended: int
    throttled: int
    outdated: int


def sifted(parts: Iterable[RowColumns]) -> Sifted:
    """Separate disturbed samples, and those of other software than the newest row."""
    parts = [part for part in parts if part.times_ns]
    if not parts:
        return Sifted((), 0, 0, 0)
    newest = newest_part(parts).column("fingerprint")[-1]
    current = [part.where([one == newest for one in part.column("fingerprint")]) for part in parts]
    alone = [part.where([one is not True for one in part.column("contended")]) for part in current]
    counted = [
        part.where([not _is_throttled(one) for one in part.column("throttled_pct")])
        for part in alone
    ]
    of_all, of_current, of_alone, of_counted = map(_rows_in, (parts, current, alone, counted))
    return Sifted(
        [part for part in counted if part.times_ns],
        of_current - of_alone,
        of_alone - of_counted,
        of_all - of_current,
    )


def newest_part(parts: Iterable[RowColumns]) -> RowColumns:
    """Return the part with the newest row; none is empty."""
    return max(parts, key=lambda part: part.times_ns[-1])


def _is_throttled(pct: FieldValue | None) -> bool:
    return isinstance(pct, int | float) and not isinstance(pct, bool) and pct > THROTTLED_PCT


def _rows_in(parts: Iterable[RowColumns]) -> int:
    return sum(len(part) for part in parts)


def probe_candidates(
    probes: Iterable[RowColumns],
    costs: Iterable[RowColumns],
    qualities: Mapping[str, float | None],
) -> list[Candidate]:
    """Return a candidate for each probe, device, batch and execution mode, by name.

    Args:
        probes: Rows of `probe`.
        costs: Rows of `cost`; those of the serving basis are ignored.
        qualities: The configured quality of each probe.
    """
    priced: dict[Key, list[RowColumns]] = {}
    for part in costs:
        if part.tags.get("basis") == "probe":
            priced.setdefault(_place(part.tags), []).append(part)
    groups: dict[Key, list[RowColumns]] = {}
    for part in probes:
        if part.times_ns:
            groups.setdefault(tuple(part.tags.get(tag, "") for tag in _TELLING), []).append(part)
    candidates = []
    for parts in groups.values():
        counted, tags = sifted(parts), parts[0].tags
        times_ns = {time_ns for part in counted.parts for time_ns in part.times_ns}
        by_currency: dict[str, list[RowColumns]] = {}
        for part in priced.get(_place(tags), ()):
            paid = part.where([time_ns in times_ns for time_ns in part.times_ns])
            if paid.times_ns:
                by_currency.setdefault(paid.tags.get("currency", ""), []).append(paid)
        quality = qualities.get(tags.get("probe", ""))
        for currency, paid_parts in sorted(by_currency.items()) or [("", [])]:
            candidates.append(_probe_candidate(tags, counted, currency, paid_parts, quality))
    return sorted(candidates, key=lambda one: natural(one.name, one.currency))


def on_identical(candidates: Iterable[Candidate], hardware: Mapping[str, str]) -> list[Candidate]:
    """Return candidates of which those of one probe on identical devices are one.

    Args:
        candidates: The candidates; services stay as they are.
        hardware: Product name of each device.
    """
    groups: dict[Key, list[Candidate]] = {}
    for one in candidates:
        head, on, tail = one.name.partition(f" on {one.device}")
        product = hardware.get(one.device) if one.basis == "probe" and on else ""
        alone = "" if product else one.name
        groups.setdefault((alone, head, tail, product or "", one.currency), []).append(one)
    return [
        found[0] if len(found) == 1 else _merged(found, key[1], key[2])
        for key, found in groups.items()
    ]


def _merged(found: Sequence[Candidate], head: str, tail: str) -> Candidate:
    """Return one candidate for several devices: medians over them, and sums of samples."""

    def over(name: str) -> Summary | None:
        of_each = [one for part in found if (one := getattr(part, name)) is not None]
        if not of_each:
            return None
        value, iqr = (
            statistics.median(getattr(one, key) for one in of_each) for key in ("value", "iqr")
        )
        return Summary(value, iqr, sum(one.samples for one in of_each))

    found = sorted(found, key=lambda one: natural(one.device))
    names = [one.device for one in found]
    costs = [value_of(one.cost_per_inference) for one in found]
    known = [cost for cost in costs if cost is not None]
    outliers = iter(deviating(known) if known else ())
    figures: dict[str, Any] = {name: over(name) for name in _FIGURES}
    figures |= {name: sum(getattr(one, name) for one in found) for name in _COUNTS}
    return replace(
        found[0],
        name=f"{head} on {devices_text(names)}{tail}",
        device=TOGETHER.join(names),
        plans=tuple(sorted({plan for one in found for plan in one.plans})),
        counts_chunks=any(one.counts_chunks for one in found),
        members=tuple(
            Member(
                one.device,
                cost,
                one.samples,
                one.throttled_samples,
                cost is not None and next(outliers),
            )
            for one, cost in zip(found, costs, strict=True)
        ),
        **figures,
    )


def deviation_words(candidate: Candidate) -> str:
    """Return which devices of a candidate cost more or less than the others; empty if none does."""
    middle = value_of(candidate.cost_per_inference)
    return ", ".join(
        f"{one.device} costs {abs(one.cost_per_inference / middle - 1) * 100:.1f} %"
        f" {'more' if one.cost_per_inference > middle else 'less'} than the others"
        for one in candidate.members
        if one.is_outlier and one.cost_per_inference is not None and middle
    )


def _place(tags: Mapping[str, str]) -> Key:
    return tags.get("host", ""), tags.get("device", ""), tags.get("probe", "")


def _probe_candidate(
    tags: Mapping[str, str],
    counted: Sifted,
    currency: str,
    paid: Sequence[RowColumns],
    quality: float | None,
) -> Candidate:
    parts = counted.parts
    return Candidate(
        name=probe_name(tags),
        basis="probe",
        device=tags.get("device", ""),
        currency=currency,
        cost_per_inference=_median(paid, "cost_per_inference"),
        latency_p50_ms=_median(parts, "latency_p50_ms"),
        latency_p99_ms=_median(parts, "latency_p99_ms"),
        energy_per_inference_j=_energy(parts, "energy_per_inference_j"),
        carbon_per_inference_g=_median(paid, "carbon_per_inference_g"),
        quality=quality,
        cost_per_million_tokens_in=_median(paid, "cost_per_million_tokens_in"),
        cost_per_million_tokens_out=_median(paid, "cost_per_million_tokens_out"),
        energy_per_million_tokens_in_j=_energy(parts, "energy_per_million_tokens_in_j"),
        energy_per_million_tokens_out_j=_energy(parts, "energy_per_million_tokens_out_j"),
        plans=_plans(part.tags for part in paid),
        samples=_rows_in(parts),
        contended_samples=counted.contended,
        throttled_samples=counted.throttled,
        outdated_samples=counted.outdated,
        counts_chunks=any("chunks" in part.columns.get("token_source", ()) for part in parts),
    )


def _median(parts: Iterable[RowColumns], field: str) -> Summary | None:
    return summarized(numbers_of(parts, field))


def probe_name(tags: Mapping[str, str]) -> str:
    """Return the display name of a series of `probe`."""
    words = [f"{tags.get('probe', '?')} on {tags.get('device', '?')}"]
    if tags.get("batch"):
        words.append(f"batch {tags['batch']}")
    if tags.get("concurrency"):
        words.append(f"{tags['concurrency']} at a time")
    for way in _WAYS:
        value = tags.get(way)
        if value:
            words.append(way if value == "true" else f"{value} {way}")
    return ", ".join(words)


def _energy(parts: Sequence[RowColumns], field: str) -> Summary | None:
    """Return an energy; None if it is that of the whole board of a MIG device."""
    own = [
        part.where([scope != "parent" for scope in part.column("energy_scope")]) for part in parts
    ]
    # An energy that is carried over to later rows would count several times.
    measured = [
        part.where([one != "last_known" for one in part.column("energy_method")]) for part in own
    ]
    return _median(measured, field) or _median(own, field)


def service_candidates(
    costs: Iterable[RowColumns],
    qualities: Mapping[str, float | Mapping[str, float] | None],
    timed: Iterable[RowColumns] = (),
) -> list[Candidate]:
    """Return a candidate for each service, or for each of its models if it serves several.

    Args:
        costs: Rows of `cost`; those of the probe basis, and of parts of a group, are ignored.
        qualities: The configured quality of each service or model.
        timed: Rows of `slo`.
    """
    levels = slo_shares(timed)
    served = [
        part for part in costs if part.tags.get("basis") == "serving" and not part_words(part.tags)
    ]
    return [
        _service_candidate(
            parts, service, model, currency, qualities.get(service), levels.get(service, ())
        )
        for (service, model, currency), parts in service_groups(served).items()
    ]


def _service_candidate(
    parts: Sequence[RowColumns],
    service: str,
    model: str,
    currency: str,
    quality: float | Mapping[str, float] | None,
    slo: Iterable[SloShare],
) -> Candidate:
    if isinstance(quality, Mapping):
        only = next(iter(quality.values())) if len(quality) == 1 else None
        quality = quality.get(model) if model else only
    elif model:
        quality = None  # one quality for several models applies to none of them
    return Candidate(
        name=f"{service}/{model}" if model else service,
        basis="serving",
        device=newest_part(parts).tags.get("device", ""),
        currency=currency,
        cost_per_inference=_ratio(parts, "cost_per_inference"),
        energy_per_inference_j=_ratio(parts, "energy_per_inference_j"),
        carbon_per_inference_g=_ratio(parts, "carbon_per_inference_g"),
        quality=quality,
        cost_per_million_tokens_in=_ratio(parts, "cost_per_million_tokens_in"),
        cost_per_million_tokens_fresh=_ratio(parts, "cost_per_million_tokens_fresh"),
        cost_per_million_tokens_cached=_ratio(parts, "cost_per_million_tokens_cached"),
        cost_per_million_tokens_out=_ratio(parts, "cost_per_million_tokens_out"),
        cached_share=ratio_of_columns(parts, "cached_share"),
        cost_cache_saved=math.fsum(numbers_of(parts, "cost_cache_saved")) or None,
        energy_per_million_tokens_in_j=_ratio(parts, "energy_per_million_tokens_in_j"),
        energy_per_million_tokens_out_j=_ratio(parts, "energy_per_million_tokens_out_j"),
        idle_share=ratio_of_columns(parts, "idle_share"),
        plans=_plans(part.tags for part in parts),
        samples=_rows_in(parts),
        slo=tuple(slo),
    )


def _ratio(parts: Sequence[RowColumns], field: str) -> Summary | None:
    """Return a ratio over all windows, idle ones included, with the spread of the windows' own."""
    spread = _median(parts, field)
    ratio = ratio_of_columns(parts, field)
    return spread if spread is None or not ratio else Summary(ratio, spread.iqr, spread.samples)


def _plans(tags_of_rows: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({tags["plan"] for tags in tags_of_rows if tags.get("plan")}))
