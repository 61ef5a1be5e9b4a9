"""`costprobe price`: the rate of each device, its parts, and its history."""

from __future__ import annotations

import time
from typing import Any

import click

from costprobe.core.money import money
from costprobe.core.periods import iso
from costprobe.core.records import END_OF_TIME_NS, Device
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import (
    CarbonBook,
    ElectricityConfig,
    Intensity,
    metered_per_kwh,
    tariff_in_force,
    tariff_per_kwh,
)
from costprobe.probing.rows import optional_text
from costprobe.ui.cli.price_catalogue import listing, update
from costprobe.ui.cli.price_export import export
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.command_prices import echo_notes, stored_prices
from costprobe.ui.cli.support.discovery import discovered_devices
from costprobe.ui.cli.support.loaded_config import LoadedConfig, reader_of
from costprobe.ui.cli.support.option_types import Moment
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.cli.views.lines import range_words
from costprobe.ui.text import local


@click.group(cls=ExampleGroup)
def command() -> None:
    """Show prices in force, stored changes and list prices, and export what tokens cost."""


command.add_command(listing, "list")
command.add_command(update, "update")
command.add_command(export, "export")


@command.command(
    examples=(
        "costprobe price show  # rates now, with their parts",
        "costprobe price show --at 30d  # the rates of 30 days ago",
    ),
)
@click.option(
    "--at", "at_ns", type=Moment(), help="Time of the price, such as 30d ago (default: now)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(config: str | None, *, at_ns: int | None, as_json: bool) -> None:
    """Show each device's plan, its rate per hour and the parts of the rate."""
    settings = LoadedConfig(config)
    devices = discovered_devices(settings.config.telemetry)
    known = stored_prices(settings)
    book, carbon = known.book(devices), known.carbon_book(devices)
    echo_notes(known)
    # The current time is read after the spot prices.
    time_ns = at_ns or time.time_ns()
    prices = [
        {
            **_priced(book, device, settings.config.electricity, time_ns),
            "carbon": _emitting(carbon, device, time_ns),
        }
        for device in devices
    ]
    if as_json:
        echo_json({"time": iso(time_ns), "devices": prices})
        return
    echo_lines(line for entry in prices for line in _lines(entry))


@command.command(
    examples=("costprobe price history  # plans and spot prices over time",),
)
@click.option("--since", "since_ns", type=Moment(), default="365d", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def history(config: str | None, *, since_ns: int, as_json: bool) -> None:
    """List every price change that the daemon recorded, oldest first."""
    with reader_of(LoadedConfig(config)) as reader:
        rows = list(reader.points("event", since_ns, END_OF_TIME_NS, {"kind": "price"}))
    if as_json:
        entries = [{"time": iso(r.time_ns), **r.tags, **r.fields} for r in rows]
        echo_json(entries)
    elif not rows:
        echo(f"no price change since {local(since_ns)}")
    else:
        for row in rows:
            fields = row.fields
            change = f"{fields.get('before', '?')} -> {fields.get('after', '?')}"
            device = row.tags.get("device", "")
            echo(f"{local(row.time_ns)}  {device}  {change}  ({fields.get('detail', '')})")


def _priced(
    book: PriceBook, device: Device, electricity: ElectricityConfig | None, time_ns: int
) -> dict[str, Any]:
    """Return a device's price as JSON."""
    terms = book.terms(device.name, time_ns)
    entry: dict[str, Any] = {"device": device.name, "model": device.model, "plan": None}
    if terms is None:
        return entry
    rate = terms.rate
    entry |= {
        "plan": rate.plan,
        "currency": rate.currency,
        "price_rate_per_h": str(rate.per_hour),
        "parts": {name: str(amount) for name, amount in rate.parts},
        "origins": dict(zip((name for name, _ in rate.parts), rate.origins, strict=False)),
        "price_rate_low_per_h": optional_text(rate.low_per_hour),
        "price_rate_high_per_h": optional_text(rate.high_per_hour),
        "source": rate.source,
        "stale": rate.is_stale,
        "electricity_included": rate.electricity_included,
    }
    if electricity is not None and not rate.electricity_included:
        tariff = tariff_per_kwh(electricity, time_ns)
        entry["tariff_per_kwh"] = str(tariff)
        entry["pue"] = str(tariff_in_force(electricity, time_ns).pue)
        entry["electricity_per_kwh"] = str(metered_per_kwh(electricity, time_ns))
    return entry


def _emitting(carbon: CarbonBook, device: Device, time_ns: int) -> dict[str, Any] | None:
    """Return the carbon intensity of a device's electricity as JSON."""
    intensity: Intensity | None = carbon.intensity(device.name, time_ns)
    if intensity is None:
        return None
    return {
        "g_per_kwh": str(intensity.g_per_kwh),
        "pue": str(intensity.pue),
        "g_per_kwh_with_pue": str(intensity.g_per_kwh * intensity.pue),
        "energy_share": intensity.share,
        "method": intensity.method,
        "source": intensity.words,
    }


def _lines(entry: dict[str, Any]) -> list[str]:
    """Return a device's price as readable lines."""
    head = f"{entry['device']}  {entry['model']}"
    if entry["plan"] is None:
        return [f"{head}: no price; set [[price]]", *_carbon_lines(entry)]
    currency = entry["currency"]
    per_hour = money(float(entry["price_rate_per_h"]), currency)
    plan = entry["plan"].replace("_", " ")
    low, high = entry["price_rate_low_per_h"], entry["price_rate_high_per_h"]
    if low is not None and high is not None:
        plan += f", {range_words(low, high, currency)}"
    lines = [f"{head}: {per_hour}/h ({plan})", f"    {entry['source']}"]
    for name, amount in entry["parts"].items():
        origin = entry["origins"].get(name)
        source = f" ({origin})" if origin else ""
        lines.append(f"    {name}: {money(float(amount), currency)}/h{source}")
    if "tariff_per_kwh" in entry:
        per_kwh, tariff = (
            money(float(entry[key]), currency) for key in ("electricity_per_kwh", "tariff_per_kwh")
        )
        lines.append(
            f"    electricity not included: {per_kwh}/kWh (tariff {tariff}, PUE {entry['pue']})"
        )
    elif not entry["electricity_included"]:
        lines.append("    electricity not included, and no tariff: set [electricity]")
    return lines + _carbon_lines(entry)


def _carbon_lines(entry: dict[str, Any]) -> list[str]:
    carbon = entry["carbon"]
    if carbon is None:
        return []
    g_per_kwh = float(carbon["g_per_kwh_with_pue"])
    grid = f"grid {carbon['g_per_kwh']} {carbon['source']}"
    return [f"    carbon: {g_per_kwh:.4g} g CO2e/kWh ({grid}, PUE {carbon['pue']})"]
