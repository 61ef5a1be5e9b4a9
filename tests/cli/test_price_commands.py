"""`costprobe price` on a store with history."""

import json
import time

import pytest
from costprobe.adapters.storage.writer import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.command import called

DAY_NS = 86_400 * 10**9


@pytest.fixture
def costprobe(tmp_path):
    """Ten days of a CPU at 100 inferences a second and 2 J each, at 1 an hour."""
    config = tmp_path / "costprobe.toml"
    config.write_text(
        f'[store]\npath = "{tmp_path}/costprobe.db"\n'
        "[telemetry]\ngpus = false\n"
        '[[price]]\nplan = "on_demand"\nper_hour = 1.00\n'
        '[[price]]\nplan = "reserved"\nper_hour = 1.00\ndiscount = 0.4\nterm = "1y"\n'
        "valid_from = 2020-01-01\n"
    )
    store = Store.open(tmp_path / "costprobe.db", FakeClock())
    now_ns = time.time_ns()
    fields = {"throughput_per_s": 100.0, "energy_per_inference_j": 2.0}
    tags = {"device": "cpu", "probe": "ranker"}
    store.append([Point("probe", tags, fields, now_ns - i * DAY_NS) for i in range(10)])
    store.append([Point("probe", {**tags, "device": "gpu7"}, fields, now_ns)])
    store.close()

    def run(*arguments, code=0):
        return called(config, "price", *arguments, code=code).output

    return run


def test_history_is_priced_under_every_plan(costprobe, tmp_path):
    (entry,) = json.loads(costprobe("what-if", "--json"))
    assert (entry["device"], entry["probe"], entry["samples"]) == ("cpu", "ranker", 10)
    plans = {plan["name"]: plan for plan in entry["plans"]}
    # 1 an hour over 100 inferences a second; the reserved term of 2020 is over.
    hourly = 1 / 3600 / 100
    assert plans["actual"]["cost_per_inference"] == pytest.approx(hourly)
    assert plans["on demand of 1970-01-01"]["cost_per_inference"] == pytest.approx(hourly)
    reserved = plans["reserved of 2020-01-01"]
    assert reserved["cost_per_inference"] == pytest.approx(0.6 * hourly)
    assert (float(reserved["price_rate_per_h"]), reserved["break_even_share"]) == (0.6, 0.6)
    assert float(reserved["price_per_month"]) == 438
    assert plans["list price (assumed)"]["plan"] == "assumed"
    text = costprobe("what-if")
    assert "-40.0 %" in text
    assert "60% use" in text
    assert "actual" in text.splitlines()[2]
    owned = tmp_path / "plans.toml"
    owned.write_text('[[price]]\nplan = "owned"\npurchase_price = 8760\nlifetime = "1y"\n')
    (entry,) = json.loads(costprobe("what-if", "--plans", str(owned), "--json"))
    (mine,) = [plan for plan in entry["plans"] if plan["plan"] == "owned"]
    assert mine["cost_per_inference"] == pytest.approx(hourly)


def test_unavailable_history_is_reported(costprobe, tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text('[[price]]\nplan = "leased"\n')
    assert f"{bad}: price[0]" in costprobe("what-if", "--plans", str(bad), code=2)
    bad.write_text("[[price")
    assert "not valid TOML" in costprobe("what-if", "--plans", str(bad), code=2)
    assert "no sample" in costprobe("what-if", "--probe", "odd", code=1)


def test_show_lists_current_prices_and_their_components(costprobe):
    (entry,) = json.loads(costprobe("show", "--json"))["devices"]
    assert (entry["plan"], entry["price_rate_per_h"]) == ("on_demand", "1.00")
    assert "the reserved term ended on 2020-12-31" in entry["source"]
    assert "$1/h (on demand)" in costprobe("show")
    assert "no price change since" in costprobe("history")
