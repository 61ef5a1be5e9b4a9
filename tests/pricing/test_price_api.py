"""Price lists of clouds, served by scripted servers in their documented shapes."""

import json
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from costprobe.adapters.clouds.source import SourceError
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.pricing.catalogue import OFFER_COLUMNS
from costprobe.pricing.plans import ListPlan, SpotPlan
from costprobe.pricing.prices import RETRY_S, Feeds, read_output
from fakes.cases import check_all
from fakes.clock import FakeClock
from fakes.inference_server import InferenceServer
from pydantic import ValidationError

NC24 = "Standard_NC24ads_A100_v4"
KEY = "AIzaSyA-a-secret-key-of-google"


# What the lists have around their prices.
SHAPES = json.loads(Path(__file__).with_name("price_list_shapes.json").read_text())


def item(price, product="Virtual Machines NCads A100 v4 Series", sku="NC24ads A100 v4", **more):
    names = {"meterName": sku, "productName": product, "skuName": sku}
    return {**SHAPES["azure item"], "retailPrice": price, "unitPrice": price, **names, **more}


def page(*items, more=None):
    return {**SHAPES["azure page"], "Items": items, "NextPageLink": more, "Count": len(items)}


def azure(url, kind=ListPlan, **keys):
    plan = {"plan": "spot" if kind is SpotPlan else "list", "api": "azure", "url": url}
    return kind.model_validate({**plan, "instance": NC24, "region": "westeurope", **keys})


def outcome(plan):
    """What a price list says for a plan: the price, or its error."""
    try:
        return read_output(plan)
    except SourceError as error:
        return str(error)


def said(plan_of, document, status=200):
    """What a price list with one document says for a plan of its URL."""
    with InferenceServer(lambda call: call.json(document, status)) as server:
        return outcome(plan_of(server.url))


ITEMS = (
    item(4.775, armSkuName=NC24.lower()),
    item(7.0, product="NCads A100 v4 Series Cloud Services"),
    item(7.1, product="NCads A100 v4 Series CloudServices"),
    item(4.1, effectiveStartDate="2999-01-01T00:00:00Z"),
    item(5.2, effectiveStartDate="2023-01-01T00:00:00Z", effectiveEndDate="2024-01-01T00:00:00Z"),
    item(8.0, product="Virtual Machines NCads A100 v4 Series Windows"),
    item(1.2, sku="NC24ads A100 v4 Spot"),
    item(0.9, sku="NC24ads A100 v4 Low Priority"),
    item(20000.0, type="Reservation", reservationTerm="1 Year"),
    item(3.0, armSkuName="Standard_NC48ads_A100_v4"),
)


def test_azure_lists_on_demand_and_spot_prices_among_other_products():
    with InferenceServer(lambda call: call.json(page(*ITEMS))) as server:
        assert read_output(azure(server.url)) == "4.775"
        assert read_output(azure(server.url, SpotPlan)) == "1.2"
        query = parse_qs(urlsplit(server.calls[0].path).query)
    (wanted,) = query["$filter"]
    assert wanted == (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and"
        f" armRegionName eq 'westeurope' and armSkuName eq '{NC24}'"
    )
    assert query["currencyCode"] == ["'USD'"]


def test_azure_pages_are_followed_on_the_same_host_only():
    with InferenceServer(
        lambda call: call.json(
            page(ITEMS[0])
            if "skip=1" in call.path
            else page(ITEMS[1], more=f"{server.url}/?skip=1")
        )
    ) as server:
        assert read_output(azure(server.url)) == "4.775"
    elsewhere = page(ITEMS[1], more="http://169.254.169.254/")
    assert "next page is on another host" in said(azure, elsewhere)


def test_unusable_price_list_is_a_fault_of_the_source():
    def is_refused(document, problem):
        text = said(azure, document)
        assert text.startswith("price list azure: ")
        assert problem in text

    cases = [
        (page(), f"has no price of {NC24} in westeurope"),
        (page(item(1.0), item(2.0)), "has several prices"),
        (page(item(0.0)), "costs 0 in it; set the price that you pay"),
        (page(item(1.0, currencyCode="EUR")), "its prices are in EUR, the plan in USD"),
        (page(item(20001.0)), "above 10000"),
        (page(item(-1.0)), "not a number"),
        (page(item("NaN")), "not a number"),
        ({"error": {"code": "429"}}, "not as documented"),
        ([], "not a JSON object"),
    ]
    check_all(is_refused, cases)


def sku(name, *nanos, units="0", usage="h", currency="USD", since="2020-08-05T01:48:54.819Z"):
    prices = ({"currencyCode": currency, "units": units, "nanos": n} for n in nanos)
    rates = [{"startUsageAmount": n, "unitPrice": price} for n, price in enumerate(prices)]
    expression = {"usageUnit": usage, "displayQuantity": 1, "tieredRates": rates}
    pricing = [{"effectiveTime": since, "pricingExpression": expression}]
    return {**SHAPES["google SKU"], "skuId": name, "pricingInfo": pricing}


