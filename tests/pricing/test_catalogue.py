"""The catalogue of list prices: its sanity, the names of drivers, and the prices it leads to."""

import gc
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from costprobe import pricing
from costprobe.core.records import Device, Instance
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.catalogue import OFFER_COLUMNS, Offer, parse_offers
from costprobe.pricing.catalogue_files import CatalogueFolder, packaged
from fakes.cases import check_all
from record.record_files import check_outcomes

PRICES = Path(pricing.__path__[0]) / "data/prices.csv"
HEAD = "# costprobe price catalogue, version 2026-11-23\n" + ",".join(OFFER_COLUMNS) + "\n"
ROW = "aws,p5.48xlarge,us-east-1,NVIDIA H100 80GB HBM3,8,80,192,2048,USD,55.04,,,20,2026-07,,a page"


def gpu(model, memory_gb=None):
    return Device("gpu0", "gpu", "u", model, None if memory_gb is None else memory_gb << 30)


@cache
def parsed():
    """Return the packaged catalogue for many questions."""
    return replace(packaged(), offers=tuple(packaged().offers))


def rate_of(device, instance=None, sharing=1):
    return AssumedPrices(lambda _: parsed(), 4, instance).rate(device, sharing, 0)


def test_packaged_tables_are_sane():
    # Ranges, dates and duplicates are checked when they are parsed.
    parse_offers(PRICES.read_text())
    gpus, offers = packaged().gpus.gpus, packaged().offers
    models = {gpu.model for gpu in gpus}
    assert len(models) == len(gpus)
    assert {one.gpu_model for one in (*offers, *packaged().purchases)} - models == {""}
    assert min(offer.as_of for offer in offers) >= "2026-01"
    clouds = {"aws", "azure", "gcp", "oci", "lambda", "runpod", "coreweave"}
    assert clouds <= {offer.cloud for offer in offers}


def test_known_prices_keep_no_parsed_table_in_memory(tmp_path):
    (tmp_path / "prices-5.csv").write_text(PRICES.read_text().replace("version 20", "version 21"))
    packaged.cache_clear()
    before = sum(type(kept) is Offer for kept in gc.get_objects())
    assumed = AssumedPrices(CatalogueFolder(tmp_path).at, 4)
    first = assumed.rate(gpu("NVIDIA H100 80GB HBM3"), 1, 10**10)
    assert assumed.rate(gpu("NVIDIA H100 80GB HBM3"), 1, 10**10) is first
    assert sum(type(kept) is Offer for kept in gc.get_objects()) == before


def test_price_of_one_gpu_is_within_a_factor_of_three_of_its_neighbours_in_one_cloud():
    # A count or a price that is wrong by the number of GPUs stands out among instances of a model.
    groups = {}
    for offer in packaged().offers:
        if offer.gpu_count and offer.gpu_count >= 1 and offer.on_demand_per_h:
            groups.setdefault((offer.cloud, offer.gpu_model, offer.region), []).append(offer)
    bad = {}
    for key, offers in groups.items():
        each = [offer.on_demand_per_h / offer.gpu_count for offer in offers]
        # A single T4, L4, A10G or T4G with up to 64 vCPUs costs mostly these.
        is_small = key[1].split()[-1] in {"T4", "L4", "A10G", "T4G", "L40S"}
        limit = 9 if is_small else 3
        if max(each) > limit * min(each):
            bad[key] = each
    assert not bad


def test_unusable_table_is_refused_with_its_line():
    def is_refused(was, becomes, problem):
        with pytest.raises(ValueError, match=problem):
            parse_offers((HEAD + ROW + "\n").replace(was, becomes))

    cases = [
        ("version 2026", "of 2026", "its first line is not"),
        ("cloud,instance", "instance,cloud", "its header is not"),
        (ROW, f"{ROW}\n{ROW}", "occurs twice"),
        (",55.04,", ",5504,", "line 3: on_demand_per_h: 5504 is not from"),
        (",55.04,", ",nan,", "is not from"),
        (",55.04,,", ",55.04,60,", "a commitment costs more"),
        ("2026-07", "2027-01", "is after the version"),
        ("2026-07", "July", "is not a date"),
        ("USD", "usd", "ISO 4217"),
        ("a page", "", "source: is empty"),
        ("a page", "a\x1b[2Jpage", "unprintable"),
        (",a page", "", "has 15 cells"),
        (ROW, "", "has no row"),
    ]
    check_all(is_refused, cases)


def test_driver_names_lead_to_the_model_with_their_form_factor_and_memory():
    """GPUs on sale or in use in 2026, as drivers name them; all but laptop GPUs and vGPU profiles."""
    missing = []

    def model_of(text):
        name, _, memory = text.partition(", ")
        memory_gb = int(memory.removesuffix(" GB")) if memory else None
        models = packaged().gpus.models_of(name, memory_gb and memory_gb << 30)
        rate = rate_of(gpu(name, memory_gb))
        is_priced = rate.low_per_hour and rate.low_per_hour <= rate.per_hour <= rate.high_per_hour
        missing.extend([text] if models and not is_priced else [])
        return models[0].model if models else None

    check_outcomes("gpu_names.json", model_of)
    assert missing == []
    # The peaks of a whole board are not those of its part.
    names = packaged().gpus
    assert names.named("AMD Instinct MI300X VF", 192 << 30).flop_per_s["bf16"] == 1307.4e12
    assert names.named("AMD Instinct MI300X XCP CPX/NPS4", 24 << 30) is None


def test_unknown_gpu_has_the_price_of_its_memory_or_a_placeholder():
    similar = rate_of(gpu("NVIDIA Neptune 80", 80))
    assert "GPUs of similar memory" in similar.source
    assert similar.low_per_hour < similar.per_hour < similar.high_per_hour
    unknown = rate_of(gpu("NVIDIA T400"))
    assert (unknown.per_hour, unknown.low_per_hour) == (1, None)


def test_cpu_costs_its_vcpus_without_accelerators():
    rate = rate_of(Device("cpu", "cpu", "cpu", "a CPU"), sharing=0)
    assert Decimal("0.1") < rate.per_hour < Decimal("0.4")
    assert rate.source.startswith("4 vCPU")


def test_known_instance_has_its_list_price_and_any_other_a_range():
    h100 = gpu("NVIDIA H100 80GB HBM3")
    listed = rate_of(h100, Instance("aws", "p5.48xlarge", "us-east-1", "on_demand"), 8)
    assert (listed.plan, listed.per_hour, listed.low_per_hour) == ("list", Decimal("6.88"), None)
    assert listed.source.startswith(
        "p5.48xlarge in us-east-1: 55.04 USD/h, AWS list price as of 2026-10-10"
    )
    cases = [
        (("aws", "p5.48xlarge", "eu-west-3"), "no list price of its region"),
        (("aws", "p5.48xlarge"), "region unknown"),
        (("coreweave", "HGX H100", "north-america", "spot"), "typical spot price"),
        (("aws", "p9.metal", "us-east-1"), "has no list price"),
        (("digitalocean",), "a host of DigitalOcean"),
    ]

    def is_assumed(instance, words):
        rate = rate_of(h100, Instance(*instance), 8)
        assert rate.plan == "assumed"
        assert words in rate.source

    check_all(is_assumed, cases)
