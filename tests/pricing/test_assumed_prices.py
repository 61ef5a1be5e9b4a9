"""The prices of a host without a configured price: what is printed, written and reported."""

import time
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal

from costprobe.adapters.clouds.instance import InstanceDetector
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.adapters.store.write import Store
from costprobe.configuration import validated
from costprobe.core.records import Device, Instance
from costprobe.core.schema import make_point
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.book import PriceBook
from costprobe.pricing.catalogue_files import packaged
from costprobe.pricing.plans import OnDemandPlan
from costprobe.pricing.prices import HostPricing
from costprobe.probing.rows import terms_document
from costprobe.ui.cli.support.config_sample import host_sample
from costprobe.ui.cli.views.status_lines import hourly_costs, price_words
from costprobe.ui.host_overview import assumed_currencies
from fakes.clock import FakeClock
from fakes.command import called
from fakes.inference_server import InferenceServer

GPUS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(8)]
P5 = Instance("aws", "p5.48xlarge", "us-east-1", "on_demand")


def prices(instance=None):
    return AssumedPrices(lambda _: packaged(), 192, instance)


def host_pricing(folder, detector, ledger, clock, on_event):
    config = validated({}, folder / "costprobe.toml")
    path = folder / "store.db"
    return HostPricing(config.price, config.host, path, detector, ledger, clock, on_event=on_event)


def test_assumed_price_is_shown_with_its_range_and_a_list_price_without():
    shown = {
        name: price_words(terms_document(PriceBook([], None, GPUS, prices(at)).terms("gpu0", 0)))
        for name, at in (("assumed", None), ("list", P5))
    }
    assert shown["list"] == "list $6.88/h"
    assert "/h assumed, $2.40 to $14.38/h" in shown["assumed"]
    # Whoever configures a price for one device means none for the others.
    plan = OnDemandPlan(plan="on_demand", per_hour=1, device="gpu1")
    assert PriceBook([plan], None, GPUS, prices()).terms("gpu0", 0) is None


def test_config_init_writes_the_price_of_the_detected_instance():
    text = host_sample(GPUS, prices(P5), 0)
    comment = " ".join(text.replace("\n#", "").split())
    assert tomllib.loads(text, parse_float=Decimal)["price"][0]["per_hour"] == Decimal("55.04")
    assert "p5.48xlarge in us-east-1: 55.04 USD/h, AWS list price as of 2026-10-10" in comment
    assert "an assumption until you enter your own" not in text
    assert "an assumption until you enter your own" in host_sample(GPUS, prices(), 0)


def test_catalogue_older_than_six_months_is_reported_once(tmp_path):
    events, version = [], packaged().version
    midnight = datetime(version.year, version.month, version.day, tzinfo=UTC).timestamp()
    ledger = MemoryLedger()
    for days, reported in ((180, 0), (190, 1), (200, 1)):
        clock = FakeClock(int(midnight + days * 86_400) * 10**9)
        pricing = host_pricing(tmp_path, InstanceDetector(tmp_path), ledger, clock, events.append)
        ((_, _, check),) = pricing.jobs()
        check()
        assert len(events) == reported, days
    assert events[0].kind == "price"
    assert "older than six months" in events[0].title


def test_late_answer_of_the_metadata_service_changes_the_price(tmp_path):
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/product_name").write_text("Google Compute Engine\n")
    statuses = {
        "scheduling/preemptible": b"FALSE",
        "machine-type": b"p/a3-highgpu-8g",
        "zone": b"p/us-central1-a",
    }

    def answer(call):
        body = next(body for end, body in statuses.items() if call.path.endswith(end))
        call.whole(body, 200 if len(server.calls) > 1 else 503)

    with InferenceServer(answer) as server:
        detector = InstanceDetector(tmp_path, server.url, 5.0)
        pricing = host_pricing(tmp_path, detector, MemoryLedger(), FakeClock(), lambda _: None)
        book = PriceBook([], None, GPUS, pricing.assumed)
        assert book.terms("gpu0", 0).rate.plan == "assumed"
        {name: run for name, _, run in pricing.jobs()}["cloud instance"]()
        assert book.terms("gpu0", 0).rate.plan == "list"


def test_status_states_the_cost_an_hour_and_that_it_is_assumed(tmp_path):
    plan = {"plan": "on_demand", "per_hour": 1.5, "currency": "EUR", "device": "gpu0"}
    tariff = {"tariff_per_kwh": 0.3}
    raw = {"price": [{**plan, "electricity_included": False}], "electricity": tariff}
    mine = validated(raw, tmp_path / "costprobe.toml")

    def status(book):
        terms = {gpu.name: book.terms(gpu.name, 0) for gpu in GPUS}
        known = [{"device": name, **terms_document(one)} for name, one in terms.items() if one]
        return {"devices": GPUS, "prices": known}

    unpriced = status(PriceBook([], None, GPUS, prices()))
    assert hourly_costs(unpriced) == [
        "$31.9 an hour (assumed, $19.22 to $115.03/h; set [[price]])",
    ]
    assert assumed_currencies(unpriced) == {"USD"}
    own = status(PriceBook(mine.price, mine.electricity, GPUS))
    assert hourly_costs(own) == ["€1.50 an hour for gpu0, electricity not included"]
    assert hourly_costs({}) == []


def test_every_answer_with_a_cost_marks_an_assumed_price(tmp_path):
    now_ns = time.time_ns()
    run = {"host": "h", "device": "gpu0", "probe": "p"}
    priced = {**run, "basis": "probe", "plan": "assumed", "currency": "USD"}
    telemetry = {"host": "h", "device": "gpu0", "kind": "gpu", "currency": "USD"}
    path = tmp_path / "costprobe.toml"
    path.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n')
    with closing(Store.open(tmp_path / "costprobe.db", FakeClock(now_ns))) as store:
        for i in range(1, 61):
            at_ns = now_ns - i * 30 * 10**9
            latency = {"latency_p50_ms": 1.0, "throughput_per_s": 1000.0}
            store.append(
                [
                    make_point("probe", {**run, "batch": "1"}, latency, at_ns),
                    make_point("cost", priced, {"cost_per_inference": 1e-6}, at_ns),
                    make_point("device", telemetry, {"cost": 0.03, "util_pct": 50.0}, at_ns),
                ]
            )
        price = {"device": "gpu0", "plan": "assumed", "currency": "USD"}
        store.put_state("status", {"state": "stopped", "host": "h", "prices": [price]})
    for words in (("trend",), ("compare",), ("report", "--format", "md")):
        assert "assumed" in called(path, *words).output, words
