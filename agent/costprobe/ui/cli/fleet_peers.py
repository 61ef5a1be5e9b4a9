"""`costprobe fleet outliers` and `fleet change`: GPUs against their peers, and hosts before and after an update."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from costprobe.core.money import money
from costprobe.core.outside import one_line
from costprobe.core.records import SOFTWARE_TAGS
from costprobe.core.units import counted, percent
from costprobe.fleet.outliers import fleet_outliers
from costprobe.fleet.peers import (
    FALSE_SHARE,
    LEAST_EFFECT,
    Excess,
    ExcessCost,
    FleetOutliers,
    Outlier,
)
from costprobe.fleet.rollouts import FleetChange, aligned, fleet_changes, hosts_with
from costprobe.fleet.updates import Effect
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.fleet_options import (
    FleetOptions,
    fleet_key,
    fleet_options,
)
from costprobe.ui.cli.support.option_types import TIMESPAN
from costprobe.ui.cli.support.place import bad_input
from costprobe.ui.fleet_documents import monthly_document, outlier_document, outliers_document
from costprobe.ui.text import local


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet outliers --within label:rack  # GPUs slower or hungrier than peers in their rack",
        "costprobe fleet outliers --since 24h --json  # the same of a day, for a program",
    ),
)
@click.option(
    "--within",
    type=fleet_key(),
    multiple=True,
    help="Compare within the values of this label, such as a cooling row or a lot; may be repeated.",
)
@fleet_options(since="7d")
def outliers(
    options: FleetOptions,
    *,
    within: Sequence[str],
) -> None:
    """Find GPUs that are slower or hungrier than their peers, with cause and cost.

    Peers have the same GPU model, probe, batch, execution mode and software. The levels of hosts, of
    slots and of `--within` are removed; a host all of whose GPUs deviate is listed as one. Listed is
    what is at least 2 % above its peers, at a nominal false discovery rate of 5 %.
    """
    with options.answers() as answers:
        found = fleet_outliers(answers, within)
    options.echo(
        answers,
        outliers_document(found, within),
        (OUTLIER_HEADS, outlier_rows(found)),
        outlier_lines(found, within),
        shown=range(found.tested + found.untested + found.updated),
        wanted="probe runs",
    )


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe fleet change driver --since 30d  # what driver updates did to cost",
        "costprobe fleet change label:release --within label:rack  # the same of a label, within racks",
    ),
)
@click.argument("key", type=fleet_key(*SOFTWARE_TAGS))
@click.option(
    "--window",
    "window_s",
    type=TIMESPAN,
    default="24h",
    show_default=True,
    help="Time before and after a change that is compared.",
)
@click.option("--within", type=fleet_key(), help="Compare only hosts with the same value.")
@fleet_options(since="14d")
def change(
    options: FleetOptions,
    *,
    key: str,
    window_s: float,
    within: str | None,
) -> None:
    """Estimate what a change of software did to cost, time and energy on all hosts.

    Each host that changed is compared, around its own change, with hosts that had not changed yet
    (difference in differences), with an interval of 95 %.
    """
    with options.answers() as answers:
        try:
            answers.period = aligned(answers.period, window_s)
        except ValueError as error:
            raise bad_input(f"--since: {error}, {window_s / 3600:g} h each") from error
        found = fleet_changes(answers, key, within or "")
        hosts = () if found else hosts_with(answers, key)
    documents = [change_document(one) for one in found]
    since = local(answers.period.start_ns)
    unchanged = f"no host changed its {key} since {since}, of {counted(len(hosts), 'host')}"
    options.echo(
        answers,
        {"key": key, "window_s": window_s, "changes": documents},
        (CHANGE_HEADS, change_rows(documents)),
        change_lines(found) if found else [unchanged],
        shown=found or hosts,
        wanted=f"rows with a {key}",
    )


_SHOWN_MAX: Final = 50
# Levels of labels below this are not shown.
_LEVEL_MIN: Final = LEAST_EFFECT


def outlier_lines(found: FleetOutliers, within: Sequence[str]) -> Iterator[str]:
    """Yield the outliers, the most expensive first, with cause and cost."""
    excess, share = percent(LEAST_EFFECT), percent(FALSE_SHARE)
    yield (
        f"{counted(len(found.outliers), 'outlier')} of {counted(found.tested, 'GPU')}:"
        f" at least {excess} above their peers, at a nominal false discovery rate of {share}"
    )
    if found.untested:
        yield f"{counted(found.untested, 'GPU')} without enough peers or runs"
    if found.updated:
        yield (
            f"{counted(found.updated, 'GPU')} not tested: their software or model changed in the period; ask"
            " for the time since (--since)"
        )
    if found.outliers:
        heads = ("host", "device", "cause", "time", "energy", "a month")
        rows = [
            (
                one_line(one.host),
                one_line(one.device) or "all",
                one.explanation.name,
                _excess(one.time),
                _excess(one.energy),
                "-" if one.cost is None else money(one.cost.mean, one.cost.currency),
            )
            for one in found.outliers[:_SHOWN_MAX]
        ]
        yield from table_lines([heads, *rows], text_columns=3)
    if len(found.outliers) > _SHOWN_MAX:
        yield f"and {counted(len(found.outliers) - _SHOWN_MAX, 'more outlier')}: --json and --csv list all"
    for one in found.outliers[:_SHOWN_MAX]:
        yield from _details(one)
    for peers, level in found.levels:
        if math.expm1(level.log_excess) >= _LEVEL_MIN:
            name = f"{within[level.label]}={level.value}"
            yield (
                f"{one_line(name)}: {_signed(level.log_excess)} time of {one_line(peers[1])} on"
                f" {counted(level.hosts, 'host')}; not counted as a deviation"
            )


def _details(one: Outlier) -> Iterator[str]:
    name = f"{one.host} {one.device or 'all devices'}"
    parts = [f"{_interval(metric, excess)}" for metric, excess in _metrics(one)]
    texts = "; ".join(cause.text for cause in one.explanation.causes) or "no signal differs"
    peers = ", ".join(part for part in one.peers if part)
    yield f"{one_line(name)}: {', '.join(parts)}, compared with {one.peer_count:,} of {one_line(peers)}"
    yield f"  {one_line(texts)}: {one.explanation.action_on(one.device)}"
    if one.cost is not None:
        yield f"  {_a_month(one.cost)}"


def _a_month(cost: ExcessCost) -> str:
    mean, low, high = (money(end, cost.currency) for end in (cost.mean, cost.low, cost.high))
    return f"{mean} a month at the present use ({low} to {high})"


def _metrics(one: Outlier) -> Iterator[tuple[str, Excess]]:
    for metric, excess in (("time", one.time), ("energy", one.energy)):
        if excess is not None:
            yield metric, excess


def _interval(metric: str, excess: Excess) -> str:
    ends = " to ".join(f"{end * 100:+.1f}" for end in (excess.low, excess.high))
    return f"{excess.mean * 100:+.1f} % {metric} ({ends} %)"


def _excess(excess: Excess | None) -> str:
    return "-" if excess is None else f"{excess.mean * 100:+.1f} %"


OUTLIER_HEADS: Final = (
    "host",
    "device",
    "peers",
    "peer_count",
    "probe_runs",
    "time_excess_pct",
    "time_excess_low_pct",
    "time_excess_high_pct",
    "energy_excess_pct",
    "energy_excess_low_pct",
    "energy_excess_high_pct",
    "cause",
    "cost_per_month",
    "cost_low_per_month",
    "cost_high_per_month",
    "currency",
)


def outlier_rows(found: FleetOutliers) -> Iterator[Mapping[str, Any]]:
    """Yield an outlier for each line of CSV."""
    for one in found.outliers:
        yield {**outlier_document(one), "peers": ", ".join(part for part in one.peers if part)}


def change_lines(changes: Sequence[FleetChange]) -> Iterator[str]:
    """Yield each change with its effect."""
    for change in changes:
        name = f"{change.key} {change.before} → {change.after}"
        when = f"{local(change.first_ns)} to {local(change.last_ns)}"
        yield f"{one_line(name)}: {counted(change.hosts, 'host')}, {when}"
        for text, hosts in sorted(change.beside.items()):
            yield f"  {one_line(text)} in the same interval on {counted(hosts, 'host')}"
        effect = change.effect
        if effect is None:
            yield (
                "  no effect known: too few hosts that did not change yet, or too little time before"
                " and after"
            )
            continue
        compared = (
            f"{counted(effect.time.hosts, 'host')} with {effect.time.controls:,} not changed yet"
        )
        left_out = f", {effect.time.excluded:,} left out" if effect.time.excluded else ""
        yield f"  compared: {compared}{left_out}"
        rows = [
            (
                label,
                _signed(one.mean),
                f"{_signed(one.mean - one.half_width)} to",
                _signed(one.mean + one.half_width),
            )
            for label, one in _effects(change)
            if one is not None
        ]
        for line in table_lines([("  effect on", "change", "95 %:", ""), *rows]):
            yield line.rstrip()
        for cost in change.costs:
            yield f"  {_a_month(cost)}"
        if effect.before is not None and abs(effect.before.mean) > effect.before.half_width:
            yield (
                f"  doubtful: the hosts that changed moved by {_signed(effect.before.mean)} against the"
                " others before the change"
            )


def _effects(change: FleetChange) -> Iterator[tuple[str, Effect | None]]:
    if change.effect is None:
        return
    yield "  cost per inference", change.effect.cost
    for name, part in change.effect.parts.items():
        yield f"    part: {name}", part
    yield "  time per inference", change.effect.time
    yield "  energy per inference", change.effect.energy


def _signed(log_ratio: float) -> str:
    return f"{_pct(log_ratio):+.2f} %"


def _pct(log_ratio: float) -> float:
    return math.expm1(log_ratio) * 100


_OUTCOMES: Final = ("cost", "time", "energy", "before")
CHANGE_HEADS: Final = (
    "key",
    "before",
    "after",
    "first_ns",
    "last_ns",
    "hosts",
    "outcome",
    "change_pct",
    "change_low_pct",
    "change_high_pct",
    "hosts_compared",
    "hosts_not_changed",
    "hosts_left_out",
    "cost_per_month",
    "cost_low_per_month",
    "cost_high_per_month",
    "currency",
)


def change_rows(documents: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield an outcome of a change for each line of CSV."""
    for document in documents:
        for outcome in _OUTCOMES:
            figures = document["effects"] and document["effects"][outcome]
            # A month's cost beside the effect on the cost, a line for each currency.
            costs = document["costs"] if outcome == "cost" else []
            for cost in costs or [{}] if figures else []:
                yield {**document, "outcome": outcome, **figures, **cost}


def change_document(change: FleetChange) -> dict[str, Any]:
    """Return a change as JSON."""
    effect = change.effect
    return {
        "key": change.key,
        "before": change.before,
        "after": change.after,
        "first_ns": change.first_ns,
        "last_ns": change.last_ns,
        "hosts": change.hosts,
        "beside": [{"text": text, "hosts": hosts} for text, hosts in change.beside.items()],
        "costs": [monthly_document(cost) for cost in change.costs],
        "effects": effect
        and {
            **{name: _effect_document(getattr(effect, name)) for name in _OUTCOMES},
            "parts": {name: part.mean for name, part in effect.parts.items()},
        },
    }


def _effect_document(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    low, high = effect.mean - effect.half_width, effect.mean + effect.half_width
    return {
        "change_pct": _pct(effect.mean),
        "change_low_pct": _pct(low),
        "change_high_pct": _pct(high),
        "hosts_compared": effect.hosts,
        "hosts_not_changed": effect.controls,
        "hosts_left_out": effect.excluded,
    }
