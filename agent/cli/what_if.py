"""`infercost price what-if`: the samples of the past under other plans, side by side."""

from __future__ import annotations

import json
import os
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from agent.cli.books import book_of, known_spots
from agent.cli.discovery import discovered_devices
from agent.cli.lines import PER_THOUSAND, money
from agent.cli.settings import Settings, bad_input, reader_of
from agent.cli.timespan import Moment, local
from agent.config_price import ElectricityConfig, PlanConfig
from agent.costing.what_if import Repriced, Sample, break_even_share, repriced, samples_of
from agent.model import NS_PER_S, Device
from agent.pricing.book import PriceBook
from agent.pricing.spot import Spots
from agent.units import MONTH_H

MAX_FILE_BYTES = 1 << 20
END_OF_TIME_NS = 2**63 - 1
ACTUAL = "as it was"
PLOT_BARS = 50


@dataclass(frozen=True, slots=True)
class Alternative:
    """A price book to look at the past with.

    Attributes:
        name: What it is called.
        book: Its prices.
        is_always_paid: Whether it is paid for in hours without use too.
    """

    name: str
    book: PriceBook
    is_always_paid: bool


@click.command("what-if")
@click.option("--since", "since_ns", type=Moment(), default="30d", show_default=True)
@click.option(
    "--plans",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A TOML file of [[price]] tables; each is looked at by itself.",
)
@click.option("--probe", help="Only this probe.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def command(
    config: str | None, *, since_ns: int, file: Path | None, probe: str | None, as_json: bool
) -> None:
    """Prices the stored samples as if other plans had held, each for the whole time.

    Besides what was in force it looks at every plan of the configuration, at those of --plans, and at
    the assumed list price. What cannot be priced under a plan is counted and not guessed.
    """
    settings = Settings(config)
    tags = {"probe": probe} if probe else None
    with reader_of(settings) as reader:
        samples = samples_of(reader.points("probe", since_ns, END_OF_TIME_NS, tags))
    if not samples:
        raise click.ClickException(f"no sample since {local(since_ns)}; is the daemon running?")
    devices = discovered_devices()
    known = {device.name for device in devices}
    groups = _grouped([sample for sample in samples if set(sample.device.split("+")) <= known])
    if not groups:
        raise click.ClickException("no sample is of a device that this host has now")
    first_ns = min(sample.time_ns for sample in samples)
    plans = [*settings.config.price, *(plans_of(file) if file else [])]
    alternatives = _alternatives(settings, devices, plans, first_ns)
    found = [_compared(group, of, alternatives) for group, of in groups.items()]
    click.echo(json.dumps(found) if as_json else "\n\n".join(_shown(entry) for entry in found))


def plans_of(file: Path) -> list[PlanConfig]:
    """The [[price]] tables of a file.

    Raises:
        click.ClickException: It holds none that can be used.
    """
    try:
        content = file.read_bytes()[:MAX_FILE_BYTES]
        tables = tomllib.loads(content.decode(), parse_float=Decimal).get("price", [])
        return TypeAdapter(list[PlanConfig]).validate_python(tables)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise bad_input(f"{file}: is no valid TOML: {error}") from error
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise bad_input(f"{file}: price.{where}: {detail['msg']}") from error


def _grouped(samples: Sequence[Sample]) -> dict[tuple[str, str], list[Sample]]:
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.device, sample.probe), []).append(sample)
    return groups


