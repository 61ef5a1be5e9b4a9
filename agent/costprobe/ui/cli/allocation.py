"""`costprobe allocation`: what the devices cost, by tenant, namespace, service or model."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, get_args

import click

from costprobe.app.budgeting.spend_reading import usual_of
from costprobe.app.overview.key_allocation import Key, KeyAllocation, KeyCost, allocation_by
from costprobe.core.money_text import money
from costprobe.core.printable import one_line
from costprobe.core.units import percent
from costprobe.domain.costing.budgets.periods import TimeSpan
from costprobe.ui.cli.support.examples import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.support.timespan import Moment
from costprobe.ui.text import local

_SOURCES: Final = {
    "tenant": "tenants need [service.tenants], see docs/howto/tenants.md",
    "namespace": "namespaces need [kubernetes], see docs/howto/kubernetes.md",
    "service": "services need a [[service]], see docs/serving.md",
    "model": "models need a [[service]], see docs/serving.md",
}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe allocation --by tenant --since 30d  # what each team, user or key cost",
        "costprobe allocation --by model --since 7d --json  # what each model cost in a week",
    ),
)
@click.option(
    "--by",
    "key",
    type=click.Choice(get_args(Key)),
    default="service",
    show_default=True,
    help="What the cost is divided by.",
)
@click.option(
    "--since", "since_ns", type=Moment(), default="30d", show_default=True, help='"7d" or a date.'
)
@click.option("--until", "until_ns", type=Moment(), help='"1h" or a date (default: now).')
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    config: str | None, *, key: Key, since_ns: int, until_ns: int | None, as_json: bool
) -> None:
    """Show what the devices cost in a period, by tenant, namespace, service or model.

    The lines add up to the cost of the devices. "unattributed" is the cost of services that no
    tenant's counter explains, "unallocated" what belongs to none of the names.
    """
    settings = LoadedConfig(config)
    until_ns = time.time_ns() if until_ns is None else until_ns
    if since_ns >= until_ns:
        raise bad_input("--since: must be before --until")
    span = TimeSpan(since_ns, until_ns)
    with reader_of(settings) as reader:
        found = allocation_by(key, reader, span, usual_of(settings.config))
    if as_json:
        echo_json([_document(key, span, allocation) for allocation in found])
        return
    if not found:
        raise click.ClickException(f"no cost since {local(since_ns)}; is the daemon running?")
    for allocation in found:
        echo_lines(_lines(key, span, allocation))


def _document(key: Key, span: TimeSpan, allocation: KeyAllocation) -> dict[str, Any]:
    return {
        "by": key,
        "since_ns": span.start_ns,
        "until_ns": span.end_ns,
        "currency": allocation.currency or None,
        "cost_total": allocation.total,
        "coverage": allocation.coverage,
        "parts": [
            {
                "name": part.name,
                "rest": part.rest,
                "cost": part.cost,
                "cost_share": _share(part.cost, allocation.total),
                "cost_idle": part.idle,
            }
            for part in allocation.parts
        ],
    }


def _share(cost: float, total: float) -> float | None:
    return cost / total if total > 0 else None


def _lines(key: Key, span: TimeSpan, allocation: KeyAllocation) -> Iterable[str]:
    currency, total = allocation.currency, allocation.total
    rows: list[tuple[str, ...]] = [(key, "share", "cost", "of it idle")]
    shown = [part for part in allocation.parts if part.rest is None or part.cost > 0]
    rows += [_row(part, total, currency) for part in shown]
    rows.append(("total", _percent(total, total), money(total, currency), ""))
    yield (
        f"{local(span.start_ns)} to {local(span.end_ns)}, {percent(allocation.coverage)} of the time"
        " covered"
    )
    yield from table_lines(rows)
    if all(part.rest is not None for part in allocation.parts):
        yield f"no {key} has a cost: {_SOURCES[key]}"


def _row(part: KeyCost, total: float, currency: str) -> tuple[str, ...]:
    name = one_line(part.name) if part.rest is None else f"({part.rest})"
    idle = "-" if part.idle is None else money(part.idle, currency)
    return name, _percent(part.cost, total), money(part.cost, currency), idle


def _percent(cost: float, total: float) -> str:
    share = _share(cost, total)
    return "-" if share is None else percent(share, 1)
