"""`costprobe compare`: models side by side, and the cheapest one within limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.core.money import common_scale, money, per_words, price_text
from costprobe.core.outside import one_line
from costprobe.core.records import END_OF_TIME_NS
from costprobe.core.schema import ASSUMED, PAID_FIELDS, RUN_FIELDS, SERVICE_FIELDS, SLO_FIELDS
from costprobe.core.slo import slo_words
from costprobe.core.units import percent
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.savings.hosted_apis import HostingChoice, hosting_choices
from costprobe.ui import hosted_apis
from costprobe.ui.amounts import si_column
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import STORED_DEVICES, STORED_MODELS, check_names
from costprobe.ui.cli.support.option_types import (
    FLEET_OPTION,
    LABEL,
    TIMESPAN_MS,
    FiniteRange,
    since_option,
)
from costprobe.ui.cli.support.output import echo_coloured, echo_json, echo_lines, paint
from costprobe.ui.cli.support.place import Settings, nothing_since, reader_of
from costprobe.ui.cli.views.plots import LETTERS, blank_plot, drawn
from costprobe.ui.text import BASES, figure, per_million_tokens
from costprobe.unit_costs.compare import (
    Candidate,
    Group,
    LeftOut,
    compared,
    deviation_words,
    on_identical,
    probe_candidates,
    service_candidates,
    value_of,
)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe compare  # all models of the last 7 days",
        "costprobe compare --p99 50ms --quality 0.8  # the cheapest within these limits",
    ),
)
@since_option("7d")
@click.option(
    "--device", shell_complete=STORED_DEVICES, help="Only probes and services on this device."
)
@click.option(
    "--only",
    multiple=True,
    shell_complete=STORED_MODELS,
    help="Only this probe or service; may be repeated.",
)
@LABEL
@click.option(
    "--p99",
    "p99_ms",
    type=TIMESPAN_MS,
    help='Highest acceptable p99 latency, such as "50ms".',
)
@click.option(
    "--quality", type=FiniteRange(), help="Lowest acceptable quality, as in the configuration."
)
@click.option("--currency", help="Only costs in this currency, such as EUR.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option(
    "--plot/--no-plot",
    default=None,
    help="Plot cost against latency; the default on a terminal.",
)
@FLEET_OPTION
@click.pass_obj
def command(  # noqa: PLR0913 - an option each
    config: str | None,
    *,
    since_ns: int,
    device: str | None,
    only: Sequence[str],
    labels: Sequence[tuple[str, str]],
    p99_ms: float | None,
    quality: float | None,
    currency: str | None,
    as_json: bool,
    plot: bool | None,
) -> None:
    """Compare probes and services, and find the cheapest within limits.

    Figures are medians of stored samples, without those that other processes or throttling disturbed.
    Costs in different currencies, and probe and serving costs, are never compared with each other.
    """
    settings = Settings(config)
    tags = {**({"device": device} if device else {}), **dict(labels)}
    with reader_of(settings) as reader:
        check_names(reader, settings, {**tags, "currency": currency})
        for name in only:
            check_names(reader, settings, {"model": name})
        candidates, choices = _candidates(reader, settings.config, since_ns, tags, only)
    choices = [choice for choice in choices if currency in (None, choice.currency)]
    if not candidates:
        raise nothing_since("sample", since_ns)
    groups, left_out = compared(candidates, currency=currency, p99_ms=p99_ms, quality=quality)
    if as_json:
        echo_json(_document(groups, left_out, choices))
        return
    limits = _limits_text(p99_ms, quality)
    draws = sys.stdout.isatty() if plot is None else plot
    for number, group in enumerate(groups):
        echo_coloured([*([""] if number else []), *_group_lines(group, limits, plot=draws)])
    if left_out:
        lines = [
            f"{candidate_out.candidate.name}: {candidate_out.reason}" for candidate_out in left_out
        ]
        echo_lines(["", "excluded", *(f"  {line}" for line in lines)])
    if choices:
        echo_lines(["", *api_lines(choices)])


def _candidates(
    reader: StoreReader,
    config: Config,
    since_ns: int,
    tags: Mapping[str, str],
    only: Sequence[str],
) -> tuple[list[Candidate], list[HostingChoice]]:
    # Aggregated rows are excluded, because they are not samples.
    runs, costs = (
        [
            part
            for part in reader.columns(measurement, since_ns, END_OF_TIME_NS, tags, fields=fields)
            if not part.period_s
            and (not only or part.tags.get("service", part.tags.get("probe")) in only)
        ]
        for measurement, fields in (("probe", RUN_FIELDS), ("cost", PAID_FIELDS | SERVICE_FIELDS))
    )
    labels = {name: text for name, text in tags.items() if name != "device"}
    timed = reader.columns("slo", since_ns, END_OF_TIME_NS, labels, fields=SLO_FIELDS)
    candidates = probe_candidates(runs, costs, {one.name: one.quality for one in config.probe})
    hardware = {one.tags["device"]: one.tags.get("model", "") for one in reader.series("device")}
    candidates = on_identical(candidates, hardware)
    qualities = {one.name: one.quality for one in config.service}
    candidates += service_candidates(costs, qualities, timed)
    apis = config.api
    return candidates, hosting_choices(costs, apis, hosted_models() if apis else {})


def _document(
    groups: Sequence[Group], left_out: Sequence[LeftOut], choices: Sequence[HostingChoice]
) -> dict[str, Any]:
    return {
        "groups": [
            {
                "currency": group.currency,
                "basis": group.basis,
                "models": [
                    {
                        **asdict(placed.candidate),
                        "on_front": placed.dominated_by is None,
                        "dominated_by": placed.dominated_by,
                    }
                    for placed in group.placed
                ],
                "cheapest": group.answer.cheapest and group.answer.cheapest.name,
                "not_clearly_cheaper_than": list(group.answer.not_clearly),
                "not_good_enough": _reasons(group.answer.left_out),
            }
            for group in groups
        ],
        "left_out": _reasons(left_out),
        "apis": [hosted_apis.document(choice) for choice in choices],
    }


def _reasons(left_out: Sequence[LeftOut]) -> list[dict[str, str]]:
    return [
        {"name": candidate_out.candidate.name, "reason": candidate_out.reason}
        for candidate_out in left_out
    ]


def _limits_text(p99_ms: float | None, quality: float | None) -> str:
    limits = []
    if p99_ms is not None:
        limits.append(f"p99 of at most {p99_ms:g} ms")
    if quality is not None:
        limits.append(f"quality of at least {quality:g}")
    return " and ".join(limits)


def _group_lines(group: Group, limits: str, *, plot: bool) -> Iterator[str]:
    yield f"{group.currency}, {BASES[group.basis]}"
    yield from map(one_line, _table(group))
    yield "* no other is at least as good in every value and better in one (the Pareto front)"
    for placed in group.placed:
        if placed.dominated_by is not None:
            yield one_line(
                f"{placed.candidate.name}: {placed.dominated_by} is at least as good in every value"
            )
    for placed in group.placed:
        yield from map(one_line, _remarks(placed.candidate))
    if plot:
        yield from plotted(group)
    yield from _verdict(group, limits)


def _table(group: Group) -> list[str]:
    scale = scale_of(group)
    candidates = [placed.candidate for placed in group.placed]
    joules, energies = si_column([value_of(one.energy_per_inference_j) for one in candidates], "J")
    grams, emissions = si_column(
        [value_of(one.carbon_per_inference_g) for one in candidates], "gCO2e"
    )
    heads = ("IQR", "p50 ms", "p99 ms", joules, grams, "quality", "samples")
    rows: list[tuple[str, ...]] = [("model", per_words(scale), *heads)]
    for placed, energy, carbon in zip(group.placed, energies, emissions, strict=True):
        candidate = placed.candidate
        cost, currency = candidate.cost_per_inference, candidate.currency
        rows.append(
            (
                f"{'*' if placed.dominated_by is None else ' '} {candidate.name}",
                "-" if cost is None else money(cost.value * scale, currency),
                "-" if cost is None else money(cost.iqr * scale, currency),
                figure(value_of(candidate.latency_p50_ms)),
                figure(value_of(candidate.latency_p99_ms)),
                energy,
                carbon,
                "-" if candidate.quality is None else f"{candidate.quality:g}",
                f"{candidate.samples:,}",
            )
        )
    return table_lines(rows)


def _remarks(candidate: Candidate) -> Iterator[str]:
    if words := per_million_tokens(candidate):
        yield f"{candidate.name}: per million tokens {words}"
    if candidate.idle_share is not None:
        yield f"{candidate.name}: {percent(candidate.idle_share)} of its cost while waiting for requests"
    if words := deviation_words(candidate):
        yield f"{candidate.name}: {words}"
    for one in candidate.slo:
        yield f"{candidate.name}: {slo_words(asdict(one))}"
    if candidate.excluded:
        yield f"{candidate.name}: samples excluded: {candidate.excluded}"
    if len(candidate.plans) > 1:
        plans = ", ".join(candidate.plans)
        yield f"{candidate.name}: its samples were priced under several plans: {plans}"
    elif ASSUMED in candidate.plans:
        yield f"{candidate.name}: its price is assumed; set [[price]]"


def _verdict(group: Group, limits: str) -> Iterator[str]:
    answer = group.answer
    with_what = f" with {limits}" if limits else ""
    if answer.cheapest is None or answer.cheapest.cost_per_inference is None:
        yield paint(f"none{with_what}", "note")
    else:
        price = answer.cheapest.cost_per_inference.value
        cost = price_text(price, group.currency, scale_of(group))
        yield paint(f"cheapest{with_what}: {answer.cheapest.name}, {cost}", "good")
        if answer.not_clearly:
            yield f"  not clearly cheaper than {', '.join(answer.not_clearly)}"
    for candidate_out in answer.left_out:
        yield f"  not {candidate_out.candidate.name}: {candidate_out.reason}"


def api_lines(choices: Sequence[HostingChoice]) -> Iterator[str]:
    """Yield the answer to "self-host or API?" for each service."""
    yield "self-host or API?"
    for choice in choices:
        yield hosted_apis.caption(choice)
        if rows := hosted_apis.table(choice):
            yield from (f"  {line}" for line in table_lines([hosted_apis.HEADS, *rows]))
        yield from (f"  {line}" for line in hosted_apis.remarks(choice))
    yield hosted_apis.NOTE


PLOT_ROWS = 16


def plotted(group: Group) -> list[str]:
    """Return plot and legend; the latency is the p99 if all models have one, else the p50.

    Args:
        group: The models, in one currency and on one basis.
    """
    p99 = [placed.candidate.latency_p99_ms for placed in group.placed]
    p50 = [placed.candidate.latency_p50_ms for placed in group.placed]
    axis, latencies = ("p99 ms", p99) if None not in p99 else ("p50 ms", p50)
    scale = scale_of(group)
    points = [
        (placed, latency.value, placed.candidate.cost_per_inference.value * scale)
        for placed, latency in zip(group.placed, latencies, strict=True)
        if latency is not None and placed.candidate.cost_per_inference is not None
    ]
    if not points:
        return ["no plot: there are no latencies"]
    plotext = blank_plot(PLOT_ROWS)
    names = []
    for letter, (placed, latency_ms, cost) in zip(LETTERS, points, strict=False):
        is_front = placed.dominated_by is None
        colour = {"color": "green"} if is_front else {}
        plotext.scatter([latency_ms], [cost], marker=letter, **colour)
        words = one_line(f"{letter} {placed.candidate.name}{', on the front' if is_front else ''}")
        names.append(paint(words, "good") if is_front else words)
    plotext.xlabel(axis)
    plotext.title(f"{group.currency} {per_words(scale)}")
    return [*drawn(plotext.build()).splitlines(), *names]


def scale_of(group: Group) -> int:
    """Return the number of inferences that costs of a group are written for."""
    costs = (placed.candidate.cost_per_inference for placed in group.placed)
    return common_scale(None if cost is None else cost.value for cost in costs)
