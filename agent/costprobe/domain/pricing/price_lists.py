"""Queries of clouds' price lists, and the prices in their responses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from costprobe.core.bounded import UnusableInputError, bounded_json
from costprobe.core.units import MONTH_H
from costprobe.domain.pricing.aws_locations import AWS_LOCATIONS

# A higher price of an instance per hour is an error of its unit.
LARGEST_PER_H = Decimal(10_000)
_NANO = Decimal("1e-9")
# Units of Google's SKUs, and their hours.
_GCP_UNITS = {"h": 1, "GiBy.h": 1, "GiBy.mo": MONTH_H}


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """A price to look up in a cloud's price list.

    Attributes:
        api: The price list.
        currency: ISO 4217 code.
        instance: Instance type in the price list; empty for "gcp".
        region: Region in the price list; empty for "gcp".
        url: Address of the price list; None for the cloud's own.
        is_spot: Whether the spot price is wanted, not that on demand.
        skus: Numbers of SKUs, by their identifiers, whose prices are added ("gcp").
        key_file: File with the API key ("gcp").
    """

    api: Literal["aws", "azure", "gcp"]
    currency: str
    instance: str = ""
    region: str = ""
    url: str | None = None
    is_spot: bool = False
    skus: Mapping[str, Decimal] = field(default_factory=dict)
    key_file: Path | None = None


def aws_prices(text: str, instance: str, region: str) -> list[Decimal]:
    """Return the prices in USD of an instance with Linux on demand, in AWS's price map of a region.

    Source: the JSON that AWS's page "Amazon EC2 On-Demand Pricing" reads.

    Raises:
        ValueError: It is no such map.
    """
    offers = _values(_values_of(_object(text), "regions").get(AWS_LOCATIONS[region]))
    if not offers:
        raise ValueError(f"has no list of {region}")
    return [
        _price(offer.get("price"))
        for offer in offers
        if offer.get("Instance Type") == instance and offer.get("Operating System") == "Linux"
    ]


def azure_prices(
    text: str, instance: str, region: str, currency: str, *, is_spot: bool
) -> tuple[list[Decimal], str]:
    """Return the prices of an instance in a response of Azure's Retail Prices API.

    Source: Microsoft, "Azure Retail Prices". Prices of Windows, of dedicated hosts, of Cloud
    Services and of the retired low-priority virtual machines are skipped.

    Returns:
        Currency per hour, and the URL of the next page; empty after the last.

    Raises:
        ValueError: It is no such response, or in another currency.
    """
    document = _object(text)
    prices = []
    for item in _objects(document, "Items"):
        kinds = f"{item.get('productName')} {item.get('skuName')} {item.get('meterName')}"
        skipped = any(
            word in kinds for word in ("Windows", "Dedicated", "CloudServices", "Low Priority")
        )
        if (
            skipped
            or item.get("armSkuName") != instance
            or item.get("armRegionName") != region
            or item.get("type") != "Consumption"
            or item.get("unitOfMeasure") != "1 Hour"
            or ("Spot" in kinds) is not is_spot
        ):
            continue
        if item.get("currencyCode") != currency:
            raise ValueError(
                f"its prices are in {item.get('currencyCode')}, the plan in {currency}"
            )
        prices.append(_price(item.get("retailPrice")))
    return prices, str(document.get("NextPageLink") or "")


def gcp_prices(text: str, skus: Collection[str], currency: str) -> tuple[dict[str, Decimal], str]:
    """Return the prices of SKUs in a page of Google's Cloud Billing Catalog.

    Source: Google, "Cloud Billing API: services.skus.list". A price is the sum of units and nanos
    of the first tier; a price per month is divided by 730 h.

    Returns:
        Currency per hour by SKU, and the token of the next page; empty after the last.

    Raises:
        ValueError: It is no such page, in another currency, or a unit is no time.
    """
    document = _object(text)
    prices = {}
    for sku in _objects(document, "skus"):
        name = sku.get("skuId")
        if name not in skus:
            continue
        (pricing,) = _objects(sku, "pricingInfo")[-1:] or ({},)
        expression = pricing.get("pricingExpression")
        if not isinstance(expression, dict) or expression.get("usageUnit") not in _GCP_UNITS:
            raise ValueError(f"SKU {name} is not priced by the hour or the month")
        (tier,) = _objects(expression, "tieredRates")[:1] or ({},)
        unit = tier.get("unitPrice")
        if not isinstance(unit, dict) or unit.get("currencyCode") != currency:
            raise ValueError(f"SKU {name} has no price in {currency}, the plan's currency")
        amount = _price(unit.get("units", 0)) + _NANO * _number(unit.get("nanos", 0))
        prices[str(name)] = amount / _GCP_UNITS[str(expression["usageUnit"])]
    return prices, str(document.get("nextPageToken") or "")


def aws_price_list(document: Mapping[str, Any], currency: str | None) -> Iterator[Decimal]:
    """Yield the on-demand prices in the output of `aws pricing get-products`.

    Source: AWS, "Price List Query API: GetProducts". A product is an object, or its JSON as text.
    Prices of 0, of capacity that is reserved already, are skipped.

    Raises:
        ValueError: It is no such output, or has no price in the currency.
    """
    for entry in document["PriceList"]:
        product = _object(entry) if isinstance(entry, str) else entry
        for term in _values(_values_of(product, "terms").get("OnDemand")):
            for dimension in _values(term.get("priceDimensions")):
                per_unit = dimension.get("pricePerUnit")
                if dimension.get("unit") != "Hrs" or not isinstance(per_unit, dict):
                    continue
                if currency is not None and currency not in per_unit:
                    raise ValueError(f"its prices are not in {currency}, the plan's currency")
                price = _price(per_unit[currency or next(iter(per_unit))])
                if price:
                    yield price


def only_price(prices: Collection[Decimal], words: str) -> Decimal:
    """Return the price that all of them are.

    Raises:
        ValueError: There is none, or there are several.
    """
    different = sorted(set(prices))
    if not different:
        raise ValueError(f"has no price of {words}; check its spelling in the cloud's price list")
    if len(different) > 1:
        shown = ", ".join(f"{price:f}" for price in different[:5])
        raise ValueError(f"has several prices of {words} ({shown}); narrow the selection")
    return different[0]


def _object(text: str) -> dict[str, Any]:
    try:
        document = bounded_json(text, parse_number=Decimal)
    except UnusableInputError as error:
        raise ValueError(f"{error}") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - content of the response
    return document


def _objects(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    values = document.get(key)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"has no list {key}")
    return values


def _values_of(document: object, key: str) -> dict[str, Any]:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _values(document: object) -> list[dict[str, Any]]:
    """Return the objects in an object."""
    values = document.values() if isinstance(document, dict) else ()
    return [value for value in values if isinstance(value, dict)]


def _number(value: object) -> Decimal:
    try:
        number = value if isinstance(value, Decimal) else Decimal(str(value))
    except ArithmeticError:
        raise ValueError("a price is not a number") from None
    if not number.is_finite() or number < 0:
        raise ValueError("a price is not a number")
    return number


def _price(value: object) -> Decimal:
    price = _number(value)
    if price > LARGEST_PER_H:
        raise ValueError(f"a price is above {LARGEST_PER_H} an hour")
    return price
