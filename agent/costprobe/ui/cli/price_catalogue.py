"""`costprobe price list` and `update`: list prices of clouds, and what GPUs cost to buy."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import click
from pydantic import ValidationError

from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.adapters.host.redaction import outside_text
from costprobe.core.config.fields import SourceConfig
from costprobe.core.units import counted
from costprobe.pricing.catalogue import Catalogue, HostedPrice, Offer, Purchase
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.pricing.prices import catalogue_folder
from costprobe.probing.rows import optional_text
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input
from costprobe.ui.cli.support.output import echo, echo_json, echo_lines
from costprobe.ui.hosted_apis import price_document

_HEADER = ("cloud", "instance", "region", "GPUs", "on demand", "1 year", "3 years", "spot", "as of")
_IN_DOUBT = "* in doubt; --json has the reason and the source of each row"
_API_HEADER = ("model", "in", "cached", "out", "as of")
_FIRST_NUMBER = _HEADER.index("on demand")


@click.command(
    cls=ExampleCommand,
    examples=(
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
    """List prices of cloud instances per hour, and purchase prices of GPUs.

    They come from public price lists; each row has its date and source. Nothing is fetched.
    """
    if apis and any((gpu, cloud, region, instance)):
        raise bad_input("--apis: lists hosted models; remove the other filters")
    catalogue = catalogue_folder(LoadedConfig(config).store_path).at(time.time_ns())
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
    if as_json:
        echo_json(_document(catalogue, offers, purchases))
    elif not offers and not purchases:
        raise click.ClickException("the catalogue has no such price")
    else:
        echo_lines(_lines(catalogue, offers, purchases))


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def update(config: str | None, *, place: str, sha256: str | None, as_json: bool) -> None:
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
    folder = catalogue_folder(LoadedConfig(config).store_path)
    try:
        catalogue = folder.install(content, time.time_ns())
    except ValueError as error:
        raise bad_input(f"--from: {outside_text(str(error))}; nothing is installed") from error
    except OSError as error:
        raise bad_input(f"{error.filename}: cannot be written ({error.strerror})") from error
    offers = sum(1 for _ in catalogue.offers)
    if as_json:
        version = catalogue.version.isoformat()
        echo_json({"version": version, "prices": offers, "sha256": found})
        return
    echo(f"installed the catalogue of {catalogue.version}: {counted(offers, 'offer')}")
    echo("a running daemon uses it after a reload: systemctl reload costprobe")


def _api_lines(prices: Sequence[HostedPrice]) -> Iterator[str]:
    yield f"{counted(len(prices), 'hosted model')}, list prices per million tokens"
    rows = [
        (
            price.model,
            *(
                "" if amount is None else f"{amount:f} {price.currency}"
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


def _lines(
    catalogue: Catalogue, offers: Sequence[Offer], purchases: Sequence[Purchase]
) -> Iterator[str]:
    yield f"catalogue of {catalogue.version}: {counted(len(offers), 'offer')}"
    if offers:
        yield from table_lines([_HEADER, *map(_cells, offers)], _FIRST_NUMBER)
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
    prices = (
        offer.on_demand_per_h,
        offer.reserved_1y_per_h,
        offer.reserved_3y_per_h,
        offer.spot_per_h,
    )
    return (
        offer.cloud,
        offer.instance,
        offer.region,
        f"{gpus}{offer.gpu_model}" if offer.gpu_model else f"{offer.vcpu} vCPU",
        *("" if price is None else f"{price:.6g} {offer.currency}" for price in prices),
        (offer.as_of or "undated") + ("*" if offer.doubt else ""),
    )