def _alternatives(
    settings: Settings, devices: Sequence[Device], plans: Sequence[PlanConfig], first_ns: int
) -> list[Alternative]:
    electricity, spots = settings.config.electricity, known_spots(settings)
    began = datetime.fromtimestamp(first_ns // NS_PER_S, tz=UTC).date()
    cpus = os.cpu_count() or 1
    found = [Alternative(ACTUAL, book_of(settings, devices), is_always_paid=False)]
    for plan in plans:
        book = book_of_one(plan, electricity, devices, began, spots)
        always = plan.plan in ("reserved", "owned")
        found.append(Alternative(name_of_plan(plan), book, is_always_paid=always))
    listed = PriceBook([], electricity, devices, cpus)
    found.append(Alternative("list price (assumed)", listed, is_always_paid=False))
    return found


def book_of_one(
    plan: PlanConfig,
    electricity: ElectricityConfig | None,
    devices: Sequence[Device],
    began: date,
    spots: Spots,
) -> PriceBook:
    """A book in which a plan holds from the first sample on, whenever it really began."""
    held = plan.model_copy(update={"valid_from": began})
    return PriceBook([held], electricity, devices, spots=lambda: spots)


def name_of_plan(plan: PlanConfig) -> str:
    """A plan in words."""
    return f"{plan.plan.replace('_', ' ')} of {plan.valid_from}"


def _compared(
    group: tuple[str, str], samples: Sequence[Sample], alternatives: Sequence[Alternative]
) -> dict[str, Any]:
    """One probe on one device under each alternative, as JSON."""
    device, probe = group
    now_ns = time.time_ns()
    entries = [_entry(alternative, device, samples, now_ns) for alternative in alternatives]
    on_demand = next(
        (e for e in entries if e["plan"] in ("on_demand", "assumed") and e["per_hour"]), None
    )
    for entry, alternative in zip(entries, alternatives, strict=True):
        entry["break_even_share"] = None
        if alternative.is_always_paid and on_demand is not None and entry["per_hour"]:
            share = break_even_share(Decimal(entry["per_hour"]), Decimal(on_demand["per_hour"]))
            entry["break_even_share"] = None if share is None else float(share)
    return {"device": device, "probe": probe, "samples": len(samples), "plans": entries}


def _entry(
    alternative: Alternative, device: str, samples: Sequence[Sample], now_ns: int
) -> dict[str, Any]:
    outcome: Repriced = repriced(samples, alternative.book.terms)
    terms = alternative.book.terms(device, now_ns)
    return {
        "name": alternative.name,
        "plan": None if terms is None else terms.rate.plan,
        "currency": None if terms is None else terms.rate.currency,
        "per_hour": None if terms is None else str(terms.rate.per_hour),
        "per_month": None if terms is None else str(terms.rate.per_hour * MONTH_H),
        "cost_per_inference": outcome.per_inference,
        "unpriced": outcome.unpriced,
    }


def _shown(entry: Mapping[str, Any]) -> str:
    """The alternatives for people: a table, bars, and what could not be priced."""
    lines = [f"{entry['device']} {entry['probe']}, {entry['samples']} samples"]
    heads = ("plan", "per hour", "per month", "per 1,000", "against now", "pays from")
    rows = [heads, *_rows(entry["plans"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    lines += _bars(entry["plans"])
    lines += [
        f"{plan['name']}: {plan['unpriced']} samples have no price or no energy under it"
        for plan in entry["plans"]
        if plan["unpriced"]
    ]
    return "\n".join(lines)


def _rows(plans: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    now = plans[0]["cost_per_inference"]
    for plan in plans:
        cost, currency, share = (
            plan["cost_per_inference"],
            plan["currency"],
            plan["break_even_share"],
        )
        against = "-" if not cost or not now else f"{(cost / now - 1) * 100:+.1f} %"
        yield (
            plan["name"],
            "-" if currency is None else money(float(plan["per_hour"]), currency),
            "-" if currency is None else money(float(plan["per_month"]), currency),
            "-" if cost is None else money(cost * PER_THOUSAND, currency),
            against,
            "-" if share is None else f"{share:.0%} in use",
        )


def _bars(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    known = [plan for plan in plans if plan["cost_per_inference"]]
    most = max((plan["cost_per_inference"] for plan in known), default=0.0)
    width = max((len(plan["name"]) for plan in known), default=0)
    size = min(PLOT_BARS, max(10, shutil.get_terminal_size().columns - width - 2))
    for plan in known:
        bar = "#" * max(1, round(size * plan["cost_per_inference"] / most))
        yield f"{plan['name'].ljust(width)}  {bar}"
