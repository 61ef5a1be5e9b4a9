"""`costprobe price`: the rate of each device, its parts, and its history."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import click
from pydantic import ValidationError

from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.adapters.host.redaction import outside_text
from costprobe.core.config.fields import SourceConfig
from costprobe.core.money import cents, money
from costprobe.core.outside import one_line
from costprobe.core.periods import iso
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S, Device, natural
from costprobe.core.schema import SERVICE_FIELDS, part_words
from costprobe.core.units import counted, percent
from costprobe.pricing.book import PriceBook
from costprobe.pricing.catalogue import Catalogue, HostedPrice, Offer, Purchase
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.pricing.electricity import (
    CarbonBook,
    ElectricityConfig,
    Intensity,
    tariff_at,
)
from costprobe.pricing.prices import catalogue_folder
from costprobe.probing.rows import optional_text
from costprobe.ui.cli.support.command_classes import ExampleCommand, ExampleGroup
from costprobe.ui.cli.support.command_prices import echo_notes, stored_prices
from costprobe.ui.cli.support.discovery import discovered_devices
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.option_types import MOMENT, UNTIL_OPTION, FiniteRange, since_option
from costprobe.ui.cli.support.output import echo, echo_file, echo_json, echo_lines
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of, span_of
from costprobe.ui.cli.views.status_lines import range_words
from costprobe.ui.hosted_apis import price_document
from costprobe.ui.text import in_local_zone, kind_prices, local
from costprobe.unit_costs.price_files import DOLLAR, PRICE_FILES, model_prices, token_prices

_HEADER = ("cloud", "instance", "region", "GPUs", "on demand", "1 year", "3 years", "spot", "as of")
_RANKS = (0, 0, 0, 1, 0, 3, 4, 2, 5)
_SUMMARY = ("GPU", "offers", "on demand", "1 year", "3 years", "spot", "to buy")
_SUMMARY_RANKS = (0, 3, 0, 4, 5, 2, 1)
_IN_DOUBT = "* in doubt; --json has the reason and the source of each row"
_API_HEADER = ("model", "in", "cached", "out", "as of")
_FIRST_NUMBER = _HEADER.index("on demand")


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe price list  # each GPU: the range of its prices",
        "costprobe price list --gpu H100  # what clouds ask for it",
        "costprobe price list --cloud aws --region us-east-1  # all instances of a region",
        "costprobe price list --apis  # hosted models, per million tokens",
    ),
)
@click.option("--gpu", help="Only this GPU, as the driver or the vendor names it, such as H100.")
@click.option("--cloud", help="Only this cloud: aws, azure, gcp, oci, lambda, ...")
@click.option("--region", help="Only this region of a cloud.")
@click.option("--instance", help="Only instance types that contain this text.")
@click.option("--apis", is_flag=True, help="Hosted models and their prices of tokens instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the sources.")
@click.pass_obj
def listing(
    config: str | None,
    *,
    apis: bool,
    gpu: str | None,
    cloud: str | None,
    region: str | None,
    instance: str | None,
    as_json: bool,
) -> None:
    """Summarize the prices of each GPU, or list those of cloud instances per hour by --gpu, --cloud or --region.

    They come from public price lists; each row has its date and source. Nothing is fetched.
    """
    if apis and any((gpu, cloud, region, instance)):
        raise bad_input("--apis: lists hosted models; remove the other filters")
    catalogue = catalogue_folder(Settings(config).store_path).at(time.time_ns())
    if apis:
        hosted = list(hosted_models().values())
        if as_json:
            echo_json(_document(catalogue, (), (), hosted))
        else:
            echo_lines(_api_lines(hosted))
        return
    offers = [
        offer
        for offer in catalogue.offers
        if cloud in (None, offer.cloud)
        and region in (None, offer.region)
        and (instance or "").lower() in offer.instance.lower()
        and _is_of(gpu, offer.gpu_model)
    ]
    chosen = {offer.gpu_model for offer in offers}
    is_bought = cloud is None and region is None and instance is None
    purchases = [
        purchase
        for purchase in catalogue.purchases
        if (is_bought and _is_of(gpu, purchase.gpu_model))
        or (not is_bought and gpu and purchase.gpu_model in chosen)
    ]
    if not offers and not purchases:
        raise bad_input("no price matches; `costprobe price list` names each GPU of the catalogue")
    if as_json:
        echo_json(_document(catalogue, offers, purchases))
    elif not any((gpu, cloud, region, instance)):
        echo_lines(_summary_lines(catalogue, offers, purchases))
    else:
        echo_lines(_catalogue_lines(catalogue, offers, purchases))


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe price update --from prices.csv  # a file, such as one of a newer costprobe",
        (
            "costprobe price update --from https://prices.example.com/prices.csv --sha256 9f86d081884c"
            "7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  # only exactly this file"
        ),
    ),
)
@click.option(
    "--from", "place", required=True, help="URL or file of a price table, as in the package."
)
@click.option("--sha256", help="SHA-256 that the file must have, as 64 hexadecimal digits.")
@click.pass_obj
def update(config: str | None, *, place: str, sha256: str | None) -> None:
    """Install a newer catalogue of list prices, after checks of its schema and values.

    Prices before the installation stay as they were. An http:// URL needs --sha256. Nothing is ever
    fetched without this command.
    """
    is_url = place.startswith(("http://", "https://"))
    if place.startswith("http://") and sha256 is None:
        raise bad_input("--from http://...: anyone on the way can change it; add --sha256")
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise bad_input("--sha256: write 64 hexadecimal digits")
    try:
        source = SourceConfig.model_validate({"url" if is_url else "file": place})
        content = read_source(source).encode()
    except ValidationError:
        raise bad_input(
            "--from: write a file, or an http:// or https:// URL without a user"
        ) from None
    except SourceError as error:
        raise bad_input(f"--from: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise bad_input(
            f"--from: its SHA-256 is {found}, not that of --sha256; nothing is installed"
        )
    folder = catalogue_folder(Settings(config).store_path)
    try:
        catalogue = folder.install(content, time.time_ns())
    except ValueError as error:
        raise bad_input(f"--from: {outside_text(str(error))}; nothing is installed") from error
    except OSError as error:
        raise bad_input(f"{error.filename}: cannot be written ({error.strerror})") from error
    offers = sum(1 for _ in catalogue.offers)
    echo(f"installed the catalogue of {catalogue.version}: {counted(offers, 'offer')}")
    echo("a running daemon uses it after a reload: systemctl reload costprobe")


def _api_lines(prices: Sequence[HostedPrice]) -> Iterator[str]:
    yield f"{counted(len(prices), 'hosted model')}, list prices per million tokens"
    rows = [
        (
            price.model,
            *(
                "" if amount is None else cents(amount, price.currency)
                for amount in (
                    price.per_million_tokens_in,
                    price.per_million_tokens_cached,
                    price.per_million_tokens_out,
                )
            ),
            price.as_of + ("*" if price.doubt else ""),
        )
        for price in prices
    ]
    yield from table_lines([_API_HEADER, *rows], 1)
    yield _IN_DOUBT


def _is_of(gpu: str | None, model: str) -> bool:
    """Return whether a model has all words of a name: "h100 pcie", "A100-SXM4-80GB"."""
    if gpu is None:
        return True
    words = model.lower().replace("-", " ").split()
    return set(gpu.lower().replace("-", " ").split()) <= set(words)


def _document(
    catalogue: Catalogue,
    offers: Sequence[Offer],
    purchases: Sequence[Purchase],
    hosted: Sequence[HostedPrice] = (),
) -> dict[str, Any]:
    return {
        "version": catalogue.version.isoformat(),
        "offers": [_as_json(offer) for offer in offers],
        "purchases": [_as_json(purchase) for purchase in purchases],
        "hosted_models": [price_document(price) for price in hosted],
    }


def _as_json(row: Offer | Purchase) -> dict[str, Any]:
    """Return a row with exact numbers as text."""
    values = {name: getattr(row, name) for name in row.__slots__}
    return {
        name: optional_text(value) if isinstance(value, Decimal) else value
        for name, value in values.items()
    }


def _summary_lines(
    catalogue: Catalogue, offers: Sequence[Offer], purchases: Sequence[Purchase]
) -> Iterator[str]:
    """Yield a line for each GPU: the range of its prices, an hour and to buy one."""
    yield f"catalogue of {catalogue.version}: {counted(len(offers), 'offer')}; prices of one GPU, an hour or to buy"
    found = [offer for offer in offers if offer.gpu_model]
    kinds = {(one.gpu_model, one.currency) for one in found}
    kinds |= {(one.gpu_model, one.currency) for one in purchases}
    rows = []
    for kind in sorted(kinds, key=lambda kind: natural(*kind)):
        own = [one for one in found if (one.gpu_model, one.currency) == kind]
        prices = [_prices(one, one.gpu_count) for one in own if one.gpu_count]
        bought = [
            end / one.gpu_count
            for one in purchases
            if (one.gpu_model, one.currency) == kind
            for end in (one.purchase_price_low, one.purchase_price_high)
        ]
        model, currency = kind
        hourly = [
            _range([row[n] for row in prices], partial(cents, currency=currency)) for n in range(4)
        ]
        rows.append(
            (model, f"{len(own):,}", *hourly, _range(bought, partial(money, currency=currency)))
        )
    yield from table_lines([_SUMMARY, *rows], 1, _SUMMARY_RANKS)
    yield "what each cloud asks: costprobe price list --gpu H100"


def _prices(offer: Offer, count: Decimal = Decimal(1)) -> list[Decimal | None]:
    """Return the prices of an hour of an offer, divided by a count, in the order of the columns."""
    prices = (
        offer.on_demand_per_h,
        offer.reserved_1y_per_h,
        offer.reserved_3y_per_h,
        offer.spot_per_h,
    )
    return [None if price is None else price / count for price in prices]


def _range(amounts: Iterable[Decimal | None], text: Callable[[Decimal], str]) -> str:
    known = [amount for amount in amounts if amount is not None]
    ends = dict.fromkeys(map(text, (min(known), max(known)))) if known else ()
    return " to ".join(ends) or "-"


def _catalogue_lines(
    catalogue: Catalogue, offers: Sequence[Offer], purchases: Sequence[Purchase]
) -> Iterator[str]:
    yield f"catalogue of {catalogue.version}: {counted(len(offers), 'offer')}"
    if offers:
        yield from table_lines([_HEADER, *map(_cells, offers)], _FIRST_NUMBER, _RANKS)
    doubtful = {offer.doubt for offer in offers if offer.doubt}
    if doubtful:
        yield _IN_DOUBT
    if purchases:
        yield "to buy:"
    for purchase in purchases:
        many = "" if purchase.gpu_count == 1 else f" for {purchase.gpu_count}"
        low, high = f"{purchase.purchase_price_low:,.0f}", f"{purchase.purchase_price_high:,.0f}"
        price = low if low == high else f"{low} to {high}"
        yield (
            f"  {purchase.gpu_model}: {price} {purchase.currency}{many},"
            f" {purchase.condition}, as of {purchase.as_of}"
        )


def _cells(offer: Offer) -> tuple[str, ...]:
    gpus = f"{offer.gpu_count.normalize():f} x " if offer.gpu_count else ""
    return (
        offer.cloud,
        offer.instance,
        offer.region,
        f"{gpus}{offer.gpu_model}" if offer.gpu_model else f"{offer.vcpu} vCPU",
        *("" if price is None else cents(price, offer.currency) for price in _prices(offer)),
        (offer.as_of or "undated") + ("*" if offer.doubt else ""),
    )


_REPORTED = (
    "cached tokens have a price of their own, so the server must report them in its answers (vLLM:"
    " --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe price export --for litellm --usd 1.08  # at $1.08 for one unit of your currency",
        "costprobe price export --for openlit --since 30d --usd 1  # prices of the last month",
    ),
)
@click.option(
    "--for", "program", type=click.Choice(list(PRICE_FILES)), required=True, help="The program."
)
@since_option("7d")
@UNTIL_OPTION
@click.option(
    "--usd",
    "usd",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    help="US dollars for one unit of the services' currency; the programs reckon in dollars.",
)
@click.option(
    "--provider",
    default="openai",
    show_default=True,
    help="litellm's provider of the models, such as hosted_vllm.",
)
@click.pass_obj
def export(
    config: str | None,
    *,
    program: str,
    since_ns: int,
    until_ns: int | None,
    usd: float | None,
    provider: str,
) -> None:
    """Write what tokens measurably cost, idle time included, as a price file.

    The costs of the window are ratios of sums over it, as in `costprobe report`. Window, coverage and
    date are in the file if its format has a place for them, and printed to standard error.
    """
    loaded = Settings(config)
    asked = span_of(since_ns, until_ns)
    since_ns, until_ns = asked.start_ns, asked.end_ns
    with reader_of(loaded) as reader:
        tags = {"basis": "serving"}
        rows = list(reader.columns("cost", since_ns, until_ns, tags, fields=SERVICE_FIELDS))
        found = token_prices(rows, (until_ns - since_ns) / NS_PER_S)
    only = {
        service.name: service.model
        for service in loaded.config.service
        if service.model is not None
    }
    span = {"since": iso(since_ns), "until": iso(until_ns)}
    try:
        prices = model_prices(found, usd, only, span)
    except ValueError as error:
        raise bad_input(str(error)) from error
    if not prices:
        parts = [f"{row.tags['service']} is {of}" for row in rows if (of := part_words(row.tags))]
        if parts:
            raise bad_input(f"no tokens with a cost since {iso(since_ns)}: {parts[0]}")
        raise bad_input(
            f"no tokens with a cost since {iso(since_ns)}; choose another --since, or see"
            " `costprobe status` for the services' counters"
        )
    echo_file(PRICE_FILES[program](prices, provider, iso(until_ns)).splitlines())
    for price in prices:
        amounts = {
            "in": price.usd_per_million_tokens_in,
            "fresh": price.usd_per_million_tokens_in,
            "cached": price.usd_per_million_tokens_cached,
            "out": price.usd_per_million_tokens_out,
        }
        words = [
            f"{money(one.amount, DOLLAR)} {one.which}{one.way}" for one in kind_prices(amounts.get)
        ]
        covered = f"coverage {percent(float(price.origin['coverage']))}"
        line = f"{price.name}: {', '.join(words)} per million tokens, {span['since']} to {span['until']}"
        echo(f"{line}, {covered}", err=True)
    if any(price.usd_per_million_tokens_cached is not None for price in prices):
        echo(_REPORTED, err=True)


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
    "--at", "at_ns", type=MOMENT, help="Time of the price, such as 30d ago (default: now)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(config: str | None, *, at_ns: int | None, as_json: bool) -> None:
    """Show each device's plan, its rate per hour and the parts of the rate."""
    settings = Settings(config)
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
@since_option("365d")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def history(config: str | None, *, since_ns: int, as_json: bool) -> None:
    """List every price change that the daemon recorded, oldest first."""
    with reader_of(Settings(config)) as reader:
        rows = list(reader.points("event", since_ns, END_OF_TIME_NS, {"kind": "price"}))
    if as_json:
        entries = [{"time": iso(r.time_ns), **r.tags, **r.fields} for r in rows]
        echo_json(entries)
    elif not rows:
        echo(f"no price change since {local(since_ns)}")
    else:
        heads = ("time", "device", "before", "after", "why")
        cells = [
            (
                local(row.time_ns),
                row.tags.get("device", ""),
                *(one_line(str(row.fields.get(name, "?"))) for name in ("before", "after")),
                in_local_zone(str(row.fields.get("detail", "")), row.time_ns),
            )
            for row in rows
        ]
        echo_lines(table_lines([heads, *cells], len(heads), has_prose=True))


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
        tariff = tariff_at(electricity, time_ns)
        entry["tariff_per_kwh"] = str(tariff.per_kwh)
        entry["pue"] = str(tariff.pue)
        entry["electricity_per_kwh"] = str(tariff.metered_per_kwh)
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
    per_hour = cents(Decimal(entry["price_rate_per_h"]), currency)
    plan = entry["plan"].replace("_", " ")
    low, high = entry["price_rate_low_per_h"], entry["price_rate_high_per_h"]
    if low is not None and high is not None:
        plan += f", {range_words(low, high, currency)}"
    lines = [f"{head}: {per_hour}/h ({plan})", f"    {entry['source']}"]
    for name, amount in entry["parts"].items():
        origin = entry["origins"].get(name)
        source = f" ({origin})" if origin else ""
        lines.append(f"    {name}: {cents(Decimal(amount), currency)}/h{source}")
    if "tariff_per_kwh" in entry:
        per_kwh, tariff = (
            cents(Decimal(entry[key]), currency)
            for key in ("electricity_per_kwh", "tariff_per_kwh")
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
