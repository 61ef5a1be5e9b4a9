"""`costprobe forecast`: the growth of load, what it costs, and when capacity ends."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from typing import Any

import click

from costprobe.core.money import cents, money
from costprobe.core.records import NS_PER_S
from costprobe.core.units import counted, percent
from costprobe.savings.gather import history_of
from costprobe.savings.growth import (
    CapacityEnd,
    DayForecast,
    Growth,
    LoadForecast,
    MarginalCost,
    Money,
    growth,
)
from costprobe.savings.placements import day_of
from costprobe.savings.supply import HEADROOM
from costprobe.spend.budget import BudgetStatus
from costprobe.spend.evaluate import SpendBooks
from costprobe.spend.now import host_months
from costprobe.ui.amounts import si
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.command_prices import echo_notes, savings_sections, stored_prices
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import STORED_LOADS, unknown_name
from costprobe.ui.cli.support.option_types import FLEET_OPTION, TIMESPAN
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of
from costprobe.ui.text import forecast_cells, shared_needs, short, unmeasured_words

DAY_S = 86_400
MAX_HORIZON_DAYS = 365
# Older load does not represent the trend.
HISTORY_DAYS = 365


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe forecast  # the next 90 days of every service and device",
        "costprobe forecast chat --horizon 30d  # one service, the next 30 days",
    ),
)
@click.argument("names", nargs=-1, shell_complete=STORED_LOADS)
@click.option(
    "--horizon",
    "horizon_s",
    type=TIMESPAN,
    default="90d",
    show_default=True,
    help="How far to look ahead, from 1d to 365d.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@FLEET_OPTION
@click.pass_obj
def command(config: str | None, *, names: Sequence[str], horizon_s: float, as_json: bool) -> None:
    """Show the spend of this month and its forecast, and the growth of the load of each service or device.

    Of NAMES or all: a damped trend with its 80 % interval, the cost at today's prices, the cost of 1,000
    more requests, and the date when capacity ends.
    """
    settings = Settings(config)
    horizon_days = round(horizon_s / DAY_S)
    if not 1 <= horizon_days <= MAX_HORIZON_DAYS:
        raise bad_input(f"--horizon: write a time from 1d to {MAX_HORIZON_DAYS}d, such as 90d")
    now_ns = time.time_ns()
    since_ns = now_ns - HISTORY_DAYS * DAY_S * NS_PER_S
    with reader_of(settings) as reader:
        prices = stored_prices(settings)
        history = history_of(savings_sections(settings.config), prices, reader, since_ns)
        echo_notes(prices)
        budgets = settings.config.budget
        books = SpendBooks(budgets, settings.config.telemetry.aggregate_s)
        months = [] if as_json else host_months(books, budgets, reader, now_ns)[1]
    found = growth(history, now_ns, horizon_days)
    known = {name for one in found for name in ([one.service] if one.service else one.devices)}
    for name in names:
        if name not in known:
            raise unknown_name("service or device", name, known)
    if names:
        found = [one for one in found if one.service in names or set(one.devices) & set(names)]
    if not found:
        raise click.ClickException("no load is stored; is the daemon running?")
    if as_json:
        first = day_of(now_ns // NS_PER_S, history.zone)
        echo_json([growth_document(one, first) for one in found])
    else:
        echo_lines([*spend_lines([month.status for month in months]), ""] if months else [])
        echo_lines(growth_lines(found, horizon_days))


def spend_lines(statuses: Sequence[BudgetStatus]) -> list[str]:
    """Return what the host spends in the present period of each currency, with its forecast."""
    heads = ("spend of this", "so far", "covered", "forecast", "80 % interval")
    rows = [
        (
            f"{one.budget.period} in {one.budget.currency}",
            cents(one.spent, one.budget.currency) if one.coverage else "-",
            percent(one.coverage),
            *forecast_cells(one, one.budget.currency),
        )
        for one in statuses
    ]
    notes = [
        words
        for one in statuses
        if one.coverage and (words := unmeasured_words(one.coverage, one.budget.currency))
    ]
    return [*table_lines([heads, *rows]), *notes]


WHOLE_FROM = 1000
UNIT_WORDS = {"tokens_out": "output tokens", "device_hours": "device-hours"}


def growth_document(found: Growth, first: date) -> dict[str, Any]:
    """Return the growth of a service or device as JSON.

    Args:
        found: The growth.
        first: First day of the forecast.
    """
    capacity, cost, marginal = found.capacity, found.money, found.marginal
    return {
        "workload": found.name,
        "service": found.service or None,
        "devices": list(found.devices),
        "unit": found.unit,
        "history_d": found.history_days,
        "load_per_d": _week(found.load),
        "days": [
            {"day": (first + timedelta(ahead)).isoformat(), "load_per_d": _span(day)}
            for ahead, day in enumerate(found.load.days if found.load else ())
        ],
        "busy_devices_max": _week(found.peak),
        "usable_devices": capacity and capacity.usable_devices,
        "capacity_end": None
        if capacity is None
        else {
            "expected": _day(capacity.expected),
            "earliest": _day(capacity.earliest),
            "latest": _day(capacity.latest),
        },
        "currency": cost and cost.currency,
        "cost_per_month": None if cost is None else {"value": cost.now, **_span(cost.then)},
        "devices_needed": None if cost is None else _span(cost.devices_then),
        "next_device_cost_per_month": cost and cost.next_device,
        "per_thousand": None
        if marginal is None
        else {
            "energy_j": marginal.energy_j,
            "cost_energy": marginal.electricity,
            "cost_hardware": marginal.device,
        },
        "needs": list(found.needs),
        "notes": list(found.notes),
    }


def _week(forecast: LoadForecast | None) -> dict[str, float] | None:
    return None if forecast is None else {"value": forecast.now, **_span(forecast.then)}


def _span(day: DayForecast) -> dict[str, float]:
    return {"forecast": day.expected, "forecast_low": day.low, "forecast_high": day.high}


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def growth_lines(found: Sequence[Growth], horizon_days: int) -> Iterator[str]:
    """Yield the growth of services and devices as a table, and a paragraph for each."""
    heads = ("workload", "load a day", f"in {horizon_days} d", "80 % interval", "capacity ends")
    rows = [heads, *(_row(one, horizon_days) for one in found)]
    yield from table_lines(rows)
    shared, needed = shared_needs({short(one.name): one.needs for one in found})
    for one in found:
        if details := list(_details(one, horizon_days, shared)):
            yield from ("", short(one.name), *(f"  {line}" for line in details))
    if needed:
        yield from ("", *needed)


def _row(found: Growth, horizon_days: int) -> tuple[str, ...]:
    if found.load is None:
        figures = ["-", "-", "-"]
    else:
        then = found.load.then
        figures = [
            f"{_amount(found.load.now)} {UNIT_WORDS.get(found.unit, found.unit)}",
            _amount(then.expected),
            f"{_amount(then.low)} to {_amount(then.high)}",
        ]
    end = "not measured" if found.capacity is None else _end(found.capacity.expected, horizon_days)
    return (short(found.name), *figures, end)


def _amount(value: float) -> str:
    """Return four significant digits; a larger number with all of its whole digits."""
    return f"{value:,.0f}" if value >= WHOLE_FROM else f"{value:.4g}"


def _end(day: date | None, horizon_days: int) -> str:
    return f"not within {counted(horizon_days, 'day')}" if day is None else day.isoformat()


def _details(found: Growth, horizon_days: int, shared: Collection[str]) -> Iterator[str]:
    if found.peak is not None and found.capacity is not None:
        yield from _capacity(found.peak, found.capacity, horizon_days)
    if found.money is not None:
        yield _cost(found.money, horizon_days)
    if found.marginal is not None:
        yield _marginal(found.unit, found.marginal, found.money)
    if found.load is not None:
        yield (
            f"from {counted(found.history_days, 'day')}: damped trend with a weekly pattern (Gardner and"
            " McKenzie 1985)"
        )
    yield from found.notes
    yield from (f"needed: {need}" for need in found.needs if need not in shared)


def _capacity(peak: LoadForecast, capacity: CapacityEnd, horizon_days: int) -> Iterator[str]:
    then = peak.then
    yield (
        f"busiest hour of a week: {peak.now:.2g} busy devices, in {counted(horizon_days, 'day')}"
        f" {then.expected:.2g} ({then.low:.2g} to {then.high:.2g}), of {capacity.usable_devices:.2g}"
        f" usable ({percent(HEADROOM)} of the devices stay free); utilization is an upper bound of the load"
    )
    earliest, latest = (_end(day, horizon_days) for day in (capacity.earliest, capacity.latest))
    yield (
        f"capacity ends: {_end(capacity.expected, horizon_days)}; earliest {earliest}, latest"
        f" {latest}"
    )


def _cost(cost: Money, horizon_days: int) -> str:
    now, *then = (money(amount, cost.currency) for amount in (cost.now, *cost.then))
    return (
        f"cost at today's prices: {now} a month, in {counted(horizon_days, 'day')} {then[0]} ({then[1]} to"
        f" {then[2]}), with {counted(int(cost.devices_then.expected), 'device')}"
        f" ({cost.devices_then.low:g} to {cost.devices_then.high:g})"
    )


def _marginal(unit: str, marginal: MarginalCost, cost: Money | None) -> str:
    currency = "" if cost is None else cost.currency
    if marginal.energy_j is None or marginal.electricity is None:
        energy = "energy unknown"
    else:
        paid = money(marginal.electricity, currency) if marginal.electricity else "in the price"
        energy = f"{si(marginal.energy_j, 'J')}, electricity {paid}"
    words = (
        f"1,000 more {UNIT_WORDS.get(unit, unit)}: {energy}; devices: nothing until capacity ends"
    )
    if cost is not None:
        words += f", then {money(cost.next_device, currency)} a month for a further device"
    if marginal.device is not None:
        words += f" ({money(marginal.device, currency)} per 1,000 if it is used fully)"
    return words
