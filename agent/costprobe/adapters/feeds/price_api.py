"""Requesting the current price of an instance from a cloud's price list."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from costprobe.adapters.system.secret_file import read_secret
from costprobe.domain.pricing.aws_locations import AWS_LOCATIONS
from costprobe.domain.pricing.price_lists import (
    PriceQuery,
    aws_prices,
    azure_prices,
    gcp_prices,
    only_price,
)

# Read by AWS's own page of prices, without a key; the documented list of a region is above 1 GB.
AWS_URL: Final = "https://b0.p.awsstatic.com/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel"
AZURE_URL: Final = "https://prices.azure.com/api/retail/prices"
# Google Compute Engine among Google's services.
GCP_URL: Final = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
_GCP_FIELDS: Final = (
    "skus(skuId,pricingInfo/pricingExpression(usageUnit,tieredRates)),nextPageToken"
)
_GCP_PAGE_SKUS: Final = 1000
_PAGES_MAX: Final = 100
# Its list has some thirty pages, and no filter.
_GCP_MORE_TIMES: Final = 4

# Returns the body of a URL, requested with further headers.
Get = Callable[[str, Mapping[str, str], float], str]


def api_price(query: PriceQuery, get: Get, timeout_s: float) -> Decimal:
    """Return a current price, in the currency of the query per hour.

    Args:
        query: The price that is wanted.
        get: Sends a request within s.
        timeout_s: Time limit of all requests together in s; of the many pages of Google's list a
            multiple.

    Raises:
        ValueError: The response is not as documented, or has no such price or several.
    """
    end_s = time.monotonic() + timeout_s
    instance, region = query.instance, query.region
    if query.api == "gcp":
        return _gcp_price(query, get, end_s + _GCP_MORE_TIMES * timeout_s)
    found: list[Decimal] = []
    if query.api == "aws":
        place = quote(AWS_LOCATIONS[region], safe="()")
        text = get(f"{query.url or AWS_URL}/{place}/Linux/index.json", {}, timeout_s)
        found = aws_prices(text, instance, region)
    else:
        host, url = urlsplit(query.url or AZURE_URL).netloc, _azure_url(query)
        for _ in range(_PAGES_MAX):
            text = get(url, {}, _left_s(end_s))
            prices, url = azure_prices(
                text, instance, region, query.currency, is_spot=query.is_spot
            )
            found += prices
            if not url:
                break
            if urlsplit(url).netloc != host:
                raise ValueError("its next page is on another host")
    return only_price(found, f"{instance} in {region}")


def _azure_url(query: PriceQuery) -> str:
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


def _gcp_price(query: PriceQuery, get: Get, end_s: float) -> Decimal:
    if query.key_file is None:
        raise ValueError("no key_file")
    # In a header: a key in the URL would be in the logs of proxies.
    headers = {"X-Goog-Api-Key": read_secret(query.key_file, "API key")}
    found: dict[str, Decimal] = {}
    parameters = {
        "currencyCode": query.currency,
        "pageSize": str(_GCP_PAGE_SKUS),
        "fields": _GCP_FIELDS,
    }
    for _ in range(_PAGES_MAX):
        text = get(f"{query.url or GCP_URL}?{urlencode(parameters)}", headers, _left_s(end_s))
        prices, token = gcp_prices(text, query.skus, query.currency)
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
