"""`costprobe price` on a store with history."""

import time

import pytest
from costprobe.core.records import Point


@pytest.mark.processes
def test_show_lists_current_prices_and_their_components(costprobe):
    costprobe.write(
        "[telemetry]\ngpus = false\n"
        '[[price]]\nplan = "on_demand"\nper_hour = 1.00\n'
        '[[price]]\nplan = "reserved"\nper_hour = 1.00\ndiscount = 0.4\nterm = "1y"\n'
        "valid_from = 2020-01-01\n"
    )
    costprobe.append(
        [Point("probe", {"device": "cpu", "probe": "p"}, {"samples": 1}, time.time_ns())]
    )
    (entry,) = costprobe.json("price", "show")["devices"]
    assert (entry["plan"], entry["price_rate_per_h"]) == ("on_demand", "1.00")
    assert "the reserved term ended on 2020-12-31" in entry["source"]
    assert "$1.00/h (on demand)" in costprobe("price", "show")
    assert "no price change since" in costprobe("price", "history")
