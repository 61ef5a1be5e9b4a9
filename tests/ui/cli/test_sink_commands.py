"""`costprobe sink` on a store, and with a real daemon whose database recovers."""

import json

import pytest
from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.store_access import advance


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "costprobe.db", FakeClock())
    opened.append([Point("device", {"device": "gpu0"}, {"power_w": 1.0}, i) for i in range(10)])
    yield opened
    opened.close()


def test_rejected_points_are_listed_and_written_to_a_file(costprobe, store, tmp_path):
    store.register_sink("influxdb")
    store.register_sink("other")
    advance(
        store, "influxdb", 7, 6, [RejectedLine("device,x=1 power_w=2 3", "field type conflict")]
    )
    listed = costprobe("sink", "rejected")
    assert "influxdb  field type conflict" in listed
    assert "device,x=1 power_w=2 3" in listed
    assert json.loads(costprobe("sink", "rejected", "other", "--json")) == []
    file = tmp_path / "refused.lp"
    assert "1 line" in costprobe("sink", "rejected", "influxdb", "--export", str(file))
    assert file.read_text() == "device,x=1 power_w=2 3\n"
    assert "choose another file" in costprobe("sink", "rejected", "--export", str(file), code=2)
    assert "write one of influxdb, other" in costprobe("sink", "rejected", "odd", code=2)
