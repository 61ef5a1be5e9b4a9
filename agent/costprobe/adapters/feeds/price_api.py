"""Requesting the current price of an instance from a cloud's price list."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from costprobe.adapters.system.secret_file import read_secret
from costprobe.domain.pricing.aws_locations import AWS_LOCATIONS
from costprobe.domain.pricing.plans.feed import FeedPlan
from costprobe.domain.pricing.price_lists import (
    aws_prices,
    azure_prices,
    catalogue_prices,
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


def api_price(plan: FeedPlan, get: Get, timeout_s: float) -> Decimal:
    """Return the current price of a plan with `api`, in its currency per hour.

    Args:
        plan: The plan.
        get: Sends a request within s.
        timeout_s: Time limit of all requests together in s; of the many pages of Google's list a
            multiple.

    Raises:
        ValueError: The response is not as documented, or has no such price or several.
    """
    end_s = time.monotonic() + timeout_s
    instance, region = plan.instance or "", plan.region or ""
    is_spot = plan.plan == "spot"
    if plan.api == "gcp":
        return _gcp_price(plan, get, end_s + _GCP_MORE_TIMES * timeout_s)
    found: list[Decimal] = []
    if plan.api == "catalogue":
        text = get(str(plan.url), {}, timeout_s)
        found = catalogue_prices(text, instance, region, plan.currency, is_spot=is_spot)
    elif plan.api == "aws":
        place = quote(AWS_LOCATIONS[region], safe="()")
        text = get(f"{plan.url or AWS_URL}/{place}/Linux/index.json", {}, timeout_s)
        found = aws_prices(text, instance, region)
    else:
        host, url = urlsplit(plan.url or AZURE_URL).netloc, _azure_url(plan)
        for _ in range(_PAGES_MAX):
            text = get(url, {}, _left_s(end_s))
            prices, url = azure_prices(text, instance, region, plan.currency, is_spot=is_spot)
            found += prices
            if not url:
                break
            if urlsplit(url).netloc != host:
                raise ValueError("its next page is on another host")
    return only_price(found, f"{instance} in {region}")


def _azure_url(plan: FeedPlan) -> str:
    wanted = (
        ("serviceName", "Virtual Machines"),
        ("priceType", "Consumption"),
        ("armRegionName", plan.region),
        ("armSkuName", plan.instance),
    )
    query = {
        "currencyCode": f"'{plan.currency}'",
        "$filter": " and ".join(f"{name} eq '{value}'" for name, value in wanted),
    }
    return f"{plan.url or AZURE_URL}?{urlencode(query)}"


def _gcp_price(plan: FeedPlan, get: Get, end_s: float) -> Decimal:
    if plan.key_file is None:
        raise ValueError("no key_file")
    # In a header: a key in the URL would be in the logs of proxies.
    headers = {"X-Goog-Api-Key": read_secret(plan.key_file, "API key")}
    found: dict[str, Decimal] = {}
    query = {
        "currencyCode": plan.currency,
        "pageSize": str(_GCP_PAGE_SKUS),
        "fields": _GCP_FIELDS,
    }
    for _ in range(_PAGES_MAX):
        text = get(f"{plan.url or GCP_URL}?{urlencode(query)}", headers, _left_s(end_s))
        prices, token = gcp_prices(text, plan.skus, plan.currency)
        found |= prices
        if len(found) == len(plan.skus):
            return sum((count * found[sku] for sku, count in plan.skus.items()), Decimal(0))
        if not token:
            break
        query["pageToken"] = token
    missing = sorted(set(plan.skus) - set(found))
    raise ValueError(f"has no SKU {missing[0]}; check its spelling in Google's price list")


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise ValueError("took too long")
    return left_s
