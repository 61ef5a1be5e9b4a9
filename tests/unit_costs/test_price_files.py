"""Price files that the daemon writes for gateways once a day."""

import json
import os

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import JobError
from costprobe.core.records import NS_PER_S, Point
from costprobe.unit_costs.price_files import PriceFile
from costprobe.unit_costs.settings import PriceFileConfig
from fakes.clock import FakeClock

FIELDS = {
    "cost_total": 5.0,
    "cost_tokens_in": 2.0,
    "cost_tokens_out": 3.0,
    "tokens_in": 500_000.0,
    "tokens_out": 250_000.0,
    "window_s": 3600.0,
}


def paid(clock, currency="USD", **tags):
    tags = {"service": "chat", "basis": "serving", "currency": currency, **tags}
    return Point("cost", tags, FIELDS, clock.time_ns() - 3600 * NS_PER_S)


@pytest.fixture
def price_file(tmp_path):
    """A price file in a folder of its own, of a store with rows."""
    clock = FakeClock()
    folder = tmp_path / "prices"
    folder.mkdir(mode=0o750)

    def make(*rows, **keys):
        store = Store.open(tmp_path / "costprobe.db", clock)
        store.append([paid(clock, **row) for row in rows])
        store.close()
        settings = {"program": "litellm", "file": folder / "prices.json", **keys}
        found = PriceFileConfig.model_validate(settings)
        return PriceFile(found, {"chat": "llama"}, tmp_path / "costprobe.db", clock), found.file

    return make


def test_prices_replace_the_file_whole_and_with_its_mode(price_file):
    written, path = price_file({}, mode="0640")
    path.write_text("old")
    before = os.umask(0o077)
    try:
        written.write()
    finally:
        os.umask(before)
    # 2.00 for half a million input tokens, 3.00 for a quarter of a million output tokens.
    prices = json.loads(path.read_text())["openai/llama"]
    assert (prices["input_cost_per_token"], prices["output_cost_per_token"]) == (4e-6, 12e-6)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in path.parent.iterdir()] == ["prices.json"]


def test_file_stays_as_it_is_without_a_cost_of_tokens(price_file):
    written, path = price_file()
    path.write_text("old")
    written.write()
    assert path.read_text() == "old"


def test_faults_name_the_cause_and_leave_the_file(price_file, tmp_path):
    written, path = price_file({"currency": "EUR"})
    path.write_text("old")
    with pytest.raises(JobError, match=r"usd = 1\.08"):
        written.write()
    in_euro, _ = price_file(usd=1.1)
    in_euro.write()
    assert path.read_text() != "old"
    twice, _ = price_file({"service": "other", "served_model": "llama"}, usd=1)
    with pytest.raises(JobError, match="several services"):
        twice.write()
    absent, _ = price_file(file=tmp_path / "absent/prices.json", window="1ms")
    absent.write()  # no row in the window, so that nothing is written


def test_folder_in_which_others_may_write_is_refused(price_file, tmp_path):
    for name, mode in (("group", 0o770), ("everyone", 0o1777)):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(mode)
        written, path = price_file({"service": name}, file=folder / "prices.json")
        with pytest.raises(JobError, match="others may write in it"):
            written.write()
        assert not path.exists()
    for file, words in ((tmp_path / "absent/p.json", "No such file"), (tmp_path, "regular file")):
        written, _ = price_file({"service": file.name}, file=file)
        with pytest.raises(JobError, match=words):
            written.write()
