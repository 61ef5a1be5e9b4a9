"""`costprobe spend`: what the devices cost, by tenant, namespace, service or model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_args

import click

from costprobe.core.periods import TimeSpan
from costprobe.core.units import percent
from costprobe.spend.query import Key, KeyAllocation, allocation_by
from costprobe.spend.server import server_others
from costprobe.ui import key_costs
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.option_types import FLEET_OPTION, UNTIL_OPTION, since_option
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, nothing_since, reader_of, span_of
from costprobe.ui.text import local

_SOURCES: Final = {
    "tenant": "tenants need [service.tenants], see docs/howto/served_models.md",
    "namespace": "namespaces need [kubernetes], see docs/howto/kubernetes.md",
    "service": "services need a [[service]], see docs/serving.md",
    "model": "models need a [[service]], see docs/serving.md",
}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe spend --by tenant --since 30d  # what each team, user or key cost",
        "costprobe spend --by model --since 7d --json  # what each model cost in a week",
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
@since_option("30d")
@UNTIL_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@FLEET_OPTION
@click.pass_obj
def command(
    config: str | None, *, key: Key, since_ns: int, until_ns: int | None, as_json: bool
) -> None:
    """Show what the devices cost in a period, by tenant, namespace, service or model.

    The lines add up to the cost of the devices. "unattributed" is the cost of services that no
    tenant's counter explains, "unallocated" what belongs to none of the names. Models divide the cost of
    their service by what was counted; a service has a line of its own where it counts one model, or none.
    """
    settings = Settings(config)
    span = span_of(since_ns, until_ns)
    with reader_of(settings) as reader:
        found = allocation_by(key, reader, span, settings.config.telemetry.aggregate_s)
        server = server_others(reader, span)
    if as_json:
        echo_json([key_costs.document(key, span, allocation, server) for allocation in found])
        return
    if not found:
        raise nothing_since("cost", since_ns)
    for allocation in found:
        echo_lines(_lines(key, span, allocation))
    if server is not None:
        echo_lines([key_costs.server_words(server)])


def _lines(key: Key, span: TimeSpan, allocation: KeyAllocation) -> Iterable[str]:
    yield (
        f"{local(span.start_ns)} to {local(span.end_ns)}, {percent(allocation.coverage)} of the time"
        " covered"
    )
    yield from table_lines([(key, *key_costs.heads(allocation)), *key_costs.table(allocation)])
    if all(part.rest is not None for part in allocation.parts):
        yield f"no {key} has a cost: {_SOURCES[key]}"
