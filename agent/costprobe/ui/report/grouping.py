"""Identical devices as one entry of a report: their trends, figures and savings."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from costprobe.core.money import PER_THOUSAND, money, price_scale, unit_price
from costprobe.core.periods import DAY_NS
from costprobe.core.records import natural
from costprobe.core.units import percent as share
from costprobe.savings.load import LoadCost, LoadPosition
from costprobe.savings.savings import Answer, Supply
from costprobe.ui.report.model import (
    Bucket,
    Price,
    Report,
    Trend,
)
from costprobe.ui.savings import held_out_words, load_words, position_lines
from costprobe.ui.text import devices_text, per_million_tokens, short
from costprobe.unit_costs.compare import Candidate, Summary


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """A model on identical devices, or a service, over time.

    Attributes:
        name: The model or service.
        members: The trend on each device, by device.
        buckets: The median of the members in each step; currency for 1,000 inferences.
        before: The median of the members in the preceding period; None unless all are known.
        now: The median of the members in the period.
    """

    name: str
    members: Sequence[Trend]
    buckets: Sequence[Bucket]
    before: float | None
    now: float

    @property
    def moved_pct(self) -> float | None:
        """Change from the median of the first day's steps to that of the last day's, in percent."""
        first_ns, last_ns = self.buckets[0].time_ns, self.buckets[-1].time_ns
        first = statistics.median(b.value for b in self.buckets if b.time_ns < first_ns + DAY_NS)
        last = statistics.median(b.value for b in self.buckets if b.time_ns > last_ns - DAY_NS)
        return (last / first - 1) * 100 if first and last_ns > first_ns else None

    @property
    def scale(self) -> int:
        """Number of inferences that the cost is written for, the same in every period."""
        return price_scale(self.buckets[0].value / PER_THOUSAND)

    def price(self, per_thousand: float) -> str:
        """Format a cost of 1,000 inferences at the scale: "$0.455 per million inferences"."""
        currency = self.members[0].currency
        return unit_price(per_thousand / PER_THOUSAND, currency, self.scale, "inference")

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices; empty for a service."""
        return tuple(trend.device for trend in self.members if trend.basis == "probe")


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """A model on identical devices, or a service: medians over them; unknown values are None.

    Attributes:
        name: The model with batch and execution mode, or the service.
        devices: Names of the devices.
        cost: Currency per inference.
        latency_p50_ms: Median latency.
        latency_p99_ms: 99th percentile of it.
        energy_j: Joules per inference.
        carbon_g: Grams of carbon dioxide equivalent per inference.
        samples: Number of samples on all of them.
    """

    name: str
    devices: tuple[str, ...]
    cost: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    energy_j: float | None
    carbon_g: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class ListedSaving:
    """A saving, or the same one of several workloads, as text.

    Attributes:
        title: Workloads and what to do.
        saving: Money a month.
        facts: Load, result on held-out weeks and assumptions; for several workloads what all share.
    """

    title: str
    saving: str
    facts: Sequence[str]


def saving_groups(answers: Sequence[Answer]) -> list[ListedSaving]:
    """Return the best supply of each workload, the largest saving first.

    What the load of a service costs against its load curve is among the facts; without a cheaper
    supply it is an entry of its own.
    """
    groups: dict[tuple[str, ...], list[tuple[Answer, Supply]]] = defaultdict(list)
    alone = []
    for answer in answers:
        if answer.best is not None:
            saving = money(answer.best.saving_per_month, answer.currency)
            own = "" if answer.load is None else answer.workload.name
            groups[_generic(answer, answer.best), saving, own].append((answer, answer.best))
        elif answer.load is not None and answer.load.cost is not None:
            alone.append(_of_load(answer, answer.load, answer.load.cost))
    return [*(_listed(saving, found) for (_, saving, _), found in groups.items()), *alone]


def _of_load(answer: Answer, position: LoadPosition, cost: LoadCost) -> ListedSaving:
    """Return what the load of a service costs against its load curve."""
    month = f"{money(cost.cost_per_month, answer.currency)} a month"
    facts = [short(line) for line in position_lines(position, answer.currency)]
    if cost.merge is None:
        unused = money(cost.unused_per_month, answer.currency)
        title = f"{answer.workload.name}: use its idle capacity"
        return ListedSaving(short(title), f"up to {unused} of {month}", facts)
    replicas = f"{position.evidence.replicas} replicas into {cost.merge.replicas}"
    saving = money(cost.merge.saving_per_month, answer.currency)
    title = f"{answer.workload.name}: merge {replicas}"
    return ListedSaving(short(title), f"{saving} of {month}", facts)


def _generic(answer: Answer, best: Supply) -> str:
    """Return the action without the names of the workload's own devices."""
    action = best.action
    for name in answer.workload.devices:
        action = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", "*", action)
    return action


