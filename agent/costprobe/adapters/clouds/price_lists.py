"""Current price of an instance from the price lists of AWS, Azure and Google: request and parsing.

One rule for all: the price in force of exactly the product that is meant. Several prices are an
error, and a price of 0 is none: it is of a part of the usage, or of what is paid elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

from pydantic import Field

from costprobe.adapters.clouds.regions import AWS_LOCATIONS
from costprobe.adapters.http.access import Key, one_form
from costprobe.core.config.fields import Currency, SourceConfig, matching
from costprobe.core.outside import bounded_json
from costprobe.core.records import NS_PER_S
from costprobe.core.units import MONTH_H

# Products of Azure with the name of an instance that are not the instance with Linux.
_AZURE_OTHERS: Final = ("windows", "dedicated", "cloudservices", "lowpriority")
# A higher price of an instance per hour is an error of its unit.
LARGEST_PER_H = Decimal(10_000)
_NANO = Decimal("1e-9")
# Units of Google's SKUs, and their hours.
_GCP_UNITS = {"h": 1, "GiBy.h": 1, "GiBy.mo": MONTH_H}
# Read by AWS's own page of prices, without a key; the documented list of a region is above 1 GB.
AWS_URL: Final = "https://b0.p.awsstatic.com/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel"
AZURE_URL: Final = "https://prices.azure.com/api/retail/prices"
# Google Compute Engine among Google's services.
GCP_URL: Final = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
_GCP_FIELDS: Final = (
    "skus(skuId,pricingInfo(effectiveTime,pricingExpression(usageUnit,tieredRates))),nextPageToken"
)
_GCP_PAGE_SKUS: Final = 1000
_PAGES_MAX: Final = 100
# Google's list has some thirty pages, and no filter.
_GCP_MORE_TIMES: Final = 4
# Returns the body of a URL, requested with further headers, within a time in s.
Get = Callable[[str, Mapping[str, str], float], str]


# No quotation mark: it would end the name in Azure's filter.
_IS_NAME = matching(
    r"[^'\r\n]+", "write a name as in the cloud's price list, without quotation marks"
)


class PriceListConfig(SourceConfig):
    """A price to look up in a cloud's price list.

    Attributes:
        plan: "spot" for the spot price, otherwise the price on demand is wanted.
        currency: ISO 4217 code.
    """

    removed: ClassVar = one_form("key")

    plan: str
    currency: Currency
    api: Literal["aws", "azure", "gcp", "catalogue"] | None = Field(
        None,
        description=(
            "Price list to read: aws (on demand, Linux), azure (retail prices), gcp (Cloud Billing"
            " Catalog), or catalogue (a table as of `costprobe price update`, at `url` or `file`)."
        ),
        examples=["azure"],
    )
    instance: Annotated[str, Field(max_length=100), _IS_NAME] | None = Field(
        None,
        description="Instance type in the price list (aws, azure, catalogue).",
        examples=["Standard_NC24ads_A100_v4"],
    )
    region: Annotated[str, Field(max_length=40), _IS_NAME] | None = Field(
        None,
        description="Region in the price list (aws, azure, catalogue).",
        examples=["westeurope"],
    )
    skus: dict[str, Annotated[Decimal, Field(gt=0, le=100_000)]] = Field(
        default_factory=dict,
        max_length=16,
        description=(
            "SKU identifiers of the instance's cores, memory and GPUs with their numbers, whose"
            " prices are added (gcp)."
        ),
        examples=[{"2E27-4F75-95CD": Decimal(4)}],
    )
    key: Key | None = Field(
        None,
        description="Location of the API key (gcp).",
        examples=["file:/etc/costprobe/google.key"],
    )


def api_price(query: PriceListConfig, get: Get, timeout_s: float, now_ns: int) -> Decimal:
    """Return a current price, in the currency of the query per hour.

    Args:
        query: The price that is wanted.
        get: Sends a request.
        timeout_s: Time limit of all requests together in s; of the many pages of Google's list a
            multiple.
        now_ns: UTC in ns since 1970, at which the price is in force.

    Raises:
        ValueError: The response is not as documented, or has no such price or several.
    """
    end_s = time.monotonic() + timeout_s
    instance, region = query.instance or "", query.region or ""
    found: list[Decimal] = []
    with _as_documented():
        if query.api == "gcp":
            return _gcp_price(query, get, end_s + _GCP_MORE_TIMES * timeout_s, now_ns)
        if query.api == "aws":
            place = quote(AWS_LOCATIONS[region], safe="()")
            text = get(f"{query.url or AWS_URL}/{place}/Linux/index.json", {}, timeout_s)
            return only_price(_aws_prices(text, instance, region), f"{instance} in {region}")
        host, url = urlsplit(query.url or AZURE_URL).netloc, _azure_url(query)
        for _ in range(_PAGES_MAX):
            text = get(url, {}, _left_s(end_s))
            prices, url = _azure_prices(text, query, now_ns)
            found += prices
            if not url:
                break
            if urlsplit(url).netloc != host:
                raise ValueError("its next page is on another host")
    return only_price(found, f"{instance} in {region}")


def _azure_url(query: PriceListConfig) -> str:
    wanted = (
        ("serviceName", "Virtual Machines"),
        ("priceType", "Consumption"),
        ("armRegionName", query.region),
        ("armSkuName", query.instance),
    )
    parameters = {
        "currencyCode": f"'{query.currency}'",
        "$filter": " and ".join(f"{name} eq '{value}'" for name, value in wanted),
    }
    return f"{query.url or AZURE_URL}?{urlencode(parameters)}"


def _gcp_price(query: PriceListConfig, get: Get, end_s: float, now_ns: int) -> Decimal:
    if query.key is None:
        raise ValueError("no key")
    # In a header: a key in the URL would be in the logs of proxies.
    headers = {"X-Goog-Api-Key": query.key.read()}
    found: dict[str, Decimal] = {}
    parameters = {
        "currencyCode": query.currency,
        "pageSize": str(_GCP_PAGE_SKUS),
        "fields": _GCP_FIELDS,
    }
    for _ in range(_PAGES_MAX):
        text = get(f"{query.url or GCP_URL}?{urlencode(parameters)}", headers, _left_s(end_s))
        prices, token = _gcp_prices(text, query.skus, query.currency, now_ns)
        found |= prices
        if len(found) == len(query.skus):
            return sum((count * found[sku] for sku, count in query.skus.items()), Decimal(0))
        if not token:
            break
        parameters["pageToken"] = token
    missing = sorted(set(query.skus) - set(found))
    raise ValueError(f"has no SKU {missing[0]}; check its spelling in Google's price list")


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise ValueError("took too long")
    return left_s


def _aws_prices(text: str, instance: str, region: str) -> list[Decimal]:
    """Return the prices in USD of an instance with Linux on demand, in AWS's price map of a region.

    Source: the JSON that AWS's page "Amazon EC2 On-Demand Pricing" reads.

    Raises:
        ValueError: It is no such map.
    """
    offers = _object(text)["regions"].get(AWS_LOCATIONS[region])
    if not offers:
        raise ValueError(f"has no list of {region}")
    return [
        _price(offer["price"])
        for offer in offers.values()
        if _same(offer.get("Instance Type"), instance)
        and offer.get("Operating System") == "Linux"
        and offer.get("Pre Installed S/W") in (None, "NA")
    ]


def _azure_prices(text: str, query: PriceListConfig, now_ns: int) -> tuple[list[Decimal], str]:
    """Return the prices in force of an instance in a response of Azure's Retail Prices API.

    Source: Microsoft, "Azure Retail Prices". Prices of Windows, of dedicated hosts, of Cloud
    Services and of the retired low-priority virtual machines are skipped. Azure writes the name of
    an instance in more than one case.

    Returns:
        Currency per hour, and the URL of the next page; empty after the last.

    Raises:
        ValueError: It is no such response, or in another currency.
    """
    document = _object(text)
    prices = []
    for item in document["Items"]:
        kinds = "".join(f"{item.get(key)}" for key in ("productName", "skuName", "meterName"))
        kind = "".join(kinds.split()).lower()
        if (
            not any(other in kind for other in _AZURE_OTHERS)
            and ("spot" in kind) is (query.plan == "spot")
            and _same(item.get("armSkuName"), query.instance)
            and _same(item.get("armRegionName"), query.region)
            and item.get("type") == "Consumption"
            and item.get("unitOfMeasure") == "1 Hour"
            and in_force([item], "effectiveStartDate", now_ns, "effectiveEndDate")
        ):
            currency = item.get("currencyCode")
            if currency != query.currency:
                raise ValueError(f"its prices are in {currency}, the plan in {query.currency}")
            prices.append(_price(item["retailPrice"]))
    return prices, str(document.get("NextPageLink") or "")


def in_force(
    entries: Iterable[dict[str, Any]], start_key: str, now_ns: int, end_key: str = ""
) -> list[dict[str, Any]]:
    """Return the entries of a product's timeline that apply: the last ones that have begun, if not ended.

    Args:
        entries: The entries; one without a start always applied.
        start_key: Key of the start: ISO 8601 in UTC, as all clouds write it.
        now_ns: UTC in ns since 1970.
        end_key: Key of the end.
    """
    now = f"{datetime.fromtimestamp(now_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
    current = [
        (str(entry.get(start_key) or ""), entry)
        for entry in entries
        if str(entry.get(start_key) or "") <= now < str(entry.get(end_key) or "9999")
    ]
    last = max((start for start, _ in current), default="")
    return [entry for start, entry in current if start == last]


def _gcp_prices(
    text: str, skus: Collection[str], currency: str, now_ns: int
) -> tuple[dict[str, Decimal], str]:
    """Return the prices in force of SKUs in a page of Google's Cloud Billing Catalog.

    Source: Google, "Cloud Billing API: services.skus.list". A price is the sum of units and nanos
    of the only tier that is not free; a price per month is divided by 730 h.

    Returns:
        Currency per hour by SKU, and the token of the next page; empty after the last.

    Raises:
        ValueError: It is no such page, in another currency, or a unit is no time.
    """
    document = _object(text)
    prices = {}
    for sku in document["skus"]:
        name = sku["skuId"]
        if name not in skus:
            continue
        rates = []
        for pricing in in_force(sku["pricingInfo"], "effectiveTime", now_ns):
            expression = pricing["pricingExpression"]
            hours = _GCP_UNITS.get(expression["usageUnit"])
            if hours is None:
                raise ValueError(f"SKU {name} is not priced by the hour or the month")
            for unit in (tier["unitPrice"] for tier in expression["tieredRates"]):
                if unit.get("currencyCode") != currency:
                    raise ValueError(f"SKU {name} has no price in {currency}, the plan's currency")
                nanos = _NANO * _number(unit.get("nanos", 0))
                rates.append((_price(unit.get("units", 0)) + nanos) / hours)
        prices[str(name)] = only_price(rates, f"SKU {name}")
    return prices, str(document.get("nextPageToken") or "")


def aws_price_list(document: Mapping[str, Any], currency: str | None, now_ns: int) -> list[Decimal]:
    """Return the on-demand prices in force in the output of `aws pricing get-products`.

    Source: AWS, "Price List Query API: GetProducts". A product is an object, or its JSON as text.

    Raises:
        ValueError: It is no such output, or has no price in the currency.
    """
    found = []
    with _as_documented():
        for entry in document["PriceList"]:
            product = _object(entry) if isinstance(entry, str) else entry
            on_demand = product["terms"].get("OnDemand", {}).values()
            for term in in_force(on_demand, "effectiveDate", now_ns):
                for dimension in term["priceDimensions"].values():
                    per_unit = dimension["pricePerUnit"]
                    if dimension["unit"] != "Hrs":
                        continue
                    if currency is not None and currency not in per_unit:
                        raise ValueError(f"its prices are not in {currency}, the plan's currency")
                    found.append(_price(per_unit[currency or next(iter(per_unit))]))
    return found


def only_price(prices: Collection[Decimal], words: str) -> Decimal:
    """Return the price that all of them are, besides 0: of a free part of the usage, or of reserved capacity.

    Raises:
        ValueError: There is none, there are several, or only 0.
    """
    different = sorted(set(prices) - {Decimal(0)})
    if not different and prices:
        raise ValueError(f'{words} costs 0 in it; set the price that you pay as plan = "on_demand"')
    if not different:
        raise ValueError(f"has no price of {words}; check its spelling in the cloud's price list")
    if len(different) > 1:
        shown = ", ".join(f"{price:f}" for price in different[:5])
        raise ValueError(f"has several prices of {words} ({shown}); narrow the selection")
    return different[0]


def _same(name: object, wanted: str | None) -> bool:
    """Return whether a name is the one that is wanted, in upper or lower case."""
    return f"{name}".lower() == f"{wanted}".lower()


def _object(text: str) -> dict[str, Any]:
    document = bounded_json(text, parse_number=Decimal)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - content of the response
    return document


@contextmanager
def _as_documented() -> Iterator[None]:
    """Give one error for what a document lacks."""
    try:
        yield
    except (AttributeError, LookupError, TypeError):
        raise ValueError("its content is not as documented") from None


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
