"""`costprobe savings`: what each workload costs a month, now and on every other supply."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from costprobe.core.money import MODELLED, money
from costprobe.core.units import counted, percent, significant
from costprobe.pricing.catalogue import RANGE_CURRENCY
from costprobe.savings.gather import devices_in, history_of, measured_models, served_curves
from costprobe.savings.predicted import PredictedSupply, predicted_supplies
from costprobe.savings.savings import Answer, Supply, savings
from costprobe.savings.supply import WAITING_SHARE_MAX
from costprobe.spend.now import spending
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.command_prices import (
    commitments_of,
    echo_notes,
    owned_of,
    plans_of,
    reservations_of,
    savings_sections,
    stored_prices,
)
from costprobe.ui.cli.support.known_names import STORED_PROBES, STORED_SERVICES, check_names
from costprobe.ui.cli.support.option_types import FLEET_OPTION, since_option
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, nothing_since, reader_of
from costprobe.ui.cli.where_served import interval
from costprobe.ui.savings import (
    bound_words,
    break_even_words,
    document,
    held_out_words,
    load_words,
    position_lines,
    scaling_words,
)
from costprobe.ui.text import shared_needs, short

# Supplies of a workload that are printed; --json has all of them.
SHOWN = 3


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe savings  # what would cost less, from the last 30 days",
        "costprobe savings --reserved 1y=40% --reserved 3y=60%  # and with reservations at a discount",
        "costprobe savings --owned 15000=3y  # and with a server of your own",
        "costprobe savings --plans plans.toml --service chat  # with offers, one service only",
    ),
)
@since_option("30d")
@click.option("--service", shell_complete=STORED_SERVICES, help="Only workloads of this service.")
@click.option("--probe", shell_complete=STORED_PROBES, help="Only workloads of this probe's model.")
@click.option(
    "--plans",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file of [[price]] tables: prices on offer.",
)
@click.option(
    "--reserved",
    "reservations",
    multiple=True,
    help="A reservation of the on-demand price, as TERM=DISCOUNT: 1y=35%. May be repeated.",
)
@click.option(
    "--owned",
    multiple=True,
    help="A server of your own, as PRICE=LIFETIME: 15000=3y; or LIFETIME alone for the catalogue's"
    " purchase price of these GPUs, without the server. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Every supply as JSON.")
@FLEET_OPTION
@click.pass_obj
def command(  # noqa: PLR0913 - one argument for each option
    config: str | None,
    *,
    since_ns: int,
    service: str | None,
    probe: str | None,
    file: Path | None,
    reservations: Sequence[str],
    owned: Sequence[str],
    as_json: bool,
) -> None:
    """Compare what each workload costs a month (730 h) now and on every other supply.

    A workload is what a service, or a device without one, did in each hour. A supply is a number of
    devices on which the model was measured, a schedule, and a price: fewer devices, another batch,
    another GPU, a MIG slice or a CPU; scaled by the hour of the week, or switched off; on demand,
    reserved, spot or owned. On a detected cloud instance its commitments of one and three years are
    compared, too, at the catalogue's prices. What was not measured is asked for, never guessed; GPUs
    that are predicted to cost less (costprobe where) stand apart.
    """
    settings = Settings(config)
    plans = plans_of(file) if file else []
    with reader_of(settings) as reader:
        check_names(reader, settings, {"service": service, "probe": probe})
        devices = devices_in(reader, since_ns)
        prices = stored_prices(settings)
        assumed = prices.assumed()
        for text in reservations:
            plans += reservations_of(text, settings.config.price, devices, assumed)
        plans += [owned_of(text, prices.catalogue(), devices) for text in owned]
        offer = prices.host_offer()
        if offer is not None:
            plans += commitments_of(offer, devices)
        history = history_of(savings_sections(settings.config), prices, reader, since_ns, plans)
        now = spending(
            reader,
            settings.config.budget,
            settings.config.telemetry.aggregate_s,
            time.time_ns(),
            (),
        )
        echo_notes(prices)
        models = measured_models(reader, settings.config.probe, since_ns)
        curves = served_curves(reader, settings.config.probe, settings.config.service, since_ns)
    if not history.devices:
        raise nothing_since("device row", since_ns)
    answers = [
        answer
        for answer in savings(history)
        if (service is None or service in answer.workload.services)
        and (probe is None or probe == answer.workload.probe)
    ]
    if not answers:
        raise bad_input("no workload matches --service and --probe")
    catalogue = prices.catalogue().loaded()
    predicted = [predicted_supplies(answer, models, curves, catalogue) for answer in answers]
    if as_json:
        echo_json(
            [
                {**document(answer), "predicted": [_predicted_document(one) for one in others]}
                for answer, others in zip(answers, predicted, strict=True)
            ]
        )
    else:
        if not any(one.supplies or one.load or one.now for one in answers):
            echo_lines([bound_words(now), ""])
        shared, needed = shared_needs({one.workload.name: one.needs for one in answers})
        for number, (answer, others) in enumerate(zip(answers, predicted, strict=True)):
            gap = [""] if number else []
            echo_lines([*gap, *_lines(answer, shared), *_predicted_lines(answer, others)])
        if needed:
            echo_lines(["", *map(short, needed)])


def _lines(answer: Answer, shared: Collection[str]) -> Iterator[str]:
    """Yield an answer as readable lines, without what other answers lack, too."""
    workload, now = answer.workload, answer.now
    cost = "" if now is None else f": {money(now.cost_per_month, answer.currency)} a month"
    yield short(f"{workload.name}{cost}")
    if workload.hours:
        yield short(f"  load: {load_words(workload)}")
    if answer.devices_min is not None:
        yield (
            f"  minimum of {counted(answer.devices_min, 'device')}: at most"
            f" {percent(WAITING_SHARE_MAX)} of the requests wait for a start"
        )
    if answer.load is not None:
        yield from (f"  {line}" for line in position_lines(answer.load, answer.currency))
    if now is not None and not answer.supplies:
        yield f"  no cheaper supply {'is known to hold' if answer.rejected else 'was measured'}"
    for number, supply in enumerate(answer.supplies[:SHOWN], 1):
        yield from _supply_lines(number, supply, answer)
    if len(answer.supplies) > SHOWN:
        yield f"  {len(answer.supplies) - SHOWN} more with --json"
    yield from (short(f"  rejected: {action}: {reason}") for action, reason in answer.rejected)
    yield from (short(f"  needed: {need}") for need in answer.needs if need not in shared)


def _predicted_document(one: PredictedSupply) -> dict[str, Any]:
    return {
        "gpu_model": one.gpu_model,
        "devices": one.devices,
        "currency": RANGE_CURRENCY,
        "cost_per_month": interval(one.cost_per_month),
        "commands": list(one.measure),
    }


def _predicted_lines(answer: Answer, others: Sequence[PredictedSupply]) -> Iterator[str]:
    """Yield the boards that are predicted to cost less, and how to measure them."""
    if not others or answer.now is None:
        return
    yield "  predicted, not measured (80 %), at the median list price all the time:"
    for one in others:
        cost = one.cost_per_month
        ends = (one if math.isfinite(one) else None for one in (cost.low, cost.high))
        low, high = ("open" if x is None else money(x, RANGE_CURRENCY, MODELLED) for x in ends)
        saved = float(answer.now.cost_per_month) - cost.value
        yield (
            f"     {one.devices} x {one.gpu_model}: {money(cost.value, RANGE_CURRENCY, MODELLED)} a"
            f" month ({low} to {high}), saves {money(saved, RANGE_CURRENCY, MODELLED)}"
        )
    there, here = others[0].measure
    yield f"     measure one there: {there}"
    yield f"     then take it here: {here}"


def _supply_lines(number: int, supply: Supply, answer: Answer) -> Iterator[str]:
    currency = answer.currency
    interval = ""
    if supply.saving_low is not None and supply.saving_high is not None:
        low, high = money(supply.saving_low, currency), money(supply.saving_high, currency)
        interval = f" (95 %: {low} to {high})" if low != high else ""
    yield (
        f"  {number}. {short(supply.action)}: {money(supply.cost_per_month, currency)} a month, saves"
        f" {money(supply.saving_per_month, currency)}{interval}"
    )
    facts = list(_facts(supply, answer))
    if facts:
        yield f"     {', '.join(facts)}"
    if supply.choice.scaling is not None:
        yield f"     {scaling_words(supply.choice.scaling)}"
    if supply.held_out is not None:
        yield f"     {held_out_words(supply.held_out)}"
    yield from (short(f"     if {assumption}") for assumption in supply.assumptions)


def _facts(supply: Supply, answer: Answer) -> Iterator[str]:
    """Yield what is known of a supply, beside its cost."""
    currency = answer.currency
    if supply.electricity_per_month:
        yield f"electricity {money(supply.electricity_per_month, currency)}"
    if supply.carbon_kg_per_month is not None:
        yield f"{significant(supply.carbon_kg_per_month)} kg CO2-equivalent"
    if supply.capacity_share is not None:
        yield f"capacity {supply.capacity_share:.3g} times the peak"
    latency_ms = supply.choice.placement.latency_p50_ms
    if latency_ms is not None:
        bound = (
            "no bound" if answer.bound_ms is None else f"bound {significant(answer.bound_ms)} ms"
        )
        yield f"p50 {significant(latency_ms)} ms ({bound})"
    if supply.break_even_share is not None:
        yield f"breaks even at {break_even_words(supply)} of the hours"
    if supply.choice.cash:
        months = supply.months_to_break_even
        after = "never breaks even" if months is None else f"breaks even after {months:.1f} months"
        yield f"{money(supply.choice.cash, currency)} in cash, {after}"
