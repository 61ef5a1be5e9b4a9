"""`costprobe price` on a store with history."""

import json
import time

import pytest
from costprobe.adapters.store.write import Store
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


@pytest.mark.processes
def test_show_lists_current_prices_and_their_components(costprobe):
    (entry,) = json.loads(costprobe("show", "--json"))["devices"]
    assert (entry["plan"], entry["price_rate_per_h"]) == ("on_demand", "1.00")
    assert "the reserved term ended on 2020-12-31" in entry["source"]
    assert "$1/h (on demand)" in costprobe("show")
    assert "no price change since" in costprobe("history")