def google(url, key_file, skus):
    return ListPlan.model_validate(
        {"plan": "list", "api": "gcp", "url": url, "key": f"file:{key_file}", "skus": skus}
    )


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "google.key"
    file.write_text(KEY)
    file.chmod(0o600)
    return file


def test_google_skus_are_added_up_over_the_pages_with_the_key_in_a_header(key_file):
    pages = {
        None: {"skus": [sku("AAAA-1", 24_988_000), sku("ZZZZ-9", 1)], "nextPageToken": "two"},
        "two": {"skus": [sku("BBBB-2", 2_928_000, usage="GiBy.h"), sku("CCCC-3", 560_000_000)]},
    }

    def answer(call):
        token = parse_qs(urlsplit(call.path).query).get("pageToken", [None])[0]
        call.json(pages[token], 200 if call.headers.get("X-Goog-Api-Key") == KEY else 403)

    with InferenceServer(answer) as server:
        plan = google(server.url, key_file, {"AAAA-1": 4, "BBBB-2": 16, "CCCC-3": 1})
        # 4 x 0.024988 + 16 x 0.002928 + 0.56
        assert Decimal(read_output(plan)) == Decimal("0.7068")
        assert not any(KEY in call.path for call in server.calls)
        with pytest.raises(SourceError, match="has no SKU DDDD-4"):
            read_output(google(server.url, key_file, {"AAAA-1": 4, "DDDD-4": 1}))


def test_google_price_is_that_in_force_beyond_a_free_part_of_the_usage(key_file):
    future = sku("A", 9, since="2999-01-01T00:00:00Z")["pricingInfo"]
    past = sku("A", 8, since="2019-01-01T00:00:00Z")["pricingInfo"]
    timeline = sku("A", 0, 500_000_000)
    timeline["pricingInfo"] = [*past, *timeline["pricingInfo"], *future]
    for document, wanted in (
        (timeline, "0.5"),
        (sku("A", 0), "SKU A costs 0 in it"),
        (sku("A", 3, 2), "several prices of SKU A"),
        (sku("A", 3, since="2999-01-01T00:00:00Z"), "has no price of SKU A"),
    ):
        found = said(partial(google, key_file=key_file, skus={"A": 1}), {"skus": [document]})
        assert wanted in found


def test_google_errors_do_not_contain_the_key(key_file):
    plan_of = partial(google, key_file=key_file, skus={"A": 1})
    for document, status, words in (
        ({"error": {"message": f"API key {KEY} is not valid"}}, 403, "HTTP 403"),
        ({"skus": [sku("A", 1, currency="EUR")]}, 200, "no price in USD"),
        ({"skus": [sku("A", 1, usage="By")]}, 200, "not priced by the hour"),
    ):
        found = said(plan_of, document, status)
        assert words in found
        assert KEY not in found
    key_file.unlink()
    with pytest.raises(SourceError, match=r"google\.key"):
        read_output(google("http://127.0.0.1:1", key_file, {"A": 1}))


def test_table_of_the_catalogue_at_a_url_or_in_a_file(tmp_path):
    table = (
        f"# costprobe price catalogue, version 2026-11-23\n{','.join(OFFER_COLUMNS)}\n"
        "us,gpu-8,zone-1,NVIDIA H200,8,141,,,USD,20,,,7.5,2026-11,,our contract\n"
        "us,gpu-8,all,NVIDIA H200,8,141,,,USD,24,,,,2026-11,,our contract\n"
    )
    keys = {"api": "catalogue", "instance": "gpu-8"}
    with InferenceServer(lambda call: call.whole(table.encode())) as server:
        for plan, wanted in (
            (ListPlan(plan="list", url=server.url, region="zone-1", **keys), "20"),
            (ListPlan(plan="list", url=server.url, region="zone-2", **keys), "24"),
            (SpotPlan(plan="spot", url=server.url, region="zone-1", **keys), "7.5"),
        ):
            assert read_output(plan) == wanted
    file = tmp_path / "prices.csv"
    file.write_text(table)
    assert read_output(ListPlan(plan="list", file=file, region="zone-1", **keys)) == "20"
    file.write_text("<html>")
    with pytest.raises(SourceError, match=r"prices\.csv: its first line"):
        read_output(ListPlan(plan="list", file=file, region="zone-1", **keys))


def product(price, currency="USD", since="2024-11-01T00:00:00Z"):
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: price}, "description": "per On Demand"}
    term = {"effectiveDate": since, "priceDimensions": {"S.J.6YS": dimension}}
    terms = {"OnDemand": {"S.JRTCKXETXF": term}}
    return json.dumps({**SHAPES["AWS product"], "terms": terms})


