"""`costprobe sink` on a store, and with a real daemon whose database recovers."""

import pytest
from costprobe.adapters.store.cursors import RejectedLine
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.cli import session
from fakes.clock import FakeClock
from fakes.store_access import advance


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "costprobe.db", FakeClock())
    opened.append([Point("device", {"device": "gpu0"}, {"power_w": 1.0}, i) for i in range(10)])
    yield opened
    opened.close()


def test_rejected_points_are_listed_and_written_to_a_file(costprobe, store):
    store.register_sink("influxdb")
    store.register_sink("other")
    refused = RejectedLine("device,x=1 power_w=2 3", "field type conflict")
    advance(store, "influxdb", 7, 6, [refused])
    session("sink_rejected", costprobe.config)
    assert (costprobe.folder / "refused.lp").read_text() == "device,x=1 power_w=2 3\n"
