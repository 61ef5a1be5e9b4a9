"""`costprobe price list` and `price update`: what is shown, checked, installed and kept."""

import hashlib
import json
import stat
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from costprobe.pricing.catalogue import OFFER_COLUMNS
from costprobe.pricing.catalogue_files import CatalogueFolder, packaged
from fakes.cli import Cli
from fakes.documents import checked
from fakes.inference_server import InferenceServer

TODAY = datetime.now(tz=UTC).date()
ROW = "aws,p5.48xlarge,us-east-1,NVIDIA H100 80GB HBM3,8,80,192,2048,USD,44.00,,,,2026-11,,a page\n"


def table(version, row=ROW):
    return f"# costprobe price catalogue, version {version}\n{','.join(OFFER_COLUMNS)}\n{row}"


@pytest.fixture
def newer(monkeypatch):
    """A table newer than the package's, which this test dates into the past."""
    old = packaged()
    aged = type(old)(TODAY - timedelta(30), old.offers, old.purchases, old.gpus)
    monkeypatch.setattr("costprobe.pricing.catalogue_files.packaged", lambda: aged)
    return table(TODAY, ROW.replace("2026-11", "2026"))


@pytest.fixture
def costprobe(tmp_path):
    cli = Cli(tmp_path)
    cli.config.write_text(f'[store]\npath = "{tmp_path}/state/costprobe.db"\n')
    return partial(cli, "price")


def test_list_filters_by_gpu_cloud_region_and_instance(costprobe):
    for words, wanted in (
        ("--gpu H100 --cloud aws", {"p5.48xlarge", "p5.4xlarge"}),
        ("--gpu A100-PCIe --cloud crusoe", {"A100 40GB PCIe per GPU", "A100 80GB PCIe per GPU"}),
        ("--instance g4dn.8X --region us-east-1", {"g4dn.8xlarge"}),
    ):
        document = checked("price list", costprobe("list", *words.split(), "--json"))
        assert {offer["instance"] for offer in document["offers"]} == wanted


def test_newer_table_is_installed_and_earlier_instants_keep_their_prices(
    costprobe, newer, tmp_path
):
    file = tmp_path / "prices.csv"
    file.write_text(newer)
    before_ns = time.time_ns()
    assert f"the catalogue of {TODAY}: 1 offer" in costprobe("update", "--from", str(file))
    (installed,) = (tmp_path / "state/catalogue").iterdir()
    assert stat.S_IMODE(installed.stat().st_mode) == 0o644
    folder = CatalogueFolder(tmp_path / "state/catalogue")
    assert len(list(folder.at(time.time_ns()).offers)) == 1
    assert folder.at(before_ns - 10**9).version < TODAY
    assert json.loads(costprobe("list", "--json"))["version"] == TODAY.isoformat()
    assert "is not newer than" in costprobe("update", "--from", str(file), code=2)


def test_url_is_installed_if_it_has_the_digest(costprobe, newer, tmp_path):
    digest = hashlib.sha256(newer.encode()).hexdigest()
    with InferenceServer(lambda call: call.whole(newer.encode())) as server:
        assert "add --sha256" in costprobe("update", "--from", server.url, code=2)
        wrong = costprobe("update", "--from", server.url, "--sha256", "0" * 64, code=2)
        assert f"its SHA-256 is {digest}" in wrong
        assert not (tmp_path / "state").exists()
        assert "installed" in costprobe("update", "--from", server.url, "--sha256", digest.upper())


def test_unusable_table_is_refused_and_nothing_installed(costprobe, newer, tmp_path):
    file = tmp_path / "prices.csv"
    for content, problem in (
        (table("2020-01-01", ROW.replace("2026-11", "2019")), "is not newer than"),
        (table(TODAY + timedelta(2)), "is in the future"),
        (newer.replace("44.00", "4400"), "line 3: on_demand_per_h: 4400 is not from"),
        (newer.replace("H100 80GB", "H101 80GB"), "is no name of a GPU"),
        ("<html>", "its first line is not"),
        ("x" * (2 << 20), "more than"),
    ):
        file.write_text(content)
        assert problem in costprobe("update", "--from", str(file), code=2)
    assert "No such file" in costprobe("update", "--from", str(tmp_path / "none.csv"), code=2)
    assert "64 hexadecimal" in costprobe("update", "--from", str(file), "--sha256", "x", code=2)
    assert not (tmp_path / "state").exists()


def test_damaged_installed_table_is_skipped(tmp_path):
    (tmp_path / "prices-5.csv").write_text("damaged")
    (tmp_path / "prices-x.csv").write_text("not ours")
    assert CatalogueFolder(tmp_path).at(time.time_ns()) is packaged()
