"""`costprobe savings` with the catalogue: commitments of the instance, and a server of one's own."""

import time
from functools import partial

import pytest
from costprobe.adapters.clouds.instance import InstanceDetector
from costprobe.core.records import Point
from costprobe.core.units import percent
from costprobe.pricing.prices import host_detector
from fakes.cli import Cli
from fakes.documents import checked
from fakes.inference_server import InferenceServer

HOUR_NS = 3600 * 10**9
GCP = {"machine-type": "p/g2-standard-4", "zone": "p/us-central1-a", "preemptible": "FALSE"}
AWS = {"token": "token", "document": '{"instanceType": "g4dn.8xlarge", "region": "us-east-1"}'}


def telemetry(model):
    """Eight days of a GPU at 40 %, with a row every five minutes."""
    end_ns = time.time_ns() // HOUR_NS * HOUR_NS - 10**9
    tags = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": model}
    for i in range(8 * 288):
        yield Point("device", tags, {"util_pct": 40.0, "power_w": 60.0}, end_ns - i * HOUR_NS // 12)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Runs `savings` on a host with a GPU, below DMI and metadata of a cloud."""

    def make(model, dmi=(), bodies=(), config=""):
        cli = Cli(tmp_path, f'[telemetry]\nevery = "30s"\n{config}')
        cli.append(telemetry(model))
        folder = tmp_path / "sys/class/dmi/id"
        folder.mkdir(parents=True)
        for name, text in dict(dmi).items():
            (folder / name).write_text(text)
        host_detector.cache_clear()
        answers = dict(bodies)

        def answer(call):
            body = next((text for end, text in answers.items() if call.path.endswith(end)), None)
            call.whole((body or "").encode(), 404 if body is None else 200)

        def run(*arguments, code=0):
            with InferenceServer(answer) as server:
                detector = partial(InstanceDetector, tmp_path, server.url, 5.0)
                monkeypatch.setattr("costprobe.pricing.prices.InstanceDetector", detector)
                return cli("savings", "--since", "9d", *arguments, code=code)

        return run

    yield make
    host_detector.cache_clear()


def supplies(text):
    (answer,) = checked("savings", text)
    return answer["now"], {one["plan"]: one for one in answer["supplies"]}


def test_server_of_15_000_usd_against_a_g4dn_8xlarge(host):
    run = host("Tesla T4", {"sys_vendor": "Amazon EC2", "product_name": "g4dn.8xlarge"}, AWS)
    now, found = supplies(run("--owned", "15000=3y", "--json"))
    # 2.176 USD an hour is 19,062 USD a year, and 15,000 USD over three years 5,000.
    assert (now["plan"], float(now["cost_per_month"]) * 12) == (
        "list",
        pytest.approx(19_062, abs=1),
    )
    owned = found["owned-15000"]
    assert float(owned["cost_per_month"]) * 12 == pytest.approx(5_000, abs=1)
    assert owned["break_even_share"] == pytest.approx(0.2623, abs=1e-4)
    assert owned["break_even_months"] == pytest.approx(15_000 / (19_061.76 / 12), abs=0.01)
    assert owned["break_even_low_share"] is None
    assert found["aws-1y"]["break_even_share"] == pytest.approx(1.371 / 2.176)


def test_commitments_of_the_instance_are_compared_without_typing_them(host):
    price = '[[price]]\nplan = "on_demand"\nper_hour = 0.706832\n'
    run = host("NVIDIA L4", {"product_name": "Google Compute Engine"}, GCP, price)
    _, found = supplies(run("--json"))
    assert set(found) == {"gcp-1y", "gcp-3y"}
    assert found["gcp-1y"]["break_even_share"] == pytest.approx(0.445304 / 0.706832)
    assert float(found["gcp-3y"]["cost_per_month"]) == pytest.approx(0.318075 * 730, abs=0.01)


def test_assumed_price_gives_the_break_even_a_range(host):
    run = host("NVIDIA A100 80GB PCIe")
    _, found = supplies(run("--owned", "15000=3y", "--json"))
    owned = found["owned-15000"]
    low, high = owned["break_even_low_share"], owned["break_even_high_share"]
    assert low < owned["break_even_share"] < high
    assert f"({percent(low)} to {percent(high)}) of the hours" in run("--owned", "15000=3y")


def test_lifetime_alone_takes_the_purchase_price_of_the_catalogue(host):
    run = host("Tesla T4", {"sys_vendor": "Amazon EC2", "product_name": "g4dn.8xlarge"}, AWS)
    _, found = supplies(run("--owned", "3y", "--json"))
    assert set(found) == {"aws-1y", "owned-2000"}


def test_unusable_server_is_an_error_with_its_fix(host):
    run = host("NVIDIA T400")
    for words, problem in (
        ("cheap=3y", "write PRICE=LIFETIME"),
        ("15000=soon", "is not a duration"),
        ("3y", "no purchase price of NVIDIA T400"),
        ("-5=3y", "purchase_price"),
    ):
        assert problem in run("--owned", words, code=2)