def _listed(saving: str, found: Sequence[tuple[Answer, Supply]]) -> ListedSaving:
    answer, best = found[0]
    now = "" if answer.now is None else f" of {money(answer.now.cost_per_month, answer.currency)}"
    if len(found) == 1:
        facts = [f"load: {load_words(answer.workload)}"]
        facts += [] if best.held_out is None else [held_out_words(best.held_out)]
        facts += [f"if {line}" for line in best.assumptions]
        if answer.load is not None:
            facts += position_lines(answer.load, answer.currency)
        title = f"{answer.workload.name}: {best.action}"
        return ListedSaving(short(title), f"{saving}{now} a month", [short(line) for line in facts])
    shared = [line for line in best.assumptions if all(line in b.assumptions for _, b in found)]
    loads = [a.workload.mean / len(a.workload.devices) for a, _ in found]
    devices = {name for each, _ in found for name in each.workload.devices}
    return ListedSaving(
        f"{short(_together(found))}: {_generic(answer, best).replace('*', 'the same device')}",
        f"{saving}{now} a month for each of {devices_text(devices)}",
        [
            f"load: {share(min(loads))} to {share(max(loads))} busy",
            *(f"if {line}" for line in shared),
        ],
    )


def _together(found: Sequence[tuple[Answer, Supply]]) -> str:
    """Return the names of workloads, each model with its devices."""
    devices: dict[str, list[str]] = defaultdict(list)
    for answer, _ in found:
        model, _, _ = answer.workload.name.partition(" on ")
        devices[model] += answer.workload.devices
    return ", ".join(f"{model} on {devices_text(names)}" for model, names in devices.items())


def trend_groups(trends: Sequence[Trend], models: Mapping[str, str]) -> list[TrendGroup]:
    """Return the trends of each model on identical devices as one; a service is one by itself.

    Args:
        trends: The trends.
        models: Product name of each device.
    """
    groups: dict[tuple[str, ...], list[Trend]] = defaultdict(list)
    for trend in trends:
        is_probe = trend.basis == "probe"
        name = trend.subject if is_probe else trend.name
        hardware = models.get(trend.device) or trend.device if is_probe else ""
        groups[trend.currency, trend.basis, name, hardware].append(trend)
    ordered = sorted(groups, key=lambda key: natural(*key))
    return [_trend_group(key[2], groups[key]) for key in ordered]


def _trend_group(name: str, members: Sequence[Trend]) -> TrendGroup:
    members = sorted(members, key=lambda trend: natural(trend.device))
    steps: dict[int, list[float]] = defaultdict(list)
    for trend in members:
        for bucket in trend.buckets:
            steps[bucket.time_ns].append(bucket.value)
    earlier = [trend.before for trend in members if trend.before is not None]
    return TrendGroup(
        name=name,
        members=members,
        buckets=[Bucket(at, statistics.median(values)) for at, values in sorted(steps.items())],
        before=statistics.median(earlier) if len(earlier) == len(members) else None,
        now=statistics.median(trend.now for trend in members),
    )


def model_groups(report: Report) -> list[tuple[str, str, list[ModelFigures]]]:
    """Return the figures of each model on identical devices, by currency and basis."""
    return [
        (
            group.currency,
            group.basis,
            _model_figures([placed.candidate for placed in group.placed], report.hardware),
        )
        for group in report.models
    ]


def _model_figures(
    candidates: Iterable[Candidate], hardware: Mapping[str, str]
) -> list[ModelFigures]:
    groups: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for one in candidates:
        is_probe = one.basis == "probe"
        name = one.name.replace(f" on {one.device}", "", 1) if is_probe else one.name
        groups[name, hardware.get(one.device) or one.device].append(one)
    return [
        ModelFigures(
            name=name,
            devices=tuple(part for one in members for part in one.device.split("+") if part),
            cost=_median(one.cost_per_inference for one in members),
            latency_p50_ms=_median(one.latency_p50_ms for one in members),
            latency_p99_ms=_median(one.latency_p99_ms for one in members),
            energy_j=_median(one.energy_per_inference_j for one in members),
            carbon_g=_median(one.carbon_per_inference_g for one in members),
            samples=sum(one.samples for one in members),
        )
        for (name, _), members in groups.items()
    ]


def token_words(report: Report) -> list[tuple[str, str]]:
    """Return each model whose tokens have a cost, with cost and energy of a million as text."""
    candidates = [placed.candidate for group in report.models for placed in group.placed]
    return [(one.name, text) for one in candidates if (text := per_million_tokens(one))]


def price_groups(prices: Iterable[Price]) -> list[tuple[Price, tuple[str, ...]]]:
    """Return each price with the devices that have it."""
    groups: dict[Price, list[str]] = defaultdict(list)
    for price in prices:
        groups[replace(price, device="")].append(price.device)
    return [(price, tuple(names)) for price, names in groups.items()]


def _median(figures: Iterable[Summary | None]) -> float | None:
    values = [figure.value for figure in figures if figure is not None]
    return statistics.median(values) if values else None
