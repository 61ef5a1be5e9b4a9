"""Identical devices as one entry of a report: their trends and their figures."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from costprobe.core.records import natural
from costprobe.ui.report.identical_devices import ModelFigures, TrendGroup
from costprobe.ui.report.model import (
    Bucket,
    Price,
    Report,
    Trend,
)
from costprobe.ui.token_figures import per_million_tokens
from costprobe.unit_costs.compare import Candidate, Summary


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