def test_aws_price_list_query_is_read_from_a_command():
    def values(*products, **keys):
        output = json.dumps({"FormatVersion": "aws_v1", "PriceList": products})
        plan = ListPlan(plan="list", command=(sys.executable, "-c", f"print({output!r})"), **keys)
        feeds = Feeds([plan], None, MemoryLedger(), FakeClock(), lambda _: None)
        feeds.prices["list"].refresh()
        status = feeds.prices["list"].status()
        return status["price_per_h"], status["last_error"]

    # Reserved capacity costs 0 beside the price on demand.
    assert values(product("55.0400000000"), product("0.0000000000")) == ("55.0400000000", None)
    assert "costs 0 in it" in values(product("0.0000000000"))[1]
    assert values(product("1"), product("2", since="2999-01-01T00:00:00Z"))[0] == "1"
    assert "several prices" in values(product("1"), product("2"))[1]
    assert "not in EUR" in values(product("1"), currency="EUR")[1]
    assert "has no price" in values()[1]


def aws_map(*offers, location="EU (Frankfurt)"):
    """The price map of a region, with the attributes that AWS's own page of prices reads."""
    entries = {
        f"{kind.replace('.', ' ')} {location} {system} {price}": {
            **SHAPES["AWS map entry"],
            "price": price,
            "Location": location,
            "Instance Type": kind,
            "plc:OperatingSystem": system,
            "Operating System": system,
            "Pre Installed S/W": ([*software, "NA"])[0],
        }
        for kind, system, price, *software in offers
    }
    return {"manifest": {"serviceId": "ec2"}, "regions": {location: entries}}


def test_aws_price_map_of_a_region():
    plan = {"plan": "list", "api": "aws", "instance": "p5.48xlarge", "region": "eu-central-1"}
    one = (
        ("p5.48xlarge", "Linux", "68.8000000000"),
        ("p5.48xlarge", "RHEL", "71"),
        ("p5.48xlarge", "Linux", "80", "SQL Ent"),
        ("p5.4xlarge", "Linux", "8.6"),
    )
    for document, wanted in (
        (aws_map(*one), "68.8000000000"),
        (aws_map(*one, ("p5.48xlarge", "Linux", "70")), "several prices"),
        (aws_map(*one[3:]), "has no price of p5.48xlarge in eu-central-1"),
        (aws_map(*one, location="US East (Ohio)"), "has no list of eu-central-1"),
        (aws_map(("p5.48xlarge", "Linux", "free")), "not a number"),
        ({"regions": []}, "not as documented"),
        (["page"], "not a JSON object"),
    ):
        with InferenceServer(lambda call, answer=document: call.json(answer)) as server:
            assert wanted in outcome(ListPlan.model_validate({**plan, "url": server.url}))
            assert server.calls[0].path == "/EU%20(Frankfurt)/Linux/index.json"
    for kind, keys, problem in (
        (ListPlan, {"region": "frankfurt"}, "is no region of AWS"),
        (ListPlan, {"currency": "EUR"}, "has prices in USD"),
        (ListPlan, {"instance": None}, "needs instance"),
        (SpotPlan, {"plan": "spot"}, "describe-spot-price-history"),
    ):
        with pytest.raises(ValidationError, match=problem):
            kind.model_validate({**plan, **keys})


def test_failed_list_price_is_read_again_before_the_next_day():
    clock, statuses = FakeClock(), [503, 503, 200, 200]
    with InferenceServer(
        lambda call: call.json(page(ITEMS[0]), statuses[len(server.calls) - 1])
    ) as server:
        feeds = Feeds([azure(server.url)], None, MemoryLedger(), clock, lambda _: None)
        feeds.prices["list"].retry()
        assert not server.calls  # nothing failed yet
        feeds.prices["list"].refresh()
        feeds.prices["list"].retry()
        assert len(server.calls) == 1  # not at once
        for wait_s, calls in ((RETRY_S, 2), (2 * RETRY_S, 3), (86_400, 3)):
            clock.move(wait_s)
            feeds.prices["list"].retry()
            assert len(server.calls) == calls
    assert feeds.prices["list"].status()["price_per_h"] == "4.775"


def test_keys_of_a_price_list_are_checked_against_each_other():
    for keys, problem in (
        ({"api": "azure", "region": "eastus"}, "needs instance"),
        ({"api": "gcp"}, "needs skus and key"),
        ({"api": "catalogue", "instance": "a", "region": "b"}, "give url or file"),
        ({"api": "azure", "instance": "a", "region": "b", "file": "c"}, "remove file"),
        ({"file": "c", "region": "b"}, "add api"),
        ({"api": "azure", "instance": "a' or 1 eq 1", "region": "b"}, "without quotation marks"),
        ({}, "give one of file, command, url and api"),
    ):
        with pytest.raises(ValidationError, match=problem):
            ListPlan.model_validate({"plan": "list", **keys})
